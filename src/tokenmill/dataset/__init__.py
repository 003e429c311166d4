"""A finished dataset: how it gets into its folder, how it is opened, read, converted and checked.

manifest.py, output.py, notes.py, trainers.py    the proof; the output folder; what to tell people
dataset.py, inference.py, encoding.py            a dataset opened: its format, dtype and tokenizer
files.py                                         where its files are: a local folder, or below a URL
stream.py, tokens.py                             a split's tokens and documents; tokens in blocks
convert.py, verify/, inspect/                    the commands of these names
"""
