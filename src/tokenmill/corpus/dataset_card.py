"""The configs and splits that a dataset card lists, and which of them a name means.

A card is the README.md of a dataset; the YAML at its top may hold

    configs:
    - config_name: sample-10BT
      default: true
      data_files:
      - split: train
        path: sample/10BT/*          or a list of such globs

Without a config, the name means the default one; without a split, `train`, because held-out
documents do not belong in a training set. If a card lists nothing, file names tell the split, by
the words that `datasets` looks for.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tokenmill.corpus.hub_names import DatasetName
from tokenmill.corpus.presets import preset_of
from tokenmill.errors import ConfigError

TRAIN = "train"
DEFAULT = "default"
LIKE = 0.6  # difflib's own default for a close match
_SHOWN = 8
_SPLIT_WORDS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "dev", "val"),
    "test": ("test", "testing", "eval", "evaluation"),
}


@dataclass(frozen=True, slots=True)
class CardConfig:
    """One config. `splits` has the globs of each split's files; if empty, file names tell it."""

    name: str
    splits: Mapping[str, tuple[str, ...]]
    is_default: bool = False


def card_configs(readme: str) -> list[CardConfig]:
    """The configs that a card lists, without malformed ones: cards are written by hand."""
    import yaml  # type: ignore[import-untyped]

    match = re.match(r"\ufeff?\s*---[ \t]*\r?\n(.*?)\r?\n---[ \t]*\r?(?:\n|\Z)", readme, re.DOTALL)
    if match is None:
        return []
    # Every scalar stays a string: a config may be called `no`, which is false in YAML. The C loader
    # reads FineWeb-2's 2,000 configs instantly, the other one takes seconds.
    loader: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    try:
        card = yaml.load(match[1], loader)
    except yaml.YAMLError:
        return []
    listed = card.get("configs") if isinstance(card, dict) else None
    configs = [listed] if isinstance(listed, dict) else listed
    return [
        CardConfig(config["config_name"], _splits(config), config.get("default") == "true")
        for config in (configs if isinstance(configs, list) else [])
        if isinstance(config, dict) and isinstance(config.get("config_name"), str)
    ]


def _splits(config: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    folder = config.get("data_dir")
    prefix = f"{folder.strip('/')}/" if isinstance(folder, str) else ""
    files = config.get("data_files")
    if files is None:
        return {TRAIN: (f"{prefix}**",)} if prefix else {}
    if isinstance(files, dict) and "path" not in files:
        files = [{"split": split, "path": path} for split, path in files.items()]
    found: dict[str, tuple[str, ...]] = {}
    for entry in files if isinstance(files, list) else [files]:
        item = entry if isinstance(entry, dict) else {"path": entry}
        split = item.get("split", TRAIN)
        paths = item.get("path")
        globs = [path for path in (paths if isinstance(paths, list) else [paths]) if path]
        if isinstance(split, str) and all(isinstance(path, str) for path in globs):
            cleaned = tuple(prefix + path.removeprefix("./") for path in globs)
            found[split] = found.get(split, ()) + cleaned
    return found


def meant_globs(name: DatasetName, configs: Sequence[CardConfig]) -> tuple[str, ...]:
    """The globs of the files that a name means; () if only the file names can tell."""
    preset = preset_of(name.repo)
    if not configs and preset is not None and preset.files:
        configs = [CardConfig(DEFAULT, preset.files)]
    if not configs:
        return ()
    meant = _meant_configs(name, configs)
    return tuple(glob for config in meant for glob in _meant_split(name, config))


def _meant_configs(name: DatasetName, configs: Sequence[CardConfig]) -> list[CardConfig]:
    names = [config.name for config in configs]
    if name.config is not None and name.config not in names:
        raise _unknown_config(name, names)
    meant = [name.config] if name.config else _default_configs(configs)
    meant = meant or recommended_configs(name, configs)
    if not meant:
        preset = preset_of(name.repo)
        example = preset.example if preset and preset.example in names else names[0]
        raise ConfigError(
            f"{name.repo} has {len(names):,} configs, and none is the default: {_shown(names)}",
            hint=f"name one: {name.written(example, name.split)}",
        )
    return [config for config in configs if config.name in meant]


def _default_configs(configs: Sequence[CardConfig]) -> list[str]:
    default = [config.name for config in configs if config.is_default]
    default = default or [config.name for config in configs if config.name == DEFAULT]
    return default[:1] or ([configs[0].name] if len(configs) == 1 else [])


def recommended_configs(name: DatasetName, configs: Sequence[CardConfig]) -> list[str]:
    """The configs that a preset chooses for a bare name, if the card has no default."""
    preset = preset_of(name.repo)
    if preset is None or name.config is not None or _default_configs(configs):
        return []
    known = {config.name for config in configs}
    return list(preset.recommended) if known.issuperset(preset.recommended) else []


def _meant_split(name: DatasetName, config: CardConfig) -> tuple[str, ...]:
    splits = list(config.splits)
    if not splits:
        return ()
    split = name.split or (splits[0] if len(splits) == 1 else TRAIN)
    if split not in splits:
        raise unknown_split(name, config.name, splits)
    return config.splits[split]


def unknown_split(name: DatasetName, config: str | None, splits: list[str]) -> ConfigError:
    what = f"no split {name.split!r}" if name.split else f"no split {TRAIN!r}, and several others"
    of = f"config {config!r} of {name.repo}" if config else name.repo
    ordered = nearest_first(name.split or TRAIN, splits)
    return ConfigError(
        f"{of} has {what}; there are: {_shown(ordered)}",
        hint=f"name one: {name.written(config or DEFAULT, ordered[0])}",
    )


def _unknown_config(name: DatasetName, known: list[str]) -> ConfigError:
    wrong = str(name.config)
    ordered = nearest_first(wrong, known)
    better = name.written(ordered[0], name.split)
    is_near = nearest_first(wrong, known, at_least=LIKE)
    return ConfigError(
        f"{name.repo} has no config {wrong!r}; there are: {_shown(ordered)}",
        hint=f"did you mean {better}?" if is_near else f"name one: {better}",
    )


def nearest_first(wrong: str, names: Iterable[str], at_least: float = 0.0) -> list[str]:
    def likeness(name: str) -> float:
        return difflib.SequenceMatcher(None, wrong.lower(), name.lower()).ratio()

    ordered = sorted(sorted(names), key=likeness, reverse=True)
    return [name for name in ordered if likeness(name) >= at_least]


def _shown(names: Sequence[str]) -> str:
    more = f", and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def of_split(name: DatasetName, paths: Sequence[str]) -> list[str]:
    """The files of the split that a name means, by their names, if the card lists no splits."""
    by_split: dict[str, list[str]] = {}
    for path in paths:
        by_split.setdefault(_split_named(path), []).append(path)
    marked = {split: found for split, found in by_split.items() if split}
    if not marked:
        marked = {TRAIN: list(paths)}
    split = name.split or (next(iter(marked)) if len(marked) == 1 else TRAIN)
    if split not in marked:
        raise unknown_split(name, name.config, sorted(marked))
    return marked[split]


def _split_named(path: str) -> str:
    words = re.split(r"[^a-z]+", path.lower())
    return next(
        (split for split, ours in _SPLIT_WORDS.items() if any(word in words for word in ours)), ""
    )
