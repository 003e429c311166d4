"""The commands as functions with the same option names: the API of `import tokenmill`.

One file per function. Each accepts convenient values (paths, an `Encoding`, "10M") and returns
plain frozen values. An argument with a wrong name or type raises an ArgumentError, which is also a
TypeError.
"""
