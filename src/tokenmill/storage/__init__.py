"""Where bytes lie: files on disk, and objects in a store (s3:// ...).

files.py, listing.py    the only code that changes files; folders and globs, listed
objects/, retry.py      an object store's requests; how long and how often a request is repeated
range_reader.py         an object as a file, read by ranges that arrive ahead
folder_files.py, object_files.py    the files of a dataset, in a folder or below a URL
checked_json.py         JSON files that begin with the checksum of their content
heartbeat.py            tells whoever watches for stalls that bytes move
"""
