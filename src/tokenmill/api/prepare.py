"""`tokenmill.prepare`: `tokenmill prepare`, as a function."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tokenmill.config import Config
from tokenmill.config.arguments import suggesting
from tokenmill.dataset.manifest import Manifest
from tokenmill.encodings import Encoding
from tokenmill.prepare import run
from tokenmill.run import RunWatch, SilentWatch
from tokenmill.runners.start import started_runner, workers_of
from tokenmill.wording.quantities import Quantity, count_of

_NOT_OPTIONS = ("watch", "progress", "pack")


@suggesting
def prepare(
    sources: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | Mapping[str, Any],
    out: str | os.PathLike[str],
    *,
    text_column: str = "text",
    template: str | None = None,
    lists: str | None = None,
    separator: str | None = None,
    input_format: str | None = None,
    where: str | None = None,
    sample: float | str | None = None,
    dedup: str | None = None,
    limit_tokens: Quantity | None = None,
    keep: str | Iterable[str] | None = None,
    limit_docs: Quantity | None = None,
    on_bad_document: str = "quarantine",
    max_bad_fraction: float = 0.001,
    tokenizer: str | os.PathLike[str] | Encoding = "gpt2",
    pattern: str | None = None,
    eot_token: str | None = None,
    bos_token: str | None = None,
    eot: str | None = None,
    bos: str | None = None,
    empty: str | None = None,
    format: str = "nanogpt",
    name: str | None = None,
    shard_tokens: Quantity | None = None,
    seq_len: Quantity | None = None,
    dtype: str = "auto",
    val_fraction: float | None = None,
    val: str | None = None,
    shuffle: bool = False,
    seed: int = 0,
    slice_bytes: Quantity = 32 << 20,
    num_proc: Quantity | None = None,
    runner: str | None = None,
    ray_address: str | None = None,
    worker_cpus: float | None = None,
    worker_memory: Quantity | None = None,
    stall_timeout: float = 300.0,
    keep_downloads: bool = True,
    overwrite: bool = False,
    pack: Quantity | None = None,
    progress: bool = False,
    watch: RunWatch | None = None,
) -> Manifest:
    """Turn text into training-ready shards in the folder `out`, and return the manifest.

    Calling it again with the same arguments resumes an interrupted run, or returns the manifest of
    a finished one. Arguments are the long options of `tokenmill prepare` (see its --help), with
    underscores; None follows the format. Numbers may be written like `"100M"`.

    sources          files, folders, globs or URLs, one or many; or named sources, such as
                     {"web": "corpus/web", "code": {"paths": "corpus/code", "repeat": 2}}
    out              the output folder, or its URL
    tokenizer        a name, the path of a vocabulary file, or an `Encoding`
    template         a row's text from several columns: '{title}\\n\\n{text}'
    lists            for a column of lists of strings: "join" them, or make "documents" of them
    where            an expression that rows must satisfy: 'int_score >= 3 and lang == "en"'
    sample           only this fraction of the rows, across the whole corpus
    dedup            "exact": only the first of equal texts
    limit_tokens     whole documents, in the order of the sources, until there are this many tokens
    keep             columns to keep beside the tokens, as "id,url" or a list of names
    val              what is held out for validation: "fraction", "first-shard" or "none"
    seq_len          tokens per sample, if the format holds samples; "document" for one per document
    pack             also plan rows of this many tokens (see `tokenmill.pack`)
    progress         show progress on stderr; in a notebook, below the cell
    watch            an object that is told of each step (see `tokenmill.run.RunWatch`)
    """
    given = dict(locals())
    config = Config(**{name: value for name, value in given.items() if name not in _NOT_OPTIONS})
    packing = _packing(config.out, pack, overwrite)
    if watch is not None or not progress:
        manifest = _prepared(config, watch or SilentWatch())
    else:
        from tokenmill.cli.progress import shown_progress

        with shown_progress(functools.partial(workers_of, config)) as shown:
            manifest = _prepared(config, shown)
            shown.conclude(manifest, config.out)
    packing()
    return manifest


def _packing(out: str, seq_len: Quantity | None, overwrite: bool) -> Callable[[], object]:
    """A function that packs the finished dataset. A wrong `seq_len` is refused before the run."""
    if seq_len is None:
        return lambda: None
    from tokenmill.dataset.opened import opened
    from tokenmill.loader.packing.pack import PackOptions
    from tokenmill.loader.packing.pack import pack as planned

    options = PackOptions(seq_len=count_of("pack", seq_len))

    def packed() -> None:
        with opened(out) as dataset:
            planned(dataset, options, overwrite=overwrite)

    return packed


def _prepared(config: Config, watch: Any) -> Manifest:
    with started_runner(config) as runner:
        return run(config, runner, watch)
