"""Where text comes from: sources become inputs, inputs spans, spans slices, and slices the plan.

spans.py, slices.py, plan.py    inputs, spans and slices as plain data; kept small; frozen
inputs.py, skipped.py           which files the sources mean, and what is not read of them
hub.py, fineweb.py, fetch.py    the Hugging Face Hub; which files FineWeb is; downloads
opening.py, prefetch.py         an input opened, wherever it lies; the next slice begun early
unchanged.py                    whether an input is still the one that was planned
readers/                        one file for each kind of input: parquet, arrow, jsonl, text
"""
