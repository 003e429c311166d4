"""A dataset opened for reading: `tokenmill.open`."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tokenmill.dataset.index_cache import IndexCache
from tokenmill.dataset.inspect.folder import LookedInto, look_into
from tokenmill.dataset.manifest import Manifest, manifest_sha256_of
from tokenmill.dataset.split import Split
from tokenmill.encodings import Encoding, EncodingId
from tokenmill.errors import ConfigError, ConflictError, unknown_name

ROWS_SUFFIX = ".rows"  # of plans (loader/packing/), which are not part of the content


@dataclass(frozen=True, slots=True)
class Opening:
    """How a dataset was opened: what another process needs to open it."""

    path: str
    format_name: str | None = None
    dtype: str | None = None
    tokenizer: str | Encoding | None = None
    pattern: str | None = None
    eot_token: str | None = None
    eot: str | None = None


def opened(path: str, **options: Any) -> OpenedDataset:
    """Open a dataset for reading; options are the fields of Opening."""
    return reopened(Opening(path, **options))


def reopened(opening: Opening) -> OpenedDataset:
    looked = look_into(
        opening.path,
        format_name=opening.format_name,
        dtype=opening.dtype,
        tokenizer=opening.tokenizer,
        pattern=opening.pattern,
        eot_token=opening.eot_token,
        eot=opening.eot,
    )
    return OpenedDataset(opening, looked)


def _reopened_same(opening: Opening, content_key: Any) -> OpenedDataset:
    if (found := reopened(opening)).content_key != content_key:
        raise ConflictError(
            f"{opening.path} was replaced since it was opened", hint="open the dataset again"
        )
    return found


class OpenedDataset:
    """Its splits by name: `data["train"]`. Use it in a `with`, or `close()` it; arrays that it
    returned stay valid."""

    def __init__(
        self, opening: Opening, looked: LookedInto, cache: IndexCache | None = None
    ) -> None:
        self.opening = opening
        self.looked = looked  # as other commands see the dataset
        self._cache = IndexCache() if cache is None else cache
        self._opened: dict[str, Split] = {}

    @property
    def made_with(self) -> EncodingId | None:
        """The tokenizer that made the tokens, if it is known."""
        return self.looked.made_with

    @property
    def path(self) -> str:
        """The folder or URL, as the user named it."""
        return self.looked.dataset.name

    @property
    def manifest(self) -> Manifest | None:
        """What `tokenmill.json` says; None for shards that tokenmill did not write."""
        return self.looked.dataset.manifest

    @property
    def format(self) -> str:
        return self.looked.dataset.format.name

    @property
    def splits(self) -> tuple[str, ...]:
        return tuple(self.looked.dataset.streams)

    @property
    def num_tokens(self) -> int:
        return self.looked.dataset.num_tokens

    def __getitem__(self, split: str) -> Split:
        if not isinstance(split, str):
            raise ConfigError(
                f"a dataset has splits by name, and {split!r} is none",
                hint=f"documents are in a split: data[{self.splits[0]!r}][0]",
            )
        if split not in self.looked.dataset.streams:
            raise unknown_name(f"split of {self.path}", split, self.splits)
        if split not in self._opened:
            self._opened[split] = Split(self.looked, split, self._key_of_content, self._cache)
        return self._opened[split]

    def __iter__(self) -> Iterator[str]:
        return iter(self.splits)

    def __len__(self) -> int:
        return len(self.splits)

    def close(self) -> None:
        """Close all files. Reading again raises ConfigError."""
        for split in self.splits:
            self[split].shards.close()

    def __enter__(self) -> OpenedDataset:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        """Other processes reopen it, and get no other."""
        return _reopened_same, (self.opening, self.content_key)

    def _key_of_content(self) -> Any:
        return self.content_key

    def __repr__(self) -> str:
        dataset, encoding = self.looked.dataset, self.looked.made_with
        splits = ", ".join(f"{name} {s.num_tokens:,}" for name, s in dataset.streams.items())
        made = f", {encoding.name}" if encoding is not None else ""
        ours = "" if self.manifest is not None else ", no manifest"
        width = f" read as {dataset.dtype}" if "dtype" in dataset.inferred else ""
        return f"<tokenmill dataset {self.path}: tokens {splits}; {self.format}{width}{made}{ours}>"

    @functools.cached_property
    def content_key(self) -> Any:
        """Identifies the files' content: by the manifest, or else by their sizes and times."""
        if self.manifest is not None:
            return manifest_sha256_of(self.manifest.to_plain())
        files = self.looked.dataset.files
        names = [
            name
            for name in files.names()
            if not name.endswith(ROWS_SUFFIX) and files.size(name) is not None
        ]
        place = os.path.realpath(self.path) if files.is_local else self.path
        return [place, *([name, files.stamp(name)] for name in names)]
