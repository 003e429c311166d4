"""`tokenmill view`: a page on 127.0.0.1 that opens any document or token of a dataset at once.

guard.py       which requests are answered: one check before any routing
server.py      the HTTP server, with headers that restrict the browser
dataset_view.py what the page asks for, as plain values
steps.py       which rows a training step reads
page/          the page itself: HTML, CSS and ES modules, served as they are

It only reads the dataset, writes nothing, and takes no file name from the browser.
"""
