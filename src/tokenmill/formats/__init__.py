"""Formats: how shards are named and laid out. Each module writes and reads one format.

`format.py` is the interface. Plugins add formats under the entry-point group `tokenmill.formats`;
`tokenmill.testing` has the contract that every format passes.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator

from tokenmill.errors import ConfigError, unknown_name
from tokenmill.formats.format import (
    DTYPE_BYTES,
    Contents,
    Create,
    Defaults,
    File,
    Files,
    Format,
    FoundShard,
    Layout,
    Shard,
    ShardReader,
    SideFile,
    Traits,
)
from tokenmill.plugins import loaded_plugin, plugin_names

__all__ = [
    "DTYPE_BYTES",
    "NAMES",
    "Contents",
    "Create",
    "Defaults",
    "File",
    "Files",
    "Format",
    "FoundShard",
    "Layout",
    "Shard",
    "ShardReader",
    "SideFile",
    "Traits",
    "chosen_dtype",
    "format_names",
    "get_format",
    "registered",
]

# In the order in which a folder is tested for them: the most recognisable come first.
_FORMATS = {
    "megatron": "tokenmill.formats.megatron:MegatronFormat",
    "datatrove": "tokenmill.formats.datatrove:DatatroveFormat",
    "mds": "tokenmill.formats.mds:MdsFormat",
    "litdata": "tokenmill.formats.litdata:LitdataFormat",
    "parquet": "tokenmill.formats.parquet:ParquetFormat",
    "npy": "tokenmill.formats.npy:NpyFormat",
    "olmo": "tokenmill.formats.olmo:OlmoFormat",
    "llmc": "tokenmill.formats.llmc:LlmcFormat",
    "nanogpt": "tokenmill.formats.nanogpt:NanogptFormat",
}
NAMES = tuple(_FORMATS)
GROUP = "tokenmill.formats"
_REGISTERED: dict[str, Format] = {}


def format_names() -> tuple[str, ...]:
    """All formats: ours, then those of plugins."""
    return (*NAMES, *(name for name in plugin_names(GROUP) if name not in _FORMATS))


@contextlib.contextmanager
def registered(format_: Format) -> Iterator[None]:
    """Register a format in this process, to test one that is not installed as a plugin."""
    before = dict(_REGISTERED)
    _REGISTERED[format_.name] = format_
    try:
        yield
    finally:
        _REGISTERED.clear()
        _REGISTERED.update(before)


def get_format(name: str) -> Format:
    """Raises ConfigError, with the known names, if there is no such format."""
    if name in _REGISTERED:
        return _REGISTERED[name]
    if name in _FORMATS:
        module, _, attribute = _FORMATS[name].partition(":")
        found: Format = getattr(importlib.import_module(module), attribute)()
        return found
    if name in plugin_names(GROUP):
        plugin: Format = loaded_plugin(GROUP, name)()
        return plugin
    raise unknown_name("format", name, format_names())


def chosen_dtype(asked: str, max_id: int, encoding_name: str, format_: Format) -> str:
    """The narrowest dtype that holds every id, or the one asked for if it does."""
    if asked == "auto":
        return "uint16" if max_id < format_.traits.narrow_vocab else "uint32"
    if asked == "uint16" and max_id > 0xFFFF:
        also = (
            ", and in nanoGPT's train.py read both files with dtype=np.uint32"
            if format_.name == "nanogpt"
            else ""
        )
        raise ConfigError(
            f"{encoding_name} has ids up to {max_id:,}, and uint16 holds at most 65,535",
            hint=f"--dtype uint32{also}",
        )
    return asked
