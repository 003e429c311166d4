"""The arguments of `encode_slice` besides the slice, and its progress reports: plain data.

Light to import, so that runners can start their workers before this process loads anything heavy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from tokenmill.corpus.readers import ReadOptions
from tokenmill.corpus.spans import Input
from tokenmill.encodings import EncodingId

if TYPE_CHECKING:
    from tokenmill.config import Config
    from tokenmill.corpus.plan import Plan


@dataclass(frozen=True, slots=True)
class Job:
    """What `encode_slice` needs besides the slice: plain values, the same for every slice."""

    work: str  # the folder that holds parts/ and records/
    plan_id: str
    encoding: EncodingId
    read: ReadOptions
    dtype: str
    eot: str
    bos: str | None  # "prepend", or None
    empty: str
    val_fraction: float  # 0: no document is held out
    seed: int
    num_buckets: int  # 0: not shuffled
    on_bad_document: str
    dedup: bool = False  # leave out documents with a text that came before
    read_by_source: dict[str, ReadOptions] = field(default_factory=dict)  # of named sources

    @staticmethod
    def of(config: Config, encoding: EncodingId, plan: Plan, work: str) -> Job:
        """The job of a plan. `config` must be resolved."""
        from tokenmill.encode.buckets import num_buckets_of

        types, by_source = plan.kept_types, config.by_source()
        return Job(
            work=work,
            plan_id=plan.plan_id,
            encoding=encoding,
            read=ReadOptions.of(config, types),
            dtype=config.dtype,
            eot=str(config.eot),
            bos=config.bos,
            empty=str(config.empty),
            val_fraction=config.val_fraction or 0.0,
            seed=config.seed,
            num_buckets=num_buckets_of(config, plan.text_bytes),
            on_bad_document=config.on_bad_document,
            read_by_source={n: ReadOptions.of(own, types) for n, own in by_source.items() if n},
            dedup=config.dedup is not None,
        )

    def read_of(self, source: Input) -> ReadOptions:
        return self.read_by_source.get(source.source, self.read)

    def to_plain(self) -> dict[str, Any]:
        return {**asdict(self), "encoding": self.encoding.to_plain()}

    @staticmethod
    def from_plain(plain: dict[str, Any]) -> Job:
        encoding = EncodingId.from_plain(plain["encoding"])
        by_source = {name: ReadOptions(**o) for name, o in plain["read_by_source"].items()}
        own = {"encoding": encoding, "read": ReadOptions(**plain["read"])}
        return Job(**{**plain, **own, "read_by_source": by_source})


@dataclass(frozen=True, slots=True)
class Step:
    """The progress of a slice: the rows about to be encoded, and the work since the last step."""

    span: int  # position in slice.spans
    row: int  # of the span
    num_rows: int
    done_rows: int = 0
    done_tokens: int = 0
    done_bytes: int = 0


Report = Callable[[Step], None]


@dataclass(frozen=True, slots=True)
class Caution:
    """How to encode a slice that killed its workers: what to skip, in which steps."""

    skip: dict[tuple[int, int], str] = field(default_factory=dict)  # (span, row) -> reason
    one_by_one: bool = False  # report and encode documents one at a time, to see which one kills


NO_CAUTION = Caution()
