"""From shards to batches: `tokenmill.Loader`.

Row i of a run is a function of the data's content, the configuration and i alone, so the state is
one counter. Each module computes one part of it:

    order.py         the order of one source's rows: a new permutation every epoch
    mixing.py        which source, and which of its rows, comes at each place of the run
    steps.py         which places make up a step, and which of them a rank takes
    rows.py          a source's rows: stretches of its token stream, copied out of the shards
    packed_rows.py   the rows of a plan, made by `tokenmill pack`
    block_cache.py   tokens from an object store, prefetched
    batch.py         what a trainer gets
    batch_maker.py   a batch from places of the run, with masks and ids for attention and loss
    account.py       where a step's rows came from, how much each source has given
    options.py       the options, checked
    source.py        the rows of a dataset, by name
    state.py         the counter, and what must be unchanged when it is loaded
    prefetch.py      a thread that prepares batches
    packing/         plans of rows made of whole documents: `tokenmill pack`
    loader.py        all of these together
    torch.py         the same for torch.utils.data, with or without worker processes
"""
