"""A finished dataset: how it gets into its folder, how it is opened, read, converted and checked.

manifest.py, output.py, notes.py, trainers.py    the proof; the output folder; what to tell people
dataset.py, inference.py, encoding.py            a dataset opened: its format, dtype and tokenizer
remote.py                                        a dataset in an object store, opened as a folder
stream.py, tokens.py                             a split's tokens and documents; tokens in blocks
convert.py, verify/, inspect/                    the commands of these names
"""
