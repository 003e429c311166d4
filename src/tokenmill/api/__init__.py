"""The commands as functions, with the names of the command line: the API of `import tokenmill`.

One file per function. Each accepts convenient values (paths, an `Encoding`, "10M") and returns
plain frozen values. An argument of a wrong name or type raises an ArgumentError, which is a
TypeError, too.
"""
