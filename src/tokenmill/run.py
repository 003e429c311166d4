"""One run: plan, encode, assemble, prove; over however many attempts it takes.

    OUT/tokenmill.json           the manifest: this folder is a finished dataset
    OUT/.tokenmill/plan.json     a run is under way: the same command continues it
    OUT/.tokenmill/records/      what is encoded      OUT/.tokenmill/cursor.json   what is assembled

Every attempt looks at these, in this order, and does what is missing. Nothing else is remembered.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from importlib import metadata
from typing import Any, Protocol

from tokenmill import storage
from tokenmill.assemble import Assembler, Layout, publish
from tokenmill.config import Config
from tokenmill.corpus import Input, Slice
from tokenmill.encodings import EncodingId
from tokenmill.errors import (
    ConfigError,
    ConflictError,
    InputError,
    IntegrityError,
    NetworkError,
)
from tokenmill.fetch import RemoteInputs
from tokenmill.formats import DTYPE_BYTES, Format, chosen_dtype, get_format
from tokenmill.hub import SCHEME
from tokenmill.inputs import in_order, local_inputs
from tokenmill.job import Job, Step
from tokenmill.manifest import MANIFEST_NAME, Manifest, make_manifest, quarantine_file
from tokenmill.part import PART_CHECKSUM
from tokenmill.plan import (
    Plan,
    differences,
    identity_differences,
    make_plan,
    read_options,
)
from tokenmill.record import SPLITS, Counts, PartRecord, committed_record, part_path
from tokenmill.runners import Runner, Stopped, Watch
from tokenmill.runners.start import encoding_of, started_runner

WORK_NAME = ".tokenmill"
BYTES_VERSION = 1  # raised when the same inputs and options would give other bytes
BUCKET_BYTES = 32 << 20
MAX_BUCKETS = 4096
_ENGINES = {"tiktoken": ("gigatoken", "tiktoken"), "huggingface": ("gigatoken", "tokenizers")}
# Bytes of text per token, for estimates only: English is near 4.4 with gpt2, Chinese near 1.5.
TEXT_BYTES_PER_TOKEN = 4.0


class RunWatch(Watch, Protocol):
    """A Watch that also sees the run begin and end."""

    def planned(self, plan: Plan, done: Sequence[PartRecord]) -> None:
        """The slices are known; `done` were encoded by earlier attempts."""

    def recorded(self, record: PartRecord) -> None:
        """A slice is done."""


class SilentWatch:
    """Looks on and says nothing: what `tokenmill.prepare` uses unless told otherwise."""

    def planned(self, plan: Plan, done: Sequence[PartRecord]) -> None: ...

    def recorded(self, record: PartRecord) -> None: ...

    def step(self, slice_: Slice, step: Step) -> None: ...

    def notice(self, message: str) -> None: ...

    def should_stop(self) -> bool:
        return False


def prepare(
    sources: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    *,
    watch: RunWatch | None = None,
    **options: Any,
) -> Manifest:
    """Turn text into training-ready shards in the folder `out`, and return the proof.

    `options` are the fields of `tokenmill.Config`: the command line's long options with
    underscores. Calling it again with the same arguments continues an interrupted run, or returns
    the manifest of a finished one.
    """
    if isinstance(sources, (str, os.PathLike)):
        sources = [sources]
    config = Config(
        sources=tuple(os.fspath(source) for source in sources), out=os.fspath(out), **options
    )
    with started_runner(config) as runner:
        return run(config, runner, watch or SilentWatch())


def run(config: Config, runner: Runner, watch: RunWatch) -> Manifest:
    encoding = encoding_of(config)
    config = resolved(config, encoding)
    identity = identity_of(config, encoding)
    try:
        remote = RemoteInputs(config, os.path.join(config.out, WORK_NAME), watch.notice)
    except NetworkError:
        # A finished dataset needs no Hub, and one that does not answer has nothing to compare.
        if not config.overwrite and (finished := _finished(config.out, identity, None)):
            return finished
        raise
    inputs = all_inputs(config, remote)
    if config.overwrite:
        _make_way(config, encoding, identity, inputs)
    elif (finished := _finished(config.out, identity, inputs)) is not None:
        _remove_leftovers(config.out)
        return finished

    with _work_folder(config) as work:
        plan = _continued_or_new_plan(work, config, identity, inputs, remote)
        assembler = Assembler(work, layout_of(config, encoding, plan))
        with contextlib.closing(assembler), contextlib.closing(remote):
            job = job_of(config, encoding, plan, work)
            records = _encode(job, plan, runner, remote, assembler, watch)
            require_few_bad(records, config)
            _require_some_written(records, work)
            shards = assembler.finish()
        quarantine = quarantine_file(work, (q for r in records for q in r.quarantined))
        manifest = make_manifest(plan.identity, plan.inputs, records, shards, quarantine)
        publish(work, config.out, shards)
        if quarantine is not None:
            storage.rename(
                os.path.join(work, "shards", quarantine.name),
                os.path.join(config.out, quarantine.name),
            )
        storage.write_file(os.path.join(config.out, MANIFEST_NAME), manifest.to_json())
    return manifest


def all_inputs(config: Config, remote: RemoteInputs) -> list[Input]:
    """The corpus: every input, here or elsewhere, in its order."""
    here = [source for source in config.sources if not source.startswith(SCHEME)]
    return in_order([*local_inputs(here, config.input_format), *remote.inputs])


def new_plan(config: Config, encoding: EncodingId) -> Plan:
    """The plan that a run would begin with; nothing is written to the output folder."""
    with tempfile.TemporaryDirectory() as folder:
        remote = RemoteInputs(config, folder, lambda message: None)
        storage.make_folder(os.path.join(folder, "structure"))
        inputs = all_inputs(config, remote)
        return make_plan(identity_of(config, encoding), inputs, config, remote.structure_of)


def resolved(config: Config, encoding: EncodingId) -> Config:
    """The configuration with every default of its format filled in, and checked against it."""
    format_ = get_format(config.format)
    defaults = format_.defaults
    if config.shard_tokens is not None and defaults.shard_tokens is None:
        raise ConfigError(
            f"--shard-tokens does not apply to {config.format}, which has one file per split",
            hint="--format llmc or --format npy write numbered shards",
        )
    if config.name is not None and defaults.name is None:
        raise ConfigError(f"--name does not apply to {config.format}, whose file names are fixed")
    val = config.val or ("fraction" if config.val_fraction is not None else defaults.val)
    if val == "first-shard" and defaults.shard_tokens is None:
        raise ConfigError(
            f"--val-first-shard does not apply to {config.format}, which has one file per split",
            hint="--val-fraction 0.0005",
        )
    fraction = (config.val_fraction or defaults.val_fraction) if val == "fraction" else None
    full = dataclasses.replace(
        config,
        eot=config.eot or defaults.eot,
        empty=config.empty or defaults.empty,
        val=val,
        val_fraction=fraction,
        shard_tokens=config.shard_tokens or defaults.shard_tokens,
        name=config.name or defaults.name,
        dtype=chosen_dtype(config.dtype, encoding.max_token_value, encoding.name, config.format),
    )
    format_.header(full.shard_tokens or 0, full.dtype)  # refuses what the format cannot hold
    return full


def identity_of(config: Config, encoding: EncodingId) -> dict[str, Any]:
    """Everything besides the inputs that decides the bytes."""
    return {
        "options": config.identity(),
        # Where a vocabulary file lies does not matter; what is in it does.
        "encoding": {k: v for k, v in encoding.to_plain().items() if k != "source"},
        "versions": {
            "bytes": BYTES_VERSION,
            **{name: metadata.version(name) for name in _ENGINES[encoding.kind]},
        },
    }


def layout_of(config: Config, encoding: EncodingId, plan: Plan) -> Layout:
    return Layout(
        format=config.format,
        name=config.name or "",
        dtype=config.dtype,
        shard_tokens=config.shard_tokens,
        first_shard_is_val=config.val == "first-shard",
        eot_id=encoding.eot_token,
        num_buckets=num_buckets(config, plan),
    )


def job_of(config: Config, encoding: EncodingId, plan: Plan, work: str) -> Job:
    return Job(
        work=work,
        plan_id=plan.plan_id,
        encoding=encoding,
        read=read_options(config),
        dtype=config.dtype,
        eot=str(config.eot),
        empty=str(config.empty),
        val_fraction=config.val_fraction or 0.0,
        seed=config.seed,
        num_buckets=num_buckets(config, plan),
        on_bad_document=config.on_bad_document,
    )


def num_buckets(config: Config, plan: Plan) -> int:
    """How many buckets a shuffle uses, so that one bucket fits into memory; 0 without shuffle."""
    if not config.shuffle:
        return 0
    return max(1, min(MAX_BUCKETS, estimated_bytes(config, plan) // BUCKET_BYTES))


def estimated_bytes(config: Config, plan: Plan) -> int:
    """About how large the output will be."""
    return int(plan.text_bytes / TEXT_BYTES_PER_TOKEN) * DTYPE_BYTES[config.dtype]


def require_few_bad(records: Sequence[PartRecord], config: Config) -> None:
    counts = sum((record.counts for record in records), Counts())
    if counts.num_quarantined > config.max_bad_fraction * counts.num_rows:
        first = next(q for record in records for q in record.quarantined)
        raise InputError(
            f"{counts.num_quarantined:,} of {counts.num_rows:,} rows are bad, more than "
            f"--max-bad-fraction {config.max_bad_fraction} allows; "
            f"the first: {first.path}, {first.place}: {first.reason}",
            hint="look at it; if such rows may be left out, raise --max-bad-fraction: it resumes",
        )


def _require_some_written(records: Sequence[PartRecord], work: str) -> None:
    counts = sum((record.counts for record in records), Counts())
    if not counts.num_written:
        storage.remove(os.path.join(work, "plan.json"))  # there is nothing to resume
        raise InputError(
            f"nothing to write: of {counts.num_rows:,} rows, {counts.num_empty:,} are empty, "
            f"{counts.num_null:,} null, {counts.num_quarantined:,} quarantined",
            hint="are these the right files, and is --text-column the right column?",
        )


def _encode(
    job: Job,
    plan: Plan,
    runner: Runner,
    remote: RemoteInputs,
    assembler: Assembler,
    watch: RunWatch,
) -> list[PartRecord]:
    """Encode what has no record yet, assembling on the way; all records, in plan order."""
    records = _committed(job, plan, assembler.next if not job.num_buckets else 0)
    watch.planned(plan, list(records.values()))
    for index in sorted(records):
        if job.num_buckets or index >= assembler.next:
            assembler.add(records[index])
    missing = [slice_ for slice_ in plan.slices if slice_.index not in records]
    remote.begin(missing)
    running = _generator(runner.run(job, remote.as_they_arrive(missing), watch))
    with contextlib.closing(running):
        done = dict(records)
        for record in running:
            done[record.slice_index] = record
            remote.release(plan.slices[record.slice_index])
            watch.recorded(record)
            assembler.add(record)
    if len(done) < len(plan.slices):
        raise Stopped
    return [done[slice_.index] for slice_ in plan.slices]


def _generator(records: Iterator[PartRecord]) -> Any:
    """A runner's records as what they are at run time: a generator, which can be closed."""
    return records


