"""The option that a user means by another name: what other tools call ours, and misspelt words.
Names have underscores, as in Python."""

from __future__ import annotations

from collections.abc import Collection

from tokenmill.config.kinds import nearest
from tokenmill.config.options import OPTIONS

# Of options that are not a run's.
_OTHERS = {
    "no_val": "no_validation no_split no_test train_only",
    "partition": "rank shard_id task_id world_size num_shards array",
    "dry_run": "dryrun check plan simulate",
    "quiet": "silent no_progress disable_tqdm",
    "verbose": "debug log_level loglevel",
    "progress": "verbose tqdm show_progress progress_bar",
    "revision": "branch commit",
    "full": "all thorough",
}


def option_meant(name: str, known: Collection[str]) -> str | None:
    """The known option that a user who types `name` probably means; None if none comes close."""
    name = name.replace("-", "_").lower()
    return option_called(name, known) or nearest(name, known)


def option_called(name: str, known: Collection[str]) -> str | None:
    """The known option with exactly this name, here or in another tool."""
    if name in known:
        return name
    for ours in known:
        others = OPTIONS[ours].other_names if ours in OPTIONS else _OTHERS.get(ours, "")
        if name in others.split():
            return ours
    return None
