"""Where bytes lie: files on disk, and objects in a store (s3:// ...).

files.py                what callers use: a file by its path, wherever that leads
store.py                the contract of a store, and which one a path is of
local.py, disk.py       the store that is a disk; system calls that change files, made durable
objects/, retry.py      the store that is a bucket, its requests; how often a request is repeated
new_file.py             a file that appears whole or not at all
file_piece.py           bytes at their place in a file that several write
partial_file.py         a file being fetched, continued by later attempts
hashing.py              sha256 of files, whole or in pieces
lock.py, scratch.py     who may write to a folder; local folders for what is on its way elsewhere
disk_space.py           how much is free
output_errors.py        what a disk or a bucket refuses, as exit 4 with advice
listing.py              folders and globs, listed
range_reader.py         an object as a file, read by ranges that arrive ahead
folder_files.py, object_files.py    the files of a dataset, in a folder or below a URL
checked_json.py         JSON files that begin with the checksum of their content
heartbeat.py            tells whoever watches for stalls that bytes move
"""
