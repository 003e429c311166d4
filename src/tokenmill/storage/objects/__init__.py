"""Object storage (s3://, gs://, az:// and whatever else fsspec knows): whole objects, by name.

There is no rename and no folder; listings are used only for sources and for cleaning up. Two
guarantees are relied on: an object appears whole or not at all, and of many concurrent `create`
calls exactly one succeeds.

fsspec provides the clients, which find their own credentials. Each bucket is one ObjectStore
(store.py), whose requests are all retried by ../retry.py with one budget.
"""

from __future__ import annotations

from tokenmill.storage.address import bucket_of, kind_of, scheme_of
from tokenmill.storage.objects.store import ObjectStore
from tokenmill.storage.objects.store import in_parallel as in_parallel
from tokenmill.storage.retry import Contact, Notice

_notice: Notice = lambda message: None  # noqa: E731
_stores: dict[str, ObjectStore] = {}
_contacts: dict[str, Contact] = {}  # by kind of store: all its buckets share one route
_are_expected = False


def bucket(url: str) -> ObjectStore:
    """The bucket of a URL; one instance for each scheme and bucket."""
    place = bucket_of(url)
    if place not in _stores:
        kind = kind_of(scheme_of(url))
        contact = _contacts.setdefault(kind, Contact(_are_expected))
        _stores[place] = _class_of(kind)(place, _say, contact)
    return _stores[place]


def _class_of(kind: str) -> type[ObjectStore]:
    if kind == "s3":
        from tokenmill.storage.objects.s3 import S3Store

        return S3Store
    if kind == "gs":
        from tokenmill.storage.objects.google import GoogleStore

        return GoogleStore
    if kind == "az":
        from tokenmill.storage.objects.azure import AzureStore

        return AzureStore
    return ObjectStore


def _say(message: str) -> None:
    _notice(message)


def report_retries_to(notice: Notice) -> None:
    """Have `notice` called with messages about retries, in this process."""
    global _notice  # noqa: PLW0603
    _notice = notice


def expect_answers() -> None:
    """Give a silent store the full retry time in this process: the store has answered the parent
    process, so there is a network."""
    global _are_expected  # noqa: PLW0603
    _are_expected = True
    for contact in _contacts.values():
        contact.has_answered = True
