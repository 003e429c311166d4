"""The interface of every output format, ours or a plugin's.

All formats assemble a shard the same way, as little-endian tokens in a file (assemble/). A format
adds what surrounds them:

    header    bytes before the tokens, where a shard is a header and then its tokens (is_raw)
    write     the shard's other files (an index beside it), or the shard itself where it is not raw
    index     files that list a split's shards, written last

and reads its own and other people's files back: `find` the shards of a dataset, `open` one of them.
It reads through `Files`, so it does not know whether they are files or objects in a store.
Their content may be hostile: for any bad bytes `open` raises IntegrityError naming the file, and it
never allocates more than the file's own size justifies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Protocol

from tokenmill.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

DTYPE_BYTES = {"uint16": 2, "uint32": 4}


@dataclass(frozen=True, slots=True)
class Defaults:
    """What the format's own trainer expects, unless the user says otherwise."""

    eot: str
    val: str
    empty: str = "drop"
    val_fraction: float = 0.0005
    shard_tokens: int | None = None  # None: one shard per split
    name: str | None = None  # the stem of shard names; None: the names are fixed
    seq_len: int = 0  # tokens per sample; 0: samples are documents, or the format has none


@dataclass(frozen=True, slots=True)
class Traits:
    """What the format can hold."""

    boundaries: bool = False  # where documents end: shards are then cut between documents
    samples: bool = False  # --seq-len applies
    one_file: bool = False  # one file per split whatever its size
    is_raw: bool = True  # a shard is a header and then its tokens
    narrow_vocab: int = 1 << 16  # vocabularies up to this size are written as uint16


@dataclass(frozen=True, slots=True)
class Layout:
    """How token streams become shards: plain values."""

    format: str
    name: str
    dtype: str  # uint16 or uint32: how wide a token is
    shard_tokens: int | None
    seq_len: int  # 0: samples are documents, or the format has none
    first_shard_is_val: bool
    eot_id: int
    encoding: str  # its name, for formats that note it
    # Whether the format itself stores document boundaries, besides EOT ids.
    has_boundaries: bool


def require_shards_fit(layout: Layout, most: int, limit: str) -> None:
    """Raise ConfigError if a shard may have more than `most` tokens; `limit` says why it must
    not."""
    if layout.shard_tokens is not None and layout.shard_tokens > most:
        raise ConfigError(
            f"{limit}: {layout.shard_tokens:,} {layout.dtype} tokens do not fit",
            hint=f"--shard-tokens {min(most, 1_000_000_000)}",
        )


@dataclass(frozen=True, slots=True)
class SideFile:
    """A file that belongs to shards but holds no tokens of its own."""

    name: str
    num_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Shard:
    """A finished shard. `num_documents` is None if the format does not state it."""

    name: str
    split: str
    num_tokens: int
    num_eot: int
    num_documents: int | None
    num_bytes: int
    sha256: str | tuple[str, ...]  # one per piece (hashing.PIECE_BYTES) of a larger file
    marks: tuple[tuple[int, int], ...] = ()  # (EOT ids before, token), every 16M tokens
    side_files: tuple[SideFile, ...] = ()


@dataclass(frozen=True)
class Contents:
    """The content of one shard, for `Format.write`. Arrays are mapped: read them in pieces."""

    name: str
    split: str
    tokens: npt.NDArray[np.unsignedinteger]
    lengths: npt.NDArray[np.uint32] | None  # in tokens, of its documents; with has_boundaries
    first_document: int  # the number of its first document in the split; with has_boundaries
    layout: Layout


class File(Protocol):
    """A new file: it gets its name when it is whole."""

    def write(self, data: Any) -> None:
        """Append anything with the buffer protocol."""


# Makes a new file of the dataset, by its name relative to the folder; use it in a `with`.
Create = Callable[[str], AbstractContextManager[File]]


