"""One slice of text becomes one part and its record. mill.py is the file to read first.

mill.py                  `encode_slice`: read, encode, split, commit
job.py, documents.py     what it is told besides the slice; what becomes of a document's ids
part.py, record.py       the encoded tokens of a slice; the JSON that says what they are
ledger.py                all records of a run, kept small
datasets_map.py          `Tokenize`, the same encoding as a function for `datasets.map`
"""
