"""A vocabulary of one's own: learned from a corpus, saved, compared with others.

training.py     read this first: a corpus in, a tokenizer out
words.py        the words of a text, counted
counting.py     the words of a corpus, counted by all cores, resumably
merges.py       words -> tokens, by byte-pair merges
saving.py       tokens -> tokenizer.json and a file of ranks
comparison.py   bytes per token of several tokenizers, input by input
"""
