"""Remote files, brought here over several connections at once.

downloads.py           the threads: connections that take ranges, one that hashes
file_download.py       one file: what is missing, who fetches which range, how far it is hashed
connection_count.py    how many connections: as many as make the whole faster
line_meter.py          rate and latency of the line, and how long a range should be
byte_source.py         the seam: where the bytes of a file come from
http_source.py         a byte source: a file over HTTP, by an address that expires
http_answers.py        HTTP requests, lean, over connections that are kept
progress.py            what can be seen of it while it runs

It knows nothing of the Hub: `corpus/hub.py` says where files come from, where they go and what they
must hash to.
"""
