"""tokenmill: raw text in, training-ready token shards out.

    tokenmill.prepare("corpus/*.parquet", "out", tokenizer="gpt2", format="nanogpt")
    tokenmill.get_encoding("gpt2").encode_ordinary("hello world")
    dataset.map(tokenmill.Tokenize("gpt2"), batched=True, num_proc=8)

Names are imported on first use: `import tokenmill` costs a millisecond.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenmill.config import Config as Config
    from tokenmill.encodings import Encoding as Encoding
    from tokenmill.encodings import get_encoding as get_encoding
    from tokenmill.manifest import Manifest as Manifest
    from tokenmill.run import prepare as prepare
    from tokenmill.tokenize import Tokenize as Tokenize

__version__ = "0.1.0"

_HOMES = {
    "Config": "tokenmill.config",
    "Encoding": "tokenmill.encodings",
    "Manifest": "tokenmill.manifest",
    "Tokenize": "tokenmill.tokenize",
    "get_encoding": "tokenmill.encodings",
    "prepare": "tokenmill.run",
}
__all__ = ["Config", "Encoding", "Manifest", "Tokenize", "__version__", "get_encoding", "prepare"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
