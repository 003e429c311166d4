"""Encodes documents again with the reference, not with the engine."""

from __future__ import annotations

import concurrent.futures
import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.dataset.made_with import is_same, made_with_of, model_in_cache, vocabulary_file
from tokenmill.dataset.manifest import Manifest
from tokenmill.dataset.verify.source_corpus import NotAtHand
from tokenmill.encodings import Encoding, EncodingId, get_encoding
from tokenmill.encodings.loading import reference_of
from tokenmill.encodings.reference import NOT_FAILURES
from tokenmill.errors import ConfigError, IntegrityError

Ids = npt.NDArray[np.int64]
_AT_ONCE = 32  # documents per thread call: a call costs as much as a short document
_LIBRARIES = {
    "tiktoken": "tiktoken",
    "tekken": "tiktoken",
    "huggingface": "tokenizers",
    "sentencepiece": "tokenizers",
    "sentencepiece-library": "sentencepiece",
    "vocab-merges": "tokenizers",
}


class Reencoder:
    """Encodes documents with their EOT and BOS ids in threads: the reference releases the GIL."""

    def __init__(
        self,
        identity: EncodingId,
        made_as: Mapping[str, Any],
        pool: concurrent.futures.ThreadPoolExecutor,
    ) -> None:
        """`made_as` is the identity in the manifest."""
        options = made_as["options"]
        eot = options["eot"]
        self._identity = identity
        self._reference = reference_of(identity)
        self._before = [identity.eot_token] if eot in ("prepend", "both") else []
        self._after = [identity.eot_token] if eot in ("append", "both") else []
        if options.get("bos"):
            self._before = [made_as["encoding"]["bos_token"]]
        self._pool = pool
        self.num_by_engine = 0  # documents that the reference could not encode

    @property
    def name(self) -> str:
        return _LIBRARIES.get(self._identity.kind, self._identity.kind)

    def documents(self, texts: pa.LargeStringArray) -> Iterator[Ids]:
        some = [texts[at : at + _AT_ONCE] for at in range(0, len(texts), _AT_ONCE)]
        for documents in self._pool.map(self._documents, some):
            yield from documents

    def _documents(self, texts: pa.LargeStringArray) -> list[Ids]:
        return [self._document(text) for text in texts.to_pylist()]

    def _document(self, text: str) -> Ids:
        try:
            ids = self._reference.encode_ordinary(text)
        except NOT_FAILURES:
            raise
        except BaseException:  # a panic of the reference, which the engine did not share
            self.num_by_engine += 1
            ids = Encoding(self._identity).encode_ordinary_batch([text])[0]
        return np.array([*self._before, *ids, *self._after], np.int64)


def identity_of_tokenizer(manifest: Manifest, named: EncodingId | None) -> EncodingId:
    """The encoding that made the tokens: the one the user named, or a builtin or cached one. Raises
    NotAtHand if there is neither."""
    if named is not None:
        return named
    made_with = made_with_of(manifest.identity["encoding"])
    # A manifest names an encoding, never a file to read.
    if os.sep not in made_with.name and not os.path.exists(made_with.name):
        try:
            found = get_encoding(
                made_with.name, eot=made_with.eot, bos=made_with.bos_option
            ).identity
        except (ConfigError, IntegrityError):
            found = None
        if found is not None and is_same(found, made_with):
            return found
    elif (model := model_in_cache(made_with)) is not None:
        return model.identity
    raise NotAtHand(
        f"its tokenizer does not come with the package: {vocabulary_file(made_with)}",
        hint="--tokenizer FILE, with the path of the same file",
    )
