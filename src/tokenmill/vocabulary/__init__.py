"""Training a tokenizer on a corpus, and comparing tokenizers.

training.py     read this first: a corpus in, a tokenizer out
words.py        counts the words of a text
counting.py     counts the words of a corpus, on all cores, resumably
merges.py       words -> tokens, by byte-pair merges
saving.py       tokens -> tokenizer.json and a rank file
comparison.py   bytes per token of several tokenizers, input by input
"""
