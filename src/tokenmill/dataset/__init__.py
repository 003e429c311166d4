"""A finished dataset: how it is published, opened, read, converted and checked.

manifest.py, new_manifest.py                     the proof of a finished run; how it is made
notes.py                                         what to know before training on it
dataset.py, inference.py, made_with.py           an open dataset: its format, dtype and tokenizer
files.py                                         where its files are: a local folder, or below a URL
opened.py, split.py                              `tokenmill.open`: tokens and documents in Python
open_shards.py, document_bounds.py, index_cache.py    random access to shards and documents
stream.py, convert_source.py                     a split's tokens and documents; tokens in blocks
convert.py, verify/, inspect/                    the commands of these names
"""
