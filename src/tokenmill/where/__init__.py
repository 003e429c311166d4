"""`--where`: selects rows by an expression over their columns.

    fields.py       the columns of a table, by their dotted names
    tree.py         the expression as plain data
    parser.py       text -> tree, with a caret under what is wrong (mistake.py); never `eval`
    columns.py      the tree's columns found in a schema, and their types checked
    evaluation.py   tree and Arrow arrays -> which rows pass
    statistics.py   whether any row of a parquet row group can pass, by its footer
    template.py     `--template`: a text made of several columns

Nulls work as in SQL: a test of a null is neither true nor false, `not` does not change that, and a
row passes only if the whole is true. So `x != 3` does not let a null through, and neither does `not
x == 3`; `x is null` does.
"""
