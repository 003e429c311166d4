"""Who takes part: tokenmill, what people use today, and the limits of the machine.

All get the same cores, the same text and the same gpt2. A slow one gets less text, about what it
does in `seconds`, in a corpus of its own; tokenmill is run on that, too, to compare the tokens.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
VOCAB = os.path.join(ROOT, "src", "tokenmill", "encodings", "vocab")
TIKTOKEN_URL = "https://openaipublic.blob.core.windows.net/encodings/{}.tiktoken"
ENVIRONMENTS = {"own": sys.executable} | {
    name: os.path.join(ROOT, f".venv-{name}", "bin", "python") for name in ("peers", "dolma")
}


@dataclass(frozen=True)
class Contestant:
    name: str
    label: str
    role: str  # mill, peer or limit
    script: str = ""
    python: str = "own"
    reads: str = ""  # how answers.py finds its tokens; "": it has none
    layout: str = "snappy"  # what it reads: parquet or JSON lines
    slow_mb_per_s: float = 0.0  # about what it does here on 2 cores; 0: it gets the whole corpus
    target: float = 0.0  # tokenmill is to be so many times as fast
    package: str = ""  # whose version counts
    times_itself: bool = False

    def command(self, corpus: str, out: str, num_proc: int, *more: str) -> list[str]:
        python = ENVIRONMENTS[self.python]
        return [python, os.path.join(HERE, self.script), corpus, out, str(num_proc), *more]

    def missing(self) -> str:
        """Why it cannot take part here, or nothing."""
        python = ENVIRONMENTS[self.python]
        if not os.path.exists(python):
            return f"no {os.path.relpath(python, ROOT)}: make bench-peers"
        if self.package and not self.version():
            return f"{self.package} is not installed there"
        return ""

    def version(self) -> str:
        if not self.package:
            return ""
        code = f"from importlib.metadata import version; print(version({self.package!r}))"
        command = [ENVIRONMENTS[self.python], "-c", code]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


class Tokenmill(Contestant):
    def command(self, corpus: str, out: str, num_proc: int, *more: str) -> list[str]:
        return [
            *(sys.executable, "-m", "tokenmill", "prepare", corpus, "-o", out, "--no-val", "-q"),
            *("--num-proc", str(num_proc), *more),
        ]


TOKENMILL = Tokenmill("tokenmill", "**tokenmill**, everything on", "mill", reads="train.bin")
BARE = Contestant("bare", "the bare loop", "limit", "limits/bare.py", reads="*.bin", target=0.92)
LIMITS = (
    BARE,
    Contestant("reading", "reading alone", "limit", "limits/reading.py"),
    Contestant(
        "encoding", "encoding alone, from memory", "limit", "limits/encoding.py", times_itself=True
    ),
    Contestant("writing", "writing alone, synced", "limit", "limits/writing.py", times_itself=True),
)
PEERS = (
    Contestant(
        "gigatoken",
        "gigatoken `encode_files` (in memory, writes nothing)",
        "peer",
        "peers/run_gigatoken.py",
        reads="tokens.bin",
        target=1.5,
        package="gigatoken",
    ),
    Contestant(
        "pool",
        "build-nanogpt's and llm.c's way (`Pool.imap` + tiktoken)",
        "peer",
        "peers/run_pool.py",
        python="peers",
        reads="npy",
        slow_mb_per_s=16,
        target=15,
        package="tiktoken",
    ),
    Contestant(
        "megatron",
        "the Megatron way (Pool over JSON lines + tiktoken)",
        "peer",
        "peers/run_megatron.py",
        python="peers",
        reads="*.bin",
        layout="jsonl",
        slow_mb_per_s=16,
        package="tiktoken",
    ),
    Contestant(
        "litdata",
        "litdata `optimize` (+ tiktoken)",
        "peer",
        "peers/run_litdata.py",
        python="peers",
        reads="litdata",
        slow_mb_per_s=12,
        package="litdata",
    ),
    Contestant(
        "datasets",
        "nanoGPT's way (`datasets.map` + tiktoken, memmap)",
        "peer",
        "peers/run_datasets.py",
        python="peers",
        reads="*.bin",
        slow_mb_per_s=8,
        target=25,
        package="datasets",
    ),
    Contestant(
        "tokenizers",
        "Hugging Face `tokenizers`, in batches",
        "peer",
        "peers/run_tokenizers.py",
        python="peers",
        reads="*.bin",
        slow_mb_per_s=5,
        package="tokenizers",
    ),
    Contestant(
        "datatrove",
        "datatrove",
        "peer",
        "peers/run_datatrove.py",
        python="peers",
        reads="tokens/*.ds",
        slow_mb_per_s=3.6,
        target=70,
        package="datatrove",
    ),
    Contestant(
        "dolma",
        "`dolma tokens`",
        "peer",
        "peers/run_dolma.py",
        python="dolma",
        reads="**/*.npy",
        layout="jsonl",
        slow_mb_per_s=3.3,
        target=70,
        package="dolma",
    ),
)
EVERYBODY = (TOKENMILL, *LIMITS, *PEERS)


def surroundings(folder: str, num_proc: int) -> dict[str, str]:
    """The environment: no network, caches in `folder`, as many threads as there are cores."""
    cache, tokenizer = os.path.join(folder, "tiktoken"), tokenizer_json(folder)
    os.makedirs(cache, exist_ok=True)
    os.makedirs(os.path.join(folder, "tmp"), exist_ok=True)
    for name in ("r50k_base", "cl100k_base", "o200k_base"):
        key = hashlib.sha1(TIKTOKEN_URL.format(name).encode()).hexdigest()
        shutil.copy(os.path.join(VOCAB, f"{name}.tiktoken"), os.path.join(cache, key))
    return {
        **os.environ,
        "TIKTOKEN_CACHE_DIR": cache,
        "HF_HOME": os.path.join(folder, "hf"),
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "DATA_OPTIMIZER_CACHE_FOLDER": os.path.join(folder, "tmp", "chunks"),
        "DATA_OPTIMIZER_DATA_CACHE_FOLDER": os.path.join(folder, "tmp", "data"),
        "TMPDIR": os.path.join(folder, "tmp"),
        "RAYON_NUM_THREADS": str(num_proc),
        "PEER_TOKENIZER": tokenizer,
    }


def tokenizer_json(folder: str) -> str:
    """gpt2 as a tokenizer.json, for those that take nothing else."""
    path = os.path.join(folder, "tokenizer.json")
    if not os.path.exists(path):
        os.makedirs(folder, exist_ok=True)
        script = os.path.join(ROOT, "tools", "peers", "gpt2_json.py")
        subprocess.run([sys.executable, script, path], check=True)
    return path
