"""The most tokens that files can hold, by their size alone; None if the size gives no bound.

A tiktoken encoding cuts a text's bytes into tokens, so there is at most one token for each byte. A
tokenizer.json may rewrite the text first and make it longer. A plain file's text is no longer than
the file: JSON's escapes are longer than the characters they encode. A compressed file, and a table
whose pages hold repeated texts once, can expand to any amount.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tokenmill.config import Config
from tokenmill.corpus.spans import Input
from tokenmill.encode.documents import specials_per_document
from tokenmill.encodings import EncodingId
from tokenmill.encodings.patterns import pattern_named

REPLACED_BYTES = 3  # U+FFFD, for a single bad byte


@dataclass(frozen=True, slots=True)
class Most:
    num_tokens: int  # with EOT
    num_documents: int
    num_bad: int  # --max-bad-fraction bounds it in a run that succeeds


def is_plain(source: Input) -> bool:
    """Whether reading can start at any byte."""
    return source.kind in ("jsonl", "text") and not source.compression


def most_of(inputs: Sequence[Input], config: Config, encoding: EncodingId) -> Most | None:
    """`config` is resolved."""
    if encoding.kind != "tiktoken" or not all(map(is_plain, inputs)):
        return None
    if config.template is not None or config.lists is not None:  # they add text, or documents
        return None
    if pattern_named(encoding.pattern, encoding.name).is_nfc:  # NFC can lengthen a text
        return None
    num_bytes = sum(source.num_bytes for source in inputs)
    num_documents = sum(_most_documents(source, config) for source in inputs)
    if config.limit_docs is not None:
        num_documents = min(num_documents, config.limit_docs)
    text_bytes = num_bytes * (REPLACED_BYTES if config.on_bad_document == "replace" else 1)
    eots = specials_per_document(config.eot, config.bos) * num_documents
    num_bad = math.ceil(min(num_documents, config.max_bad_fraction * num_bytes))
    return Most(text_bytes + eots, num_documents, num_bad)


def _most_documents(source: Input, config: Config) -> int:
    """The number of documents if each is as short as possible."""
    least = 0 if config.empty == "keep" else 1
    if source.kind == "jsonl":
        least += len(f'{{"{config.text_column}":""}}\n'.encode())
    elif config.separator is None:
        return 1
    else:
        least += len(config.separator.encode())
    return source.num_bytes // least + 1
