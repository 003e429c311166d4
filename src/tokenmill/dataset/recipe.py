"""How to make a dataset again, from its manifest: a command, or a tokenmill.toml.

Options with default values are left out. The standard library only reads TOML; tomllib reads what
is written here as the same values.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from tokenmill.config import Config
from tokenmill.config.options import OPTIONS, called, options_of
from tokenmill.corpus.hub_names import DatasetName, HubSource, hub_source
from tokenmill.corpus.spans import HUB_SCHEME
from tokenmill.dataset.manifest import Manifest
from tokenmill.encode.record import Counts
from tokenmill.encodings import EncodingId
from tokenmill.encodings.hub_model import pinned_name
from tokenmill.encodings.published import ENCODING_NAMES
from tokenmill.encodings.tiktoken import builtin_identity
from tokenmill.errors import ConfigError
from tokenmill.formats import get_format
from tokenmill.settings import resolved

# Named sources are too long for a command line.
FROM_FILE = "tokenmill prepare --config tokenmill.toml -o OUT"


def prepare_command(manifest: Manifest) -> str:
    """The command; SOURCE stands for the inputs, which the manifest lists."""
    options, encoding = manifest.identity["options"], manifest.identity["encoding"]
    if manifest.converted_from is None and manifest.sources:
        return FROM_FILE
    if manifest.converted_from is not None:
        return f"tokenmill convert IN OUT --format {options['format']}"
    identity = EncodingId.from_plain({**encoding, "source": None})
    usual = resolved(Config(sources=("SOURCE",), format=options["format"]), identity).identity()
    tokenizer = pinned_name(manifest.revisions, encoding["name"])
    words = ["tokenmill prepare SOURCE -o OUT", f"--tokenizer {shlex.quote(tokenizer)}"]
    words += _tokenizer_options(encoding)
    words += _bos_option(options, encoding)
    words += [f"--format {options['format']}", *_changed(options, usual)]
    if share := _tolerated(manifest.counts):
        words.append(f"--max-bad-fraction {share}")
    return " ".join(words)


def _tokenizer_options(encoding: dict[str, Any]) -> Iterator[str]:
    if encoding["name"] in ENCODING_NAMES:
        if encoding["eot"] != builtin_identity(encoding["name"], None, None).eot:
            yield f"--eot-token {shlex.quote(encoding['eot'])}"
        return
    if encoding["pattern"] is not None:
        yield f"--pattern {shlex.quote(encoding['pattern'])}"
    yield f"--eot-token {shlex.quote(encoding['eot'])}"


def _bos_option(options: dict[str, Any], encoding: dict[str, Any]) -> Iterator[str]:
    if options.get("bos"):
        yield f"--bos-token {shlex.quote(encoding['bos'])}"


def _changed(options: dict[str, Any], usual: dict[str, Any]) -> Iterator[str]:
    is_random = options["shuffle"] or options.get("sample")
    for name, value in options.items():
        is_usual = value == usual.get(name) and not (name == "seed" and is_random)
        if name in options_of("") and name not in ("format", "bos") and not is_usual:
            yield from _typed(name, value)


def _typed(name: str, value: Any) -> Iterator[str]:
    option = OPTIONS[name]
    words = [word for word, meant, _ in option.switches if value == meant]
    if words or value is True:
        yield words[0] if words else called(name)
    elif option.help and value is not None and value is not False:
        yield f"{called(name)} {shlex.quote(option.kind.written(value))}"


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
    share = _tolerated(counts)
    return found | ({"max_bad_fraction": share} if share else {})


def _tolerated(counts: Counts) -> float | None:
    """The share of bad rows, if it is more than is tolerated by default."""
    share = math.ceil(counts.num_quarantined / max(1, counts.num_rows) * 1e6) / 1e6
    return share if share > Config.max_bad_fraction else None


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


_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t"}
_ESCAPES |= {"\n": "\\n", "\f": "\\f", "\r": "\\r"}
_WIDTH = 90  # a longer list has a line for each item


def toml_text(options: Mapping[str, Any], tables: Mapping[str, Mapping[str, Any]]) -> str:
    """Options first, then each table under its heading, such as `source.web`. Option names and the
    parts of a heading must be bare keys."""
    lines = [*_lines(options)]
    for heading, table in tables.items():
        lines += ["", f"[{heading}]", *_lines(table)]
    return "".join(f"{line}\n" for line in lines)


def _lines(options: Mapping[str, Any]) -> Iterator[str]:
    return (f"{name} = {_value(value)}" for name, value in options.items())


def _value(value: Any) -> str:
    if isinstance(value, str):
        return f'"{"".join(map(_character, value))}"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)  # inf and nan are also TOML
    if isinstance(value, (list, tuple)):
        return _list(map(_value, value))
    raise TypeError(f"no TOML for {value!r}")


def _list(items: Iterable[str]) -> str:
    items = list(items)
    line = f"[{', '.join(items)}]"
    return line if len(line) <= _WIDTH else "".join(["[\n", *(f"  {i},\n" for i in items), "]"])


def _character(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    is_control = character < " " or "\x7f" <= character < "\xa0"
    return f"\\u{ord(character):04x}" if is_control else character
