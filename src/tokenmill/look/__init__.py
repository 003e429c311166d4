"""Looking at a dataset: `tokenmill report` and `tokenmill view`.

report/   what is in a dataset, as one HTML file without scripts, as JSON or as a card
view/     a page on 127.0.0.1 that opens any document or token
web/      what both build pages with: escaped markup, tokens in colour, one style

Pure readers of a finished dataset: nothing in a run imports them.
"""
