"""One slice of text becomes one part and its record. mill.py is the file to read first.

mill.py                  `encode_slice`: read, encode, split, commit
job.py, documents.py     its other arguments; what happens to a document's ids
buckets.py               ranges of keys that a shuffle sorts in memory
part.py, record.py       the encoded tokens of a slice; the JSON that describes them
text_hashes.py, seen_texts.py, pruning.py   --dedup: hashes, those seen, a part without copies
ledger.py                all records of a run, kept small
datasets_map.py          `Tokenize`, the same encoding as a function for `datasets.map`
"""
