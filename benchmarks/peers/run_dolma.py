"""`dolma tokens`, as its documentation has it: JSON lines in, headerless .npy out.

It is given its input uncompressed, in as many files as it has processes, or a multiple.

    python benchmarks/peers/run_dolma.py CORPUS OUT NUM_PROC
"""

from __future__ import annotations

import os
import subprocess
import sys


def main(corpus: str, out: str, num_proc: str) -> None:
    command = [
        *(os.path.join(os.path.dirname(sys.executable), "dolma"), "tokens"),
        *("--documents", os.path.join(corpus, "*.jsonl")),
        *("--destination", out, "--processes", num_proc, "--dtype", "uint16"),
        *("--tokenizer.name_or_path", os.environ["PEER_TOKENIZER"]),
        *("--tokenizer.eos_token_id", "50256", "--tokenizer.pad_token_id", "50256"),
        "--tokenizer.encode_special_tokens",
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main(*sys.argv[1:])
