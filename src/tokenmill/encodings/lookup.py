"""From what a user types to an encoding: a name, or the path of a vocabulary file."""

from __future__ import annotations

import os
import re
from pathlib import Path

from tokenmill.encodings.builtin import ENCODING_NAMES, shipped_identity
from tokenmill.encodings.encoding import Encoding
from tokenmill.encodings.tiktoken import rank_file_identity
from tokenmill.encodings.tokenizer_json import tokenizer_json_identity
from tokenmill.errors import ConfigError, unknown_name
from tokenmill.plugins import outside, outside_names

# Of entry points: functions of plugins that return an Encoding, made by `get_encoding` from the
# plugin's vocabulary file.
GROUP = "tokenmill.encodings"
_FILE_ENDINGS = (".tiktoken", ".json", ".model")


def get_encoding(
    name: str | os.PathLike[str], *, pattern: str | None = None, eot: str | int | None = None
) -> Encoding:
    """The encoding of that name, or of the vocabulary file at that path.

    A path leads to a `.tiktoken` file of ranks (then `pattern` is needed), a Hugging Face
    `tokenizer.json`, or a folder that holds one. `eot` is the special token that ends a document,
    by its text or its id, if it is not the usual one. Never uses the network.
    """
    eot = None if eot is None else str(eot)
    if isinstance(name, str) and name in ENCODING_NAMES:
        return Encoding(shipped_identity(name, pattern, eot))
    if isinstance(name, str) and name in outside_names(GROUP):
        found: Encoding = outside(GROUP, name)()
        return found
    path = Path(name).expanduser().absolute()
    if path.is_dir() and (path / "tokenizer.json").is_file():
        path /= "tokenizer.json"
    if not path.is_file():
        raise _no_such_encoding(os.fspath(name))
    if path.suffix == ".json":
        return Encoding(tokenizer_json_identity(path, pattern, eot))
    return Encoding(rank_file_identity(path, pattern, eot))


def _no_such_encoding(name: str) -> ConfigError:
    if re.fullmatch(r"[\w.-]+/[\w.-]+", name) and not name.endswith(_FILE_ENDINGS):
        folder = name.partition("/")[2]
        return ConfigError(
            f"{name}: no such vocabulary file; models are not fetched from the Hugging Face Hub",
            hint=f"hf download {name} tokenizer.json --local-dir {folder}, "
            f"then: --tokenizer {folder}/tokenizer.json",
        )
    if os.sep in name or name.endswith(_FILE_ENDINGS):
        return ConfigError(
            f"{name}: no such vocabulary file", hint=f"is it in {os.path.abspath('.')}? see: ls"
        )
    error = unknown_name("encoding", name, (*ENCODING_NAMES, *outside_names(GROUP)))
    return ConfigError(
        f"{error.message}, or a path to a .tiktoken file or a tokenizer.json", hint=error.hint
    )
