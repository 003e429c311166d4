"""Assembly: shard tasks turn parts, or another dataset, into shards. Nothing else writes shards.

    task.py          a shard task and its record: plain data
    cuts.py          where shards and their pieces end
    sources.py       where a task's tokens come from: parts in order, or shuffled
    writing.py       carries out a task, on any worker
    stream.py        one split's tasks and shards
    fitting.py       how a small corpus changes shards and the validation split
    books.py         which tasks are due and done
    parts_in_use.py  which part files are still needed
    resume.py        what earlier attempts have encoded
    sidecars.py      the files of --keep
    selection.py     --dedup (duplicates.py) and --limit-tokens (token_limit.py)

A shard task covers a stretch of one split's token stream: a shard, or a piece of a large one. Every
write is a whole file or known bytes at a known offset, so tasks may run in any order, in parallel,
and repeatedly. No token passes through the process that keeps the books.
"""
