"""From shards to batches: `tokenmill.Loader`.

Row i of a run is a function of the data's content, the configuration and i alone, so the state is
one counter. Each module is one of the functions that this is made of:

    permutation.py   a seeded order of N things that needs no memory
    order.py         the order of one source's rows: shuffled anew every epoch
    mixing.py        which source, and which of its rows, comes at a place of the run
    steps.py         which places make up a step, and which a rank's part of it
    rows.py          the tokens of a source's rows, copied out of its shards
    block_cache.py   the same from an object store, fetched ahead
    masks.py         where documents begin in them
    batch.py         what a trainer gets
    options.py       the options, checked
    source.py        a dataset by name, and what identifies its content
    state.py         the counter, and what must not have changed when it is loaded
    prefetch.py      a thread that makes batches ahead
    loader.py        all of these together
    torch.py         the same for torch.utils.data, with or without worker processes
"""
