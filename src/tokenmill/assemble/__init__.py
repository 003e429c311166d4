"""Assembly: shard tasks turn parts, or another dataset, into shards. Nothing else writes shards.

    task.py      a shard task and its record: plain data
    cuts.py      where shards and their pieces end
    sources.py   where a task's tokens come from: parts in order, or shuffled
    writing.py   a task carried out, by any worker, once or twice: the same bytes
    stream.py    one split's tasks and shards
    fitting.py   what a small corpus changes
    books.py     which tasks are due and done
    parts_in_use.py    which part files are still needed
    resume.py    what earlier attempts have encoded

A shard task covers a stretch of one split's token stream: a shard, or a piece of a large one. Every
write is a whole file or known bytes at a known place, so tasks may run in any order, in parallel,
and repeatedly. No token passes through the process that keeps the books.
"""
