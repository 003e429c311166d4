"""Turns the Hub's answers into errors: no access, no such thing, not reachable.

A 401 or 403 means "no access" only from the Hub itself. Files come from a CDN behind it, whose
signed addresses expire: there it means that the Hub must be asked for a new address
(`storage/hub.py`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from tokenmill.corpus.dataset_card import LIKE, nearest_first
from tokenmill.corpus.hub_names import DatasetName, HubSource
from tokenmill.corpus.presets import PRESETS
from tokenmill.errors import ConfigError, InputError, NetworkError
from tokenmill.storage.retry import is_network_error, message_of, status_of

_MISSING = ("EntryNotFoundError", "RemoteEntryNotFoundError")
_SHOWN_NAMES = 3


@contextlib.contextmanager
def explained(source: HubSource | DatasetName, client: Any) -> Iterator[None]:
    """Turn the client's exceptions into our errors; others pass unchanged."""
    try:
        yield
    except (ConfigError, InputError, NetworkError):
        raise
    except Exception as error:
        kind, status = type(error).__name__, status_of(error)
        if kind == "GatedRepoError":
            raise _gated(source, client) from None
        if kind == "RepositoryNotFoundError":
            raise _not_found(source, client) from None
        if status in (401, 403):
            raise _refused(source, client, message_of(error)) from None
        if kind == "RevisionNotFoundError":
            raise InputError(
                f"{source.repo} has no revision {source.revision!r}",
                hint=f"@main is the newest; {_page(source, client)}/tree/main lists the others",
            ) from None
        if kind in _MISSING:
            raise InputError(
                f"{source.repo} at {source.revision} has no {source.pattern}: {message_of(error)}",
                hint="the dataset's page lists its files; @main is the newest revision",
            ) from None
        if not is_network_error(error):
            raise
        raise _unreachable(source, message_of(error)) from None


def _page(source: HubSource | DatasetName, client: Any) -> str:
    return f"{client.constants.ENDPOINT}/datasets/{source.repo}"


def _gated(source: HubSource | DatasetName, client: Any) -> InputError:
    page = _page(source, client)
    if client.get_token() is None:
        hint = f"open {page} and ask for access; then `hf auth login`, or set HF_TOKEN"
    else:
        hint = (
            f"open {page} and ask for access with the account that `hf auth whoami` names; "
            "a fine-grained token also needs the right to read gated repositories"
        )
    return InputError(f"{source.repo} is gated: its owner decides who may read it", hint=hint)


def _not_found(source: HubSource | DatasetName, client: Any) -> InputError:
    what = f"{source.repo} does not exist on the Hub, or is private"
    if isinstance(source, DatasetName) and source.may_be_path:
        what = f"there is no file or folder {source.repo} here; as a dataset, {what}"
    names = _similar(source.repo, client)
    if client.get_token() is None:
        access = "if it is private: `hf auth login`, or set HF_TOKEN"
    else:
        access = "if it is private: does the account that `hf auth whoami` names see its page?"
    if names:
        return InputError(what, hint=f"did you mean {' or '.join(names)}? {access}")
    return InputError(what, hint=f"check the name; {access}")


def _similar(repo: str, client: Any) -> list[str]:
    """Datasets with a similar name, nearest first, from the Hub's search, if it answers, and the
    presets."""
    owner, name = repo.split("/")
    api = client.HfApi()
    found = set(PRESETS)
    searches: list[Callable[[], Any]] = [
        lambda: api.list_datasets(search=name, limit=20),
        lambda: api.list_datasets(author=owner, limit=100),
    ]
    for search in searches:
        with contextlib.suppress(Exception):  # only suggestions are lost
            found |= {str(info.id) for info in search()}
    near = nearest_first(repo, found, LIKE)
    return near[:_SHOWN_NAMES]


def _refused(source: HubSource | DatasetName, client: Any, said: str) -> InputError:
    return InputError(
        f"the Hub does not let this token read {source.repo}: {said}",
        hint=f"can you open {_page(source, client)}? then `hf auth login`, or set HF_TOKEN again",
    )


def _unreachable(source: HubSource | DatasetName, said: str) -> NetworkError:
    what = f"cannot reach {source.repo} on the Hub: {said}"
    if isinstance(source, DatasetName) and source.may_be_path:
        what = f"there is no file or folder {source.repo} here, and {what}"
    return NetworkError(
        what,
        hint=f"run the same command again: it resumes. Without a network here, elsewhere: "
        f"{source.download_command}; then give that folder as SOURCE, or, to "
        "`tokenmill fineweb`, as --local-dir DIR",
    )
