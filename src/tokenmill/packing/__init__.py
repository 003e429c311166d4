"""Whole documents in rows of a fixed length: `tokenmill pack`.

A plan says for each row which stretches of the token stream it is made of; the tokens stay where
they are. Rows come from a plan as they come from the stream: row i is a function of i.

    pieces.py     documents as pieces that fit into a row: split, truncated or dropped
    best_fit.py   best-fit decreasing: which row each piece goes to
    crop.py       nanochat's rule: rows without padding, the document that fills the rest is cropped
    pack_report.py    what packing did to the documents
    row_plan.py   the plan as a file
    row_reader.py the tokens of its rows
    pack.py       all of these together
    written.py    the rows as a dataset of their own
"""
