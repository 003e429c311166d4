"""tokenmill: raw text in, training-ready token shards out.

    tokenmill.estimate("corpus/*.parquet").num_tokens
    tokenmill.prepare("corpus/*.parquet", "out", tokenizer="gpt2", format="nanogpt")
    tokenmill.verify("out").is_whole
    tokenmill.convert("out", "other", format="megatron")
    tokenmill.push("out", "my-name/mine")
    tokenmill.open("out")["train"].document(0)
    tokenmill.Loader("out", seq_len=1024, batch_size=32)
    tokenmill.pack("out", seq_len=1024)["train"].fill
    tokenmill.get_encoding("gpt2").encode_ordinary("hello world")
    dataset.map(tokenmill.Tokenize("gpt2"), batched=True, num_proc=8)

Names are imported on first use: `import tokenmill` costs a millisecond.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenmill.api.convert import convert as convert
    from tokenmill.api.estimate import estimate as estimate
    from tokenmill.api.open import open as open
    from tokenmill.api.pack import pack as pack
    from tokenmill.api.prepare import prepare as prepare
    from tokenmill.api.push import push as push
    from tokenmill.api.verify import VerifyReport as VerifyReport
    from tokenmill.api.verify import verify as verify
    from tokenmill.config import Config as Config
    from tokenmill.dataset.manifest import Manifest as Manifest
    from tokenmill.encode.datasets_map import Tokenize as Tokenize
    from tokenmill.encodings import Encoding as Encoding
    from tokenmill.encodings import get_encoding as get_encoding
    from tokenmill.errors import ConfigError as ConfigError
    from tokenmill.errors import ConflictError as ConflictError
    from tokenmill.errors import InputError as InputError
    from tokenmill.errors import IntegrityError as IntegrityError
    from tokenmill.errors import NetworkError as NetworkError
    from tokenmill.errors import OutputError as OutputError
    from tokenmill.errors import TokenmillError as TokenmillError
    from tokenmill.errors import UncheckedError as UncheckedError
    from tokenmill.errors import WorkerError as WorkerError
    from tokenmill.estimate import Estimate as Estimate
    from tokenmill.loader.loader import Loader as Loader

__version__ = "0.1.0"

_HOMES = {
    "Config": "tokenmill.config",
    "ConfigError": "tokenmill.errors",
    "ConflictError": "tokenmill.errors",
    "Encoding": "tokenmill.encodings",
    "Estimate": "tokenmill.estimate",
    "InputError": "tokenmill.errors",
    "IntegrityError": "tokenmill.errors",
    "Loader": "tokenmill.loader.loader",
    "Manifest": "tokenmill.dataset.manifest",
    "NetworkError": "tokenmill.errors",
    "OutputError": "tokenmill.errors",
    "Tokenize": "tokenmill.encode.datasets_map",
    "TokenmillError": "tokenmill.errors",
    "UncheckedError": "tokenmill.errors",
    "VerifyReport": "tokenmill.api.verify",
    "WorkerError": "tokenmill.errors",
    "convert": "tokenmill.api.convert",
    "estimate": "tokenmill.api.estimate",
    "get_encoding": "tokenmill.encodings",
    "open": "tokenmill.api.open",
    "pack": "tokenmill.api.pack",
    "prepare": "tokenmill.api.prepare",
    "push": "tokenmill.api.push",
    "verify": "tokenmill.api.verify",
}
__all__ = [*_HOMES, "__version__"]  # noqa: PLE0604 (strings, all of them)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)


class _Package(ModuleType):
    """Keeps `tokenmill.estimate` a function: importing the subpackage of that name would replace
    it, as Python does for every submodule."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
