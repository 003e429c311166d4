"""`tokenmill view`: a page on 127.0.0.1 that opens any document or token of a dataset at once.

guard.py       who may ask: one check before any routing
server.py      answers, with the headers that bind the browser
dataset_view.py what the page asks for, as plain values
steps.py       which rows a training step reads
page/          the page itself: HTML, CSS and ES modules, served as they are

A pure reader of a dataset: it writes nothing and takes no file name from the browser.
"""
