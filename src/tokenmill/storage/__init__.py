"""Files on disk, and objects in a store (s3:// ...).

store.py                the contract of a store; the store of a path; what is made of its methods
local.py, disk.py       the local disk as a store; durable system calls
objects/, retry.py      a bucket as a store; how its requests are retried
address.py              paths and URLs: what they name, and which are refused
hub.py                  the Hugging Face Hub: which files a repository has, and their bytes
new_file.py             a file that appears whole or not at all
file_piece.py           one worker's bytes in a file that several workers write
hashing.py              sha256 of files, whole or in pieces
lock.py, scratch.py     who may write to a folder; local folders for temporary files
disk_space.py           free space
output_errors.py        storage errors as exit 4, with advice
listing.py              listing of folders and globs
range_reader.py         an object as a file, read in ranges that are prefetched or cached
folder_files.py, object_files.py    the files of a dataset, in a folder or below a URL
checked_json.py         JSON files that begin with the checksum of their content
heartbeat.py            reports that bytes move, so that no stall is suspected
"""