class Files(Protocol):
    """The files of a dataset: in a local folder (storage/folder_files.py), or objects below a URL
    (storage/object_files.py). Names are relative, with "/" between parts.

    Raises IntegrityError for a file outside the folder, or one that is not regular. Otherwise
    errors of a local file are OSError, as from `open`; those of an object are ours.
    """

    label: str  # the folder or URL, as the user named it
    is_local: bool  # if not, bytes come over a network, and few should be read

    def path_of(self, name: str) -> str:
        """The file's path or URL, for messages."""

    def names(self) -> list[str]:
        """All names, of any kind of file, sorted; one level of subfolders."""

    def has(self, name: str) -> bool:
        """Whether there is something of that name."""

    def size(self, name: str) -> int | None:
        """The size in bytes; None if there is no regular file of that name."""

    def sizes(self, names: Sequence[str]) -> list[int | None]:
        """The size of each, quickly for thousands of them."""

    def stamp(self, name: str) -> str:
        """Changes whenever the file does: from its size and time, or an object's tag."""

    def local_path(self, name: str) -> str | None:
        """The local path, for libraries that open paths; None for an object."""

    def open(self, name: str) -> IO[bytes]:
        """The file, for random access."""

    def in_order(self, name: str) -> IO[bytes]:
        """The file, for reading from beginning to end in large pieces; unbuffered."""

    def array(
        self, name: str, dtype: np.dtype[Any], offset: int, count: int
    ) -> npt.NDArray[np.integer]:
        """The numbers from byte `offset`: a map, or an array that fetches a slice when it is taken.
        There must be at least one, and the file must hold all of them."""

    def held(self, name: str) -> AbstractContextManager[None]:
        """Keeps an object in memory, unless it is too large, for callers that read it twice."""


@dataclass(frozen=True, slots=True)
class FoundShard:
    name: str  # relative to the folder, with "/" between parts
    split: str


class ShardReader(Protocol):
    """An open shard."""

    dtype: str  # NumPy's name for what is in the file: uint16, int32 ...
    num_tokens: int
    has_boundaries: bool  # whether it says where documents end

    def tokens(self, start: int, stop: int) -> npt.NDArray[np.integer]:
        """Tokens `start` to `stop` of the shard: a view or a copy."""

    def ends(self) -> npt.NDArray[np.int64] | None:
        """Where each document ends, in tokens; None without `has_boundaries`."""


class Format(Protocol):
    """The methods with a body are defaults: a format of bare tokens that can hold anything."""

    name: str
    trainers: str  # the trainers that read it
    files: str  # the file names, for people
    pattern: str  # the file names as a regular expression; {name} is the stem
    defaults: Defaults
    traits: Traits

    def shard_name(self, name: str, split: str, index: int) -> str:
        """The name of a split's shard number `index`, relative to the folder; `name` is the stem.
        Where the layout has one shard per split, `index` is 0."""

    def check(self, layout: Layout) -> None:
        """Raise ConfigError, before work begins, for content that the format cannot hold."""
        return

    def header(self, num_tokens: int, dtype: str) -> bytes:
        """The bytes before the tokens, of the same length for any `num_tokens` up to a shard's
        size; empty if the format is not raw."""
        return b""

    def write(self, contents: Contents, create: Create) -> None:
        """Write the shard's files besides a raw shard itself."""
        return

    def index(self, split: str, shards: Sequence[Shard], layout: Layout) -> dict[str, bytes]:
        """Files, by name, that list the shards of a split; `shards` is in order."""
        return {}

    def find(self, files: Files, names: Sequence[str]) -> list[FoundShard]:
        """The shards of this format among the files called `names`, in the trainer's order; empty
        if there are none or they are another format's."""

    def open(self, files: Files, name: str, dtype: str | None) -> ShardReader:
        """The shard of that name. `dtype` is what the user or the manifest says, needed only where
        the file does not. Raises IntegrityError if it is not whole."""
