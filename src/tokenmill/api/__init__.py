"""The commands as functions, in the words of the command line: what `import tokenmill` offers.

One file a function. Each takes what a caller has at hand (paths, an `Encoding`, "10M"), and
returns plain frozen values. A wrong keyword raises a TypeError that names the right one.
"""
