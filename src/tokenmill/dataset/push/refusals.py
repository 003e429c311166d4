"""Errors of a push: why the Hub refuses, and what to do about it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from tokenmill.errors import (
    ConfigError,
    ConflictError,
    IntegrityError,
    NetworkError,
    OutputError,
    TokenmillError,
)
from tokenmill.storage.retry import is_network_error, message_of, status_of


def require_token(repo: str, client: Any) -> None:
    if client.constants.HF_HUB_OFFLINE:
        raise NetworkError(
            f"HF_HUB_OFFLINE is set, so nothing can be sent to {repo}", hint="unset HF_HUB_OFFLINE"
        )
    if client.get_token() is None:
        raise ConfigError(
            f"pushing to {repo} needs a token of the Hub, and there is none",
            hint="`hf auth login`, or set HF_TOKEN; create a token with write access at "
            f"{client.constants.ENDPOINT}/settings/tokens",
        )


def not_private(repo: str, url: str) -> ConflictError:
    return ConflictError(
        f"{repo} exists and is public, and you asked for a private one; nothing was sent",
        hint=f"make it private at {url}/settings, choose another name, or leave out --private",
    )


def changed(name: str) -> IntegrityError:
    return IntegrityError(
        f"{name} has changed since it was verified",
        hint="is something writing to the folder? Then run the same command again",
    )


@contextlib.contextmanager
def explained(
    repo: str, client: Any, passing: tuple[type[BaseException], ...] = ()
) -> Iterator[None]:
    """Turn the client's errors into ours, except the kinds that the caller handles."""
    try:
        yield
    except TokenmillError:
        raise
    except passing:
        raise
    except Exception as error:
        status, said = status_of(error), _said(error)
        if status == 401:
            raise OutputError(
                f"the Hub does not know this token: {said}",
                hint="has it expired? `hf auth login`, or set HF_TOKEN again",
            ) from None
        if status == 403:
            raise OutputError(
                f"this token may not write {repo}: {said}", hint=_rights(client)
            ) from None
        if status in (409, 412):
            raise ConflictError(
                f"{repo} has changed while this was pushing: {said}",
                hint="run the same command again: it compares with what is there now",
            ) from None
        if status is not None and status < 500 and status != 429:
            raise OutputError(f"the Hub refused this for {repo}: {said}") from None
        if not is_network_error(error):
            raise
        raise NetworkError(
            f"cannot reach {repo} on the Hub: {said}",
            hint="run the same command again: what was sent is not sent again",
        ) from None


def _rights(client: Any) -> str:
    names = ""
    with contextlib.suppress(Exception):  # it is only for the hint
        found = client.HfApi().whoami()
        owners = [found["name"], *(one["name"] for one in found.get("orgs", ()))]
        names = f"it belongs to {owners[0]}, so OWNER is {' or '.join(owners)}; "
    return f"{names}its role must be `write`: `hf auth login`, or set HF_TOKEN"


def _said(error: Exception) -> str:
    message = getattr(error, "server_message", None)
    return str(message) if message else message_of(error)
