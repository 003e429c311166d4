"""Where text comes from: sources become inputs, inputs spans, spans slices, and slices the plan.

spans.py, slices.py, plan.py    inputs, spans and slices as plain data; in compact form; frozen
input_spans.py, planning.py     an input cut into spans, and spans into slices
inputs.py, source_files.py      the corpus in order; the files that a source names
skipped.py                      the ones that are not read
hub.py, fineweb.py, fetch.py    the Hugging Face Hub; the files of FineWeb; downloads
opening.py, prefetch.py         opens local and remote inputs; starts reading the next slice early
unchanged.py                    whether an input is still the one that was planned
readers/                        one file for each kind of input: parquet, arrow, jsonl, text
"""
