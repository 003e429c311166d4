"""One slice of text becomes one part and its record. mill.py is the file to read first.

mill.py                  `encode_slice`: read, encode, split, commit
job.py, documents.py     its arguments besides the slice; what happens to a document's ids
part.py, record.py       the encoded tokens of a slice; the JSON that describes them
kept_file.py             --keep: where each document comes from, and columns of its row
buckets.py               ranges of keys that a shuffle sorts in memory
text_hashes.py, seen_texts.py, pruning.py   --dedup: hashes, those seen, a part without copies
ledger.py                the records of a run in little memory, and saved in one file
datasets_map.py          `Tokenize`: the same encoding as a function for `datasets.map`
"""
