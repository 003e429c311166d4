"""Downloads remote files over several connections at once.

downloads.py           the threads: connections that fetch ranges, and one that hashes
file_download.py       one file: what is missing, which ranges are in flight, how far it is hashed
connection_count.py    how many connections to use
line_meter.py          rate and latency of the line, and how long a range should be
byte_source.py         the interface: where the bytes of a file come from
http_source.py         a byte source: a file over HTTP, by an address that expires
http_answers.py        HTTP requests with little CPU, over connections that are kept
progress.py            the progress of a download

It knows nothing of the Hub: `corpus/hub.py` says where files come from, where they go and what they
must hash to.
"""
