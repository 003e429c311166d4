"""A folder with the corpus, what is expected of it, and room for one run at a time."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections import Counter
from typing import Any

import numpy as np
from peers import corpus, gpt2_json, judge, processes
from peers.contestants import HERE, ROOT, Peer, install_faulty_reader

KEPT_ENVIRONMENT = ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH")


class Stage:
    """Output, caches and logs of a run go to `disk`, which may be a small one; inputs do not."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.texts = corpus.made_texts()
        self.documents = [raw(ids) for ids in corpus.oracle.ids(self.texts)]
        corpus.write_corpus(self.path("in"), self.texts)
        corpus.fill_tiktoken_cache(self.path("tiktoken"))
        gpt2_json.write_tokenizer_json(self.path("tokenizer.json"))
        install_faulty_reader(self.path("site"))
        os.makedirs(self.path("tmp"))
        self.disk = self.path("disk")
        self.out = self.path("disk/out")
        self.log = self.path("log")
        self.said = self.path("said")

    def path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def environment(self, **more: str) -> dict[str, str]:
        return {
            **{name: os.environ[name] for name in KEPT_ENVIRONMENT if name in os.environ},
            "TMPDIR": self.path("tmp"),
            "TIKTOKEN_CACHE_DIR": self.path("tiktoken"),
            "HF_HOME": self.path("disk/hf"),
            "HF_HUB_OFFLINE": "1",
            "PYTHONPATH": self.path("site") + os.pathsep + HERE,
            "PEER_TOKENIZER": self.path("tokenizer.json"),
            "PEER_LOG": self.log,
            **more,
        }

    def source(self, peer: Peer, name: str = "in") -> str:
        """The corpus, or a faulty one, as this contestant gets it: a fault is in it once."""
        if peer.copies == 1:
            return self.path(name)
        target = self.path(f"{name}-{peer.copies}")
        shutil.rmtree(target, ignore_errors=True)
        return corpus.repeated(self.path(name), self.path("in"), target, peer.copies)

    def expected(self, peer: Peer) -> Counter[bytes]:
        return Counter(dict.fromkeys(self.documents, peer.copies))

    def run(
        self,
        peer: Peer,
        source: str,
        seconds: float,
        fails: bool = False,
        environment: dict[str, str] | None = None,
        **options: Any,
    ) -> processes.Ending:
        if os.path.exists(self.log):
            os.unlink(self.log)
        return processes.run(
            peer.command(source, self.out, fails),
            self.environment(**environment or {}),
            self.said,
            seconds,
            **options,
        )

    def look(self, peer: Peer, expected: Counter[bytes]) -> judge.Left:
        """What the contestant's reader finds. It gets a copy: there are readers that write."""
        copy, tokens = self.path("copy"), self.path("tokens")
        if os.path.exists(self.out):
            shutil.copytree(self.out, copy)
        try:
            return judge.look(peer.reader(copy, tokens), self.environment(), tokens, expected)
        finally:
            shutil.rmtree(copy, ignore_errors=True)

    def idle_seconds(self) -> float:
        """Since a document was last begun."""
        return time.time() - os.path.getmtime(self.log) if os.path.exists(self.log) else 0.0

    def words(self) -> str:
        """What the run printed."""
        with open(self.said, errors="replace") as file:
            return self.cleaned(file.read())

    def cleaned(self, said: str) -> str:
        """Without the names of this machine's folders."""
        for path, name in ((self.folder, "WORK"), (ROOT, "REPO"), (sys.base_prefix, "PYTHON")):
            said = said.replace(path, name)
        return said


def raw(ids: list[int]) -> bytes:
    return np.array(ids, np.uint16).tobytes()
