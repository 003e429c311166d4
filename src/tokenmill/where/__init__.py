"""`--where`: selects rows by an expression over their columns.

    tree.py         the expression as plain data
    parser.py       text -> tree, with a caret under what is wrong; never `eval`
    evaluation.py   tree and Arrow arrays -> which rows pass
    template.py     `--template`: a text made of several columns

corpus/columns.py finds the tree's columns in a schema and checks their types.

Nulls work as in SQL: a test of a null is neither true nor false, `not` does not change that, and a
row passes only if the whole is true. So `x != 3` does not let a null through, and neither does `not
x == 3`; `x is null` does.
"""
