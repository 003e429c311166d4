"""FineWeb straight from its parquet shards: leaves train.bin and val.bin beside this script.

    python data/fineweb/prepare_fineweb.py --version 10B         FineWeb-Edu, 10 billion tokens
    python data/fineweb/prepare_fineweb.py --version 100B --no-edu  FineWeb, 100 billion
    python data/fineweb/prepare_fineweb.py --version 10B --local-dir DIR  no network needed

Works as it is when copied into a nanoGPT checkout (data/fineweb/). Interrupted? Run it again: it
goes on from where it was. Every option of `tokenmill fineweb` may follow.
"""

import os
import sys

try:
    from tokenmill.cli import main
except ImportError:
    sys.exit("this script needs tokenmill: pip install tokenmill")

if __name__ == "__main__":
    here = os.path.dirname(os.path.abspath(__file__))
    sys.exit(main(["fineweb", "-o", here, *sys.argv[1:]]))