def _committed(job: Job, plan: Plan, num_assembled: int) -> dict[int, PartRecord]:
    """The records of earlier attempts. A part that assembly still needs must be whole."""
    records = {}
    for slice_ in plan.slices:
        record = committed_record(job.work, slice_.index, job.plan_id)
        if record is not None and (slice_.index < num_assembled or _is_whole(job.work, record)):
            records[slice_.index] = record
    return records


def _is_whole(work: str, record: PartRecord) -> bool:
    path = part_path(work, record.slice_index)
    if storage.size(path) != record.num_bytes:
        return False
    checksum = PART_CHECKSUM()
    with open(path, "rb") as file:
        while block := file.read(1 << 22):
            checksum.update(block)
    return checksum.hexdigest() == record.checksum


def _continued_or_new_plan(
    work: str,
    config: Config,
    identity: dict[str, Any],
    inputs: list[Input],
    remote: RemoteInputs,
) -> Plan:
    path = os.path.join(work, "plan.json")
    if os.path.exists(path):
        plan = Plan.load(path)
        changes = differences(plan, identity, inputs)
        if changes:
            raise _conflict(f"the run in {config.out} was begun differently", changes)
    else:
        structures = os.path.join(work, "structure")
        storage.make_folder(structures)
        plan = make_plan(identity, inputs, config, remote.structure_of)
        storage.remove_folder(structures)
        if not plan.slices:
            raise InputError(f"no documents in {', '.join(config.sources)}")
    for name in ("parts", "records", "shards"):
        storage.make_folder(os.path.join(work, name))
        storage.remove_temporaries(os.path.join(work, name))
    storage.remove_temporaries(work)
    if not os.path.exists(path):
        plan.save(path)
    return plan


