"""The README as a package index shows it, where there is no repository around it.

In the repository its links are relative, so that they lead to the same commit, also in a fork and
without a network. In a wheel they lead to the project's home (`[project.urls]`).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_CODE = re.compile(r"^(```.*?^```)$", flags=re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?://)([^)\s]+)\)")


class ReadmeHook(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        text = index_readme(text, metadata["urls"]["Repository"])
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


def index_readme(text: str, home: str) -> str:
    """The README with links that work anywhere. HEAD is the newest commit of the default branch."""

    def absolute(link: re.Match[str]) -> str:
        mark, shown, target = link.groups()
        if target.startswith("#"):  # an index gives headings no anchors
            return f"[{shown}]({home}{target})"
        return f"{mark}[{shown}]({home}/{'raw' if mark else 'blob'}/HEAD/{target})"

    pieces = _CODE.split(text)
    pieces[::2] = [_LINK.sub(absolute, piece) for piece in pieces[::2]]
    return "".join(pieces).replace("<this repository>", home)
