"""Remote files, brought here over several connections at once.

byte_source.py    the seam: where the bytes of a file come from (HTTP; Xet)
progress.py       what can be seen of it while it runs

It knows nothing of the Hub: `corpus/hub.py` says where files come from, where they go and what they
must hash to.
"""
