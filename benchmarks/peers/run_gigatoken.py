"""gigatoken's own `encode_files`: all of the corpus at once, in its threads, into memory.

How many threads: RAYON_NUM_THREADS. Nothing is written, unless `save` asks for it, to compare.

    python benchmarks/peers/run_gigatoken.py CORPUS OUT NUM_PROC [save]
"""

from __future__ import annotations

import glob
import os
import sys

VOCAB = os.path.join(os.path.dirname(__file__), "../../src/tokenmill/encodings/vocab")
EOT = 50256


def main(corpus: str, out: str, save: bool) -> None:
    import gigatoken

    tokenizer = gigatoken.Tokenizer.from_tiktoken(
        os.path.join(VOCAB, "r50k_base.tiktoken"), pretokenizer="gpt2", special_tokens={}
    )
    files = sorted(glob.glob(os.path.join(corpus, "*.parquet")))
    found = tokenizer.encode_files(gigatoken.ParquetFileSource(files), parallel=True)
    if not save:
        return
    import numpy as np

    os.makedirs(out)
    ids, offsets = found.layout.content.data, found.layout.offsets.data
    np.insert(ids, offsets[1:], EOT).astype(np.uint16).tofile(os.path.join(out, "tokens.bin"))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], save=len(sys.argv) > 4)
