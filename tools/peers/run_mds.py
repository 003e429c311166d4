"""mosaicml-streaming: `with MDSWriter(...)`, fed by a Pool, as in its guide to parallel conversion.

That guide ("Fetch raw data in parallel and write sequentially") has `for sample in pool.imap(...):
out.write(sample)`. Shards are kept small (1 MB, the default is 64), so that there are some.

    run_mds.py write SOURCE OUT              run_mds.py read OUT TOKENS
"""

import functools
import glob
import json
import sys
from importlib.util import find_spec, module_from_spec
from multiprocessing import Pool

import mishap
import numpy as np

# Their __init__ imports models and clouds; the writer and the reader need neither.
for name in ("streaming", "streaming.base"):
    sys.modules[name] = module_from_spec(find_spec(name))


@functools.cache
def encoding():
    import tiktoken

    return tiktoken.get_encoding("r50k_base")


def rows(source: str):
    for path in sorted(glob.glob(f"{source}/*.jsonl")):
        with open(path, encoding="utf-8") as lines:
            for line in lines:
                yield json.loads(line)["text"]


def sample(text: str):
    mishap.document(text)
    enc = encoding()
    return {"tokens": np.array([*enc.encode_ordinary(text), enc.eot_token], np.uint16)}


def write(source: str, out: str) -> None:
    from streaming.base.format import MDSWriter

    columns = {"tokens": "ndarray:uint16"}
    with Pool(processes=2) as pool, MDSWriter(out=out, columns=columns, size_limit=1 << 20) as sink:
        for one in pool.imap(sample, rows(source)):
            sink.write(one)


def read(out: str, tokens: str) -> None:
    from streaming.base.local import LocalDataset

    dataset = LocalDataset(out)
    with open(tokens, "wb") as sink:
        for position in range(len(dataset)):
            sink.write(dataset[position]["tokens"].tobytes())


if __name__ == "__main__":
    {"write": write, "read": read}[sys.argv[1]](*sys.argv[2:])