def _finished(out: str, identity: dict[str, Any], inputs: list[Input] | None) -> Manifest | None:
    """The manifest, if this very run is finished. Another run's result is a conflict.

    `inputs` of None are not compared.
    """
    if not os.path.exists(os.path.join(out, MANIFEST_NAME)):
        return None
    manifest = Manifest.load(out)
    # A finished dataset does not become another one because an engine was upgraded since.
    changes = identity_differences(
        {**manifest.identity, "versions": None}, {**identity, "versions": None}
    )
    before = {source.path: (source.num_bytes, source.digest) for source in manifest.inputs}
    after = before
    if inputs is not None:
        after = {source.name: (source.num_bytes, source.digest) for source in inputs}
    changes += [f"input removed: {path}" for path in before if path not in after]
    changes += [f"input added: {path}" for path in after if path not in before]
    changes += [
        f"input changed: {path}" for path in before if after.get(path, before[path]) != before[path]
    ]
    if changes:
        raise _conflict(f"{out} holds a finished dataset that was made differently", changes)
    for file in manifest.files:
        if storage.size(os.path.join(out, file.name)) != file.num_bytes:
            raise ConflictError(
                f"{os.path.join(out, file.name)} is missing or has changed since the run finished",
                hint="start anew with --overwrite",
            )
    return manifest


