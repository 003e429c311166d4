"""The encoding that a user means: by its name, the path of a vocabulary file, or a model's name on
the Hugging Face Hub."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

from tokenmill.config import Config
from tokenmill.config.arguments import suggesting
from tokenmill.encodings.bos import with_bos
from tokenmill.encodings.encoding import Encoding
from tokenmill.encodings.hub_model import VOCABULARIES, HubModel
from tokenmill.encodings.identity import EncodingId
from tokenmill.encodings.published import ENCODING_NAMES, PUBLISHED
from tokenmill.encodings.sentencepiece import is_sentencepiece, sentencepiece_identity
from tokenmill.encodings.tekken import is_tekken, tekken_identity
from tokenmill.encodings.tiktoken import builtin_identity, rank_file_identity
from tokenmill.encodings.tokenizer_json import tokenizer_json_identity
from tokenmill.encodings.vocab_merges import is_vocab, vocab_merges_identity, vocab_of
from tokenmill.encodings.vocabulary_file import vocabulary_bytes
from tokenmill.errors import ConfigError, TokenmillError, unknown_name
from tokenmill.plugins import loaded_plugin, plugin_names


def encoding_of(config: Config) -> EncodingId:
    named = get_encoding(config.tokenizer, pattern=config.pattern, eot=config.eot_token).identity
    return with_bos(named, config.bos_token) if config.has_bos else named


# Entry points of plugins: functions that return an Encoding, made by `get_encoding` from the
# plugin's vocabulary file.
GROUP = "tokenmill.encodings"
_FILE_ENDINGS = (".tiktoken", ".json", ".model", ".txt")


@suggesting
def get_encoding(
    name: str | os.PathLike[str],
    *,
    pattern: str | None = None,
    eot: str | int | None = None,
    bos: str | int | None = None,
) -> Encoding:
    """The encoding of that name, or of the vocabulary file at that path.

    A path leads to a file of ranks, a Hugging Face `tokenizer.json`, a `vocab.json` with its
    `merges.txt`, a `tekken.json`, a SentencePiece `.model`, or a folder that holds one.
    `OWNER/NAME[@REVISION]`, unless it is a path, is a model on the Hub, the only name that may need
    the network, and that only once. Ranks of an unknown family need `pattern`, a name or a regular
    expression. `eot` is the special token that ends a document: its text, its id, or `TEXT=ID`,
    which ranks of an unknown family need. `bos` is the one that begins a document, if one is to.
    """
    found = _encoding_named(name, pattern, None if eot is None else str(eot))
    return found if bos is None else Encoding(with_bos(found.identity, str(bos)))


def _encoding_named(name: str | os.PathLike[str], pattern: str | None, eot: str | None) -> Encoding:
    if isinstance(name, str) and name in ENCODING_NAMES:
        return Encoding(builtin_identity(name, pattern, eot))
    if isinstance(name, str) and name in plugin_names(GROUP):
        plugin: Encoding = loaded_plugin(GROUP, name)()
        return plugin
    path = Path(name).expanduser().absolute()
    if path.is_dir():
        found = (path / file for file in VOCABULARIES)
        path = next((file for file in found if file.is_file()), path)
    if path.is_file():
        return Encoding(_file_identity(path, pattern, eot))
    if (model := _model_named(os.fspath(name))) is not None:
        return Encoding(_model_identity(model, model.vocabulary(), pattern, eot))
    raise _no_such_encoding(os.fspath(name))


def cached_model(name: str, *, pattern: str | None, eot: str) -> Encoding | None:
    """The encoding of a model whose vocabulary is in the Hub's cache; asks no server."""
    model = HubModel.parsed(name)
    if model is None:
        return None
    try:
        path = model.vocabulary(only_cached=True)
        return Encoding(_model_identity(model, path, pattern, eot))
    except TokenmillError:
        return None


def _model_named(name: str) -> HubModel | None:
    """The model of that name. A name whose first folder exists here is a mistyped path: None."""
    model = HubModel.parsed(name)
    return None if model is None or os.path.isdir(name.partition("/")[0]) else model


def _model_identity(
    model: HubModel, path: Path, pattern: str | None, eot: str | None
) -> EncodingId:
    return replace(_file_identity(path, pattern, eot), name=model.repo)


def _file_identity(path: Path, pattern: str | None, eot: str | None) -> EncodingId:
    if (vocab := vocab_of(path)) is not None and vocab.is_file():
        return vocab_merges_identity(vocab, pattern, eot)
    if path.suffix == ".json":
        return _json_identity(path, pattern, eot)
    if is_sentencepiece(vocabulary_bytes(path)):
        return sentencepiece_identity(path, pattern, eot)
    return rank_file_identity(path, pattern, eot)


def _json_identity(path: Path, pattern: str | None, eot: str | None) -> EncodingId:
    """Of a tekken.json, a vocab.json or a tokenizer.json, whatever its name."""
    try:
        plain = json.loads(vocabulary_bytes(path))
    except (ValueError, RecursionError):
        plain = None
    identity = tekken_identity if is_tekken(plain) else tokenizer_json_identity
    identity = vocab_merges_identity if is_vocab(plain) else identity
    return identity(path, pattern, eot)


def _no_such_encoding(name: str) -> ConfigError:
    for row in PUBLISHED:
        if name == row.name:
            recognised = f": the published file is recognised, sha256 {row.file_sha256[:12]}...;"
            is_ranks = row.kind == "ranks"
            return ConfigError(
                f"the vocabulary of {row.models} does not come with the package",
                hint=f"--tokenizer PATH/{row.file}{recognised if is_ranks else ','} or the model's "
                + ("tokenizer.json" if is_ranks else "name on the Hub: --tokenizer OWNER/NAME"),
            )
    if os.path.isdir(name):
        return ConfigError(
            f"{name}: a folder with none of {', '.join(VOCABULARIES)}",
            hint=f"name the file itself: --tokenizer {os.path.join(name, 'FILE')}",
        )
    if os.sep in name or name.endswith(_FILE_ENDINGS):
        return ConfigError(
            f"{name}: no such vocabulary file", hint=f"is it in {os.path.abspath('.')}? see: ls"
        )
    error = unknown_name("encoding", name, (*ENCODING_NAMES, *plugin_names(GROUP)))
    return ConfigError(
        f"{error.message}, or a path to a .tiktoken file, a tokenizer.json or a tekken.json, "
        "or the name of a model on the Hub, OWNER/NAME",
        hint=error.hint,
    )
