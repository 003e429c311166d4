"""Who is broken: how each is started, how far it is, which process to kill, how it is read."""

from __future__ import annotations

import glob
import json
import os
import re
from dataclasses import dataclass

from peers.corpus import NUM_DOCUMENTS
from peers.processes import cpu_ticks, descendants

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
PEERS_PYTHON = os.path.join(ROOT, ".venv-peers", "bin", "python")
OWN_BIN = os.path.join(ROOT, ".venv", "bin")


@dataclass(frozen=True)
class Peer:
    """A peer's program notes each document that it encodes: mishap.py."""

    key: str
    label: str
    packages: tuple[str, ...]
    asked: str  # what it was asked to do, for the results
    documented: str  # what its documentation says of faults, for the results
    final: str | None = None  # of its output, what is begun when all documents are encoded
    encodes: bool = True  # it, and not the user's code, calls the tokenizer
    copies: int = 1  # of the corpus

    @property
    def python(self) -> str:
        return PEERS_PYTHON

    @property
    def has_final_stage(self) -> bool:
        return self.final is not None

    def command(self, source: str, out: str, fails: bool) -> list[str]:
        return [PEERS_PYTHON, os.path.join(HERE, f"run_{self.key}.py"), "write", source, out]

    def reader(self, out: str, tokens: str) -> list[str]:
        return [PEERS_PYTHON, os.path.join(HERE, f"run_{self.key}.py"), "read", out, tokens]

    def progress(self, out: str, log: str) -> float:
        """The share of the documents that a process has begun to encode; 1 + if it is past that."""
        if self.final and any(map(os.path.getsize, glob.glob(os.path.join(out, self.final)))):
            return 1.1
        return min(1.0, num_lines(log) / NUM_DOCUMENTS)

    def worker(self, pid: int, log: str) -> int | None:
        with open(log) as file:
            last = int(file.read().split()[-1])
        return last if last in descendants(pid) else None

    def num_encoded(self, log: str, said: str) -> float:
        """The share of the documents that a run encoded itself."""
        return num_lines(log) / NUM_DOCUMENTS


@dataclass(frozen=True)
class Tokenmill(Peer):
    """Its program is the command line; how far it is can be seen in its work folder."""

    @property
    def python(self) -> str:
        return os.path.join(OWN_BIN, "python")

    @property
    def has_final_stage(self) -> bool:
        return True

    def command(self, source: str, out: str, fails: bool) -> list[str]:
        prepare = [os.path.join(OWN_BIN, "tokenmill"), "prepare", "-o", out, "--num-proc", "2"]
        if fails:
            return [*prepare, f"{source}/*.jsonl", "--input-format", "faulty"]
        return [*prepare, source]

    def reader(self, out: str, tokens: str) -> list[str]:
        """As nanoGPT reads it: by memmap, without a look at tokenmill.json."""
        return [PEERS_PYTHON, os.path.join(HERE, "run_datasets.py"), "read", out, tokens]

    def progress(self, out: str, log: str) -> float:
        work = os.path.join(out, ".tokenmill")
        try:
            with open(os.path.join(work, "plan.json")) as file:
                num_slices = len(json.load(file)["slices"])
            num_records = len(glob.glob(os.path.join(work, "*", "records", "*.json")))
        except (OSError, ValueError):
            return 0.0
        return num_records / num_slices if num_records < num_slices else 1.1

    def worker(self, pid: int, log: str) -> int | None:
        workers = descendants(pid)
        return max(workers, key=cpu_ticks) if workers else None

    def num_encoded(self, log: str, said: str) -> float:
        found = re.search(r"resuming: (\d+) of (\d+) slices are done", said)
        return 1 - int(found[1]) / int(found[2]) if found else 1.0


def install_faulty_reader(site: str) -> None:
    """As a package that is installed: a folder for PYTHONPATH with its metadata."""
    folder = os.path.join(site, "faulty_reader-1.0.dist-info")
    os.makedirs(folder)
    with open(os.path.join(folder, "METADATA"), "w") as file:
        file.write("Metadata-Version: 2.1\nName: faulty-reader\nVersion: 1.0\n")
    with open(os.path.join(folder, "entry_points.txt"), "w") as file:
        file.write("[tokenmill.readers]\nfaulty = faulty_reader:FaultyReader\n")


def num_lines(log: str) -> int:
    try:
        with open(log, "rb") as file:
            return file.read().count(b"\n")
    except FileNotFoundError:
        return 0


CONTESTANTS = (
    Peer(
        key="datatrove",
        label="datatrove",
        packages=("datatrove", "tokenizers"),
        asked="LocalPipelineExecutor(tasks=16, workers=2) of JsonlReader, DocumentTokenizer("
        "eos_token='<|endoftext|>', seed=1); then DocumentTokenizerMerger(seed=1), tasks=1; as its "
        "examples/tokenize_from_hf_to_s3.py. Read by DatatroveFolderDataset.",
        documented="Relaunch the exact same executor, and only tasks that were not completed run. "
        "(Its Slurm and Ray executors were not tried.)",
        final="dataset/*.ds",
    ),
    Peer(
        key="datasets",
        label="`datasets.map`, the nanoGPT way,",
        packages=("datasets", "tiktoken"),
        asked="load_dataset('json', num_proc=2), train_test_split, map(process, num_proc=2), then "
        "np.memmap(mode='w+') for each split; as nanoGPT's data/openwebtext/prepare.py. Read by "
        "np.memmap, both splits.",
        documented="map loads what its cache already holds; of the bin files nothing is said.",
        final="train.bin",
    ),
    Peer(
        key="mds",
        label="mosaicml-streaming `MDSWriter`",
        packages=("mosaicml-streaming", "tiktoken"),
        asked="with Pool(2) as pool, MDSWriter(out, columns={'tokens': 'ndarray:uint16'}, "
        "size_limit=1 << 20) as sink: for sample in pool.imap(encode, rows): sink.write(sample); "
        "as its guide to parallel conversion. Reading the input and encoding are the user's code. "
        "Read by LocalDataset.",
        documented="An output folder that is not empty is refused; exist_ok=True empties it first. "
        "The guide removes it before it begins.",
        encodes=False,
    ),
    Peer(
        key="litdata",
        label="litdata `optimize`",
        packages=("litdata", "tiktoken"),
        asked="optimize(fn=generator over a file's lines, inputs=files, chunk_size=1 << 17, "
        "item_loader=TokensLoader(), num_workers=2); as its README under LLM Pre-training. Reading "
        "the input and encoding are the user's code. Read by StreamingDataset.",
        documented="A folder that holds a dataset is refused without mode='append' or 'overwrite'. "
        "use_checkpoint=True resumes, but not for generators, which is what the README tokenizes "
        "with. Order is not kept by default.",
        encodes=False,
    ),
    Tokenmill(
        key="tokenmill",
        label="**tokenmill**",
        packages=("tokenmill",),
        asked="tokenmill prepare -o OUT --num-proc 2 IN; the corpus 32 times over, because once is "
        "less than a slice of work. For code that raises: a reader by an outside package. Read by "
        "np.memmap, as nanoGPT does, without a look at tokenmill.json.",
        documented="The same command continues a run that was interrupted, whatever interrupted "
        "it. A bad document is quarantined and counted. Special tokens in text are text.",
        copies=32,
    ),
)
