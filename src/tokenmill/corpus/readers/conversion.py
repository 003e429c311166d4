"""Commands that convert an input, for hints: they work as typed, wherever the input is.

A command for a file on disk does not help with an object in a store, a compressed file or standard
input: the text must first get to where the command reads it.
"""

from __future__ import annotations

import shlex

from tokenmill.corpus.spans import HUB_SCHEME, Input
from tokenmill.storage.store import store_of


def is_on_disk(name: str) -> bool:
    return not name.startswith(HUB_SCHEME) and store_of(name).takes_disk_space


def local_command(name: str, command: str) -> str:
    """A command for a file, whose name is `{name}` in it."""
    if is_on_disk(name):
        return command.replace("{name}", shlex.quote(name))
    local = command.replace("{name}", shlex.quote(name.rpartition("/")[2]))
    return f"copy it to a disk first; there: {local}" if local != command else command


def filtered(source: Input, command: str, result: str) -> str:
    """How to send an input's text through a command, and save what that writes as a file."""
    unpacked = f"{source.compression} -dc"
    if source.name == "-":
        return f"convert it in the pipe, before tokenmill: ... | {command} | tokenmill ..."
    if _is_web(source.name):
        steps = [f"curl -L {shlex.quote(source.name)}", unpacked, command]
        return f"{' | '.join(steps if source.compression else steps[::2])} > {result}"
    if source.compression:
        return local_command(source.name, f"{unpacked} {{name}} | {command} > {result}")
    return local_command(source.name, f"{command} < {{name}} > {result}")


def renamed(name: str, new_name: str) -> str:
    """How to get a file under another name, where only its name is wrong."""
    if is_on_disk(name):
        return f"mv {shlex.quote(name)} {shlex.quote(new_name)}"
    local = shlex.quote(new_name.rpartition("/")[2])
    copied = f"copy it to a disk first, as {local}"
    if _is_web(name):
        copied = f"curl -L -o {local} {shlex.quote(name)}"
    return f"{copied}, then give {local} as SOURCE"


def _is_web(name: str) -> bool:
    return name.startswith(("http://", "https://"))
