"""The configuration that a dataset was made with, as a tokenmill.toml that makes it again."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from tokenmill.config import Config
from tokenmill.corpus.hub_names import DatasetName, HubSource, hub_source
from tokenmill.corpus.spans import HUB_SCHEME
from tokenmill.dataset.manifest import Manifest
from tokenmill.encode.record import Counts
from tokenmill.encodings import EncodingId
from tokenmill.encodings.builtin import ENCODING_NAMES, builtin_identity
from tokenmill.encodings.hub_model import pinned_name
from tokenmill.errors import ConfigError
from tokenmill.formats import get_format
from tokenmill.wording.toml_text import toml_text


def config_text(manifest: Manifest, local: str | None = None) -> str:
    """Sources as they were given if they have names, else the list of files; branches on the Hub
    are replaced by their commits, and local paths by `local`, if given. Raises ConfigError for a
    conversion."""
    if manifest.converted_from is not None or not manifest.inputs:
        raise ConfigError(
            "this dataset was converted, and not made by `tokenmill prepare`",
            hint="inspect the dataset that it was converted from: --config",
        )
    try:
        config = Config(sources=("SOURCE",), **manifest.identity["options"])
        options = {**_tokenizer(manifest), **_options(config, manifest.counts)}
        if not config.named:
            options = {"sources": _paths((s.path for s in manifest.inputs), {}, local), **options}
        text = toml_text(options, _tables(config, manifest, local))
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise ConfigError(f"its options are not known to this version: {error}") from None
    return f"{_HEAD}{_comment(manifest)}\n{text}"


_HEAD = "# tokenmill prepare --config tokenmill.toml -o OUT\n"


def _comment(manifest: Manifest) -> str:
    encoding = manifest.identity["encoding"]
    is_pinned = pinned_name(manifest.revisions, encoding["name"]) != encoding["name"]
    if is_pinned or encoding["name"] in ENCODING_NAMES:
        return ""
    return f"# tokenizer: the path of the file whose vocabulary has sha256 {encoding['sha256']}\n"


def _tokenizer(manifest: Manifest) -> dict[str, str]:
    encoding = EncodingId.from_plain({**manifest.identity["encoding"], "source": None})
    found = {"tokenizer": pinned_name(manifest.revisions, encoding.name)}
    if encoding.bos_option is not None:
        found["bos_token"] = encoding.bos_option
    if encoding.name in ENCODING_NAMES:
        usual = builtin_identity(encoding.name, None, None)
        return found | ({"eot_token": encoding.eot} if encoding.eot != usual.eot else {})
    if encoding.pattern is not None:
        found["pattern"] = encoding.pattern
    return found | {"eot_token": encoding.eot_option}


def _options(config: Config, counts: Counts) -> dict[str, Any]:
    """The options of the run that differ from the defaults."""
    given = {name: value for name, value in config.identity().items() if name != "named"}
    found = {n: v for n, v in given.items() if v is not None and v != getattr(Config, n)}
    if found.get("seq_len") == 0:
        found["seq_len"] = "document"
        if not get_format(config.format).traits.samples:
            del found["seq_len"]
    share = math.ceil(counts.num_quarantined / max(1, counts.num_rows) * 1e6) / 1e6
    return found | ({"max_bad_fraction": share} if share > Config.max_bad_fraction else {})


def _tables(config: Config, manifest: Manifest, local: str | None) -> dict[str, dict[str, Any]]:
    return {
        f"source.{source.name}": {
            "paths": _paths(manifest.sources[source.name].paths, manifest.revisions, local),
            **({"repeat": source.repeat} if source.repeat > 1 else {}),
            **dict(source.options),
        }
        for source in config.named
    }


def _paths(paths: Iterable[str], revisions: Mapping[str, str], local: str | None) -> list[str]:
    return list(
        dict.fromkeys(local if local and _is_local(p) else _pinned(p, revisions) for p in paths)
    )


def _is_local(path: str) -> bool:
    return "://" not in path and hub_source(path) is None


def _pinned(path: str, revisions: Mapping[str, str]) -> str:
    """A source on the Hub at the commit that the run read."""
    source = hub_source(path)
    commit = revisions.get(f"{source.repo}@{source.revision}") if source else None
    if commit is None:
        return path
    if isinstance(source, HubSource):
        return f"{HUB_SCHEME}datasets/{source.repo}@{commit}/{source.pattern}"
    assert isinstance(source, DatasetName)
    return replace(source, revision=commit).written(source.config, source.split)
