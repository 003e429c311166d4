"""FineWeb for nanoGPT: leaves train.bin and val.bin beside this script, where train.py looks.

    python data/fineweb/prepare.py                                 downloads FineWeb-Edu 10B (28 GB)
    python data/fineweb/prepare.py --input giant.txt --separator '<|endoftext|>'
    python data/fineweb/prepare.py --input shards/*.parquet        files that are here already

Works as it is when copied into a nanoGPT checkout (data/fineweb/). Interrupted? Run it again: it
goes on from where it was. The options of `tokenmill prepare` may follow.
"""

import os
import sys

try:
    from tokenmill.cli import main
except ImportError:
    sys.exit("this script needs tokenmill: pip install tokenmill")

HERE = os.path.dirname(os.path.abspath(__file__))


def command(arguments: list[str]) -> list[str]:
    arguments = [
        word
        for given in arguments
        for word in (given.split("=", 1) if given.startswith("--input=") else [given])
    ]
    if "--input" not in arguments:
        return ["fineweb", "-o", HERE, *arguments]
    start = stop = arguments.index("--input")
    while stop + 1 < len(arguments) and not arguments[stop + 1].startswith("-"):
        stop += 1
    inputs, others = arguments[start + 1 : stop + 1], arguments[:start] + arguments[stop + 1 :]
    return ["prepare", *inputs, "-o", HERE, *others]


if __name__ == "__main__":
    sys.exit(main(command(sys.argv[1:])))
