"""Where text comes from: sources become inputs, inputs spans, spans slices, and slices the plan.

source_files.py, inputs.py      the files that a source names; all inputs in order
skipped.py                      notes on files that are not read
standard_input.py               `-` as a source
spans.py, slices.py, plan.py    inputs, spans and slices as plain data; compact; frozen in a plan
input_spans.py, planning.py     cut an input into spans, and spans into slices
opening.py, prefetch.py         open local and remote inputs; start reading the next slice ahead
unchanged.py                    whether an input is still the one that was planned
readers/                        one file for each kind of input: parquet, arrow, jsonl, csv, text
rows.py, columns.py             what readers yield; the columns that options ask for
text_arrays.py                  text in Arrow's layouts

hub_inputs.py, downloads.py     inputs on the Hub, downloaded in the order of the plan
hub_errors.py                   explains what the Hub answers
hub_names.py, hub_listing.py    how a dataset is written; which files it means
dataset_card.py, presets.py     its configs and splits; what well-known names stand for
fineweb.py                      the files of FineWeb's versions
"""
