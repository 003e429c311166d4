"""A dataset whose text, ids, inputs and folder try to become part of the page that shows them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

import tokenmill

TEXTS = [
    "</div></article></main></body><script>alert(1)</script><img src=x onerror=alert(2)>",
    "\"><svg onload=alert(3)> ' onmouseover='alert(4)' <style>*{display:none}</style>",
    "]]> --> <!-- </title></style></textarea> &lt;b&gt; &#x3c;script&#x3e; javascript:alert(5)",
    "line\u2028separator \u2029 \u202egnp.exe\u202c \u2066isolate\u2069 \u200b\u200d zero \ufeff",
    "half an emoji 👩\u200d👩\u200d👧 🙂 e\u0301 عربى עברית 東京",
    "\x1b]0;title\x07\x1b[2J bell \x00 nul \x7f \x9b1m tab\t\r\n\n  <|endoftext|> as text",
    "<a href='http://example.com/'>x</a><iframe src=http://example.com></iframe>" * 40,
]
FOLDER = "<img src=x onerror=alert(9)> 'q\" $(x)"


def hostile_dataset(tmp_path: Path) -> str:
    """Ours, with a bad row, in a folder with a bad name."""
    corpus = tmp_path / "<script>alert(6)<"
    corpus.mkdir()
    lines = [json.dumps({"text": text}) for text in TEXTS * 2]
    data = "\n".join(lines).encode() + b'\n{"text": "<b onclick=alert(7)>\xff"}\n'
    (corpus / "<u>&.jsonl").write_bytes(data)
    out = str(tmp_path / FOLDER)
    tokenmill.prepare(str(corpus), out, val="none", num_proc=1, max_bad_fraction=1.0)
    return out


def loose_bytes(tmp_path: Path) -> str:
    """Someone's ids: bytes that are no character, ids that do not exist."""
    folder = tmp_path / "loose"
    folder.mkdir()
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 256, 3000).astype("<u2")
    ids[rng.integers(0, 3000, 40)] = 50256
    ids[::500] = 60_000
    ids[-1] = 50256
    ids.tofile(folder / "train.bin")
    (folder / "val.bin").write_bytes(b"")
    return str(folder)
