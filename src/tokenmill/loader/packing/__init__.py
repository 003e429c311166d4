"""Whole documents in rows of a fixed length: `tokenmill pack`.

A plan lists, for each row, the stretches of the token stream that it is made of; no token is
copied.

    pack.py         read this first: all of these together
    pieces.py       documents as pieces that fit into a row: split, truncated or dropped
    best_fit.py     best-fit decreasing: which row each piece goes to
    pack_report.py  what packing did to the documents
    row_plan.py     the plan as a file
    row_reader.py   the tokens of its rows
    written.py      the rows as a dataset of their own
"""