def _remove_leftovers(out: str) -> None:
    """Remove the work folder of a run that was killed after its manifest was written."""
    work = os.path.join(out, WORK_NAME)
    if os.path.isdir(work):
        with storage.lock(os.path.join(work, "lock")):
            storage.remove_folder(work)


def _conflict(what: str, changes: list[str]) -> ConflictError:
    shown = changes[:10] + ([f"and {len(changes) - 10} more"] if len(changes) > 10 else [])
    return ConflictError(
        "\n  ".join([f"{what}:", *shown]),
        hint="use the same options and inputs, another folder with -o, or start anew: --overwrite",
    )


@contextlib.contextmanager
def _work_folder(config: Config) -> Iterator[str]:
    """Hold the work folder and its lock; afterwards, remove it if there is nothing to resume."""
    work = os.path.join(config.out, WORK_NAME)
    if os.path.exists(config.out) and not os.path.isdir(config.out):
        raise ConflictError(f"{config.out} is a file, not a folder", hint="choose another with -o")
    if not os.path.exists(os.path.join(work, "plan.json")):
        _require_room(config)
    is_new = not os.path.exists(config.out)
    storage.make_folder(work)
    with storage.lock(os.path.join(work, "lock")):
        try:
            yield work
        finally:
            is_finished = os.path.exists(os.path.join(config.out, MANIFEST_NAME))
            if is_finished or not os.path.exists(os.path.join(work, "plan.json")):
                storage.remove_folder(work)
                if is_new and not is_finished:
                    with contextlib.suppress(OSError):
                        os.rmdir(config.out)


def _require_room(config: Config) -> None:
    """Refuse a folder in which a trainer would find other shards beside ours."""
    if not os.path.isdir(config.out):
        return
    format_ = get_format(config.format)
    suffix = os.path.splitext(format_.shard_name(config.name or "", "train", 0))[1]
    others = [
        name
        for name in storage.names_in(config.out)
        if _is_shard_name(name, format_, config)
        or (format_.defaults.shard_tokens is not None and name.endswith(suffix))
    ]
    if others:
        raise ConflictError(
            f"{config.out} holds something else: {', '.join(others[:5])}",
            hint="choose another folder with -o, or remove them",
        )


def _make_way(
    config: Config, encoding: EncodingId, identity: dict[str, Any], inputs: list[Input]
) -> None:
    """Do what --overwrite asks for: remove what is there, unless it is this very run, unfinished.

    A command that cannot be planned removes nothing.
    """
    path = os.path.join(config.out, WORK_NAME, "plan.json")
    if os.path.exists(path):
        with contextlib.suppress(IntegrityError):
            if not differences(Plan.load(path), identity, inputs):
                return
    if os.path.isdir(config.out):
        new_plan(config, encoding)
        _remove_output(config)


def _remove_output(config: Config) -> None:
    """Remove an earlier run's files; the manifest first, so that it never outlives them."""
    work = os.path.join(config.out, WORK_NAME)
    storage.make_folder(work)
    with storage.lock(os.path.join(work, "lock")):
        names = {
            n
            for n in storage.names_in(config.out)
            if _is_shard_name(n, get_format(config.format), config)
        }
        if os.path.exists(os.path.join(config.out, MANIFEST_NAME)):
            with contextlib.suppress(IntegrityError):  # a broken manifest lists nothing
                names |= {file.name for file in Manifest.load(config.out).files}
            storage.remove(os.path.join(config.out, MANIFEST_NAME))
        for name in sorted(names):
            storage.remove(os.path.join(config.out, name))
        storage.remove_folder(work)


def _is_shard_name(name: str, format_: Format, config: Config) -> bool:
    number = re.search(r"(\d+)\.\w+$", name)
    index = int(number[1]) if number else 0
    return name in {format_.shard_name(config.name or "", split, index) for split in SPLITS}
