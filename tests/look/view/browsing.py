"""A page in a real browser that is watched. Needs Debian's `chromium`, or any on the PATH."""

from __future__ import annotations

import shutil
from typing import Any

from tokenmill.look.view.server import ViewServer

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
BROKEN = """() => document.addEventListener('securitypolicyviolation', event =>
  console.error(event.violatedDirective))"""


class Watched:
    """A page, and all that it did beyond asking its own server."""

    def __init__(self, browser: Any, server: ViewServer, scheme: str = "light") -> None:
        self.seen: list[str] = []
        context = browser.new_context(
            color_scheme=scheme, permissions=["clipboard-read", "clipboard-write"]
        )
        context.add_init_script(f"({BROKEN})()")
        self.page = page = context.new_page()
        page.set_default_timeout(5000)
        page.on("dialog", lambda dialog: (self.seen.append(dialog.message), dialog.dismiss()))
        page.on("console", lambda message: self.seen.append(message.text))
        page.on("pageerror", lambda error: self.seen.append(str(error)))
        page.on("request", lambda request: self._note(request.url, server.guard.url))

    def _note(self, url: str, own: str) -> None:
        if not url.startswith((own, "data:,")):
            self.seen.append(url)

    def waits_for(self, title: str) -> None:
        self.page.wait_for_function(
            "title => document.getElementById('title').textContent.startsWith(title)"
            " && !document.querySelector('[aria-busy]')",
            arg=title,
        )
