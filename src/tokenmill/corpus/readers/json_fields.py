"""Checks the first objects of a JSON file for the fields that make the text."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Sequence
from typing import Any

from tokenmill.corpus.readers import ReadOptions
from tokenmill.corpus.readers.column import CHAT_NAMES, CHAT_TURNS, chat_refusal, list_refusal
from tokenmill.corpus.readers.jsonrows import MISSING, field_of, kind_of, paths_of
from tokenmill.errors import ConfigError
from tokenmill.where.template import template_of
from tokenmill.wording.name_list import name_list

Objects = Sequence[dict[str, Any]]


def require_text(objects: Objects, options: ReadOptions, path: str, which: str) -> None:
    """Raise ConfigError if a field of the text is in none of the objects, or is never text. `which`
    describes the objects in the message."""
    if options.template is not None:
        _require_slots(objects, options.template, path, which)
        return
    name = options.text_column
    found = _values(objects, name)
    if not found:
        _refuse_only_chats(objects, path)
        keys = dict.fromkeys(key for one in objects for key in paths_of(one))
        texts = [key for key in keys if any(isinstance(v, str) for v in _values(objects, key))]
        near = difflib.get_close_matches(name, texts, n=1) or texts[: len(texts) == 1]
        raise ConfigError(
            f"{path}: no field {name!r} in {which}: there are {name_list(keys)}",
            hint=f"--text-column {shlex.quote(near[0]) if near else 'NAME'}",
        )
    given = [value for value in found if value is not None]
    if not given:
        return
    if all(_is_chat(name.rpartition(".")[2], value) for value in given):
        raise chat_refusal(f"{path}: field {name!r}")
    if options.lists is None and all(isinstance(value, list) for value in given):
        raise list_refusal(f"{path}: field {name!r}")


def _require_slots(objects: Objects, text: str, path: str, which: str) -> None:
    template = template_of(text)
    for slot in template.slots:
        values = _values(objects, slot.name)
        known = dict.fromkeys(key for one in objects for key in paths_of(one))
        if not values:
            raise template.mistake(f"{path}: no field {slot.name!r} in {which}", slot, known)
        given = [value for value in values if value is not None]
        if given and not any(type(value) in (str, int) for value in given):
            texts = [n for n in known if any(isinstance(v, str) for v in _values(objects, n))]
            what = f"{path}: field {slot.name!r} is {kind_of(given[0])}, not text or a whole number"
            raise template.mistake(what, slot, texts)


def _values(objects: Objects, name: str) -> list[Any]:
    found = (field_of(one, tuple(name.split("."))) for one in objects)
    return [value for value in found if value is not MISSING]


def _refuse_only_chats(objects: Objects, path: str) -> None:
    """Raise ConfigError if there are conversations and no text."""
    keys = dict.fromkeys(key for one in objects for key in one)
    values = {key: [one[key] for one in objects if one.get(key) is not None] for key in keys}
    chats = [key for key in keys if values[key] and all(_is_chat(key, v) for v in values[key])]
    has_text = any(isinstance(value, str) for key in keys for value in values[key])
    if chats and not has_text:
        raise chat_refusal(f"{path}: field {chats[0]!r}")


def _is_chat(name: str, value: Any) -> bool:
    if not isinstance(value, list) or not value or not all(isinstance(v, dict) for v in value):
        return False
    return name in CHAT_NAMES or any(turn <= value[0].keys() for turn in CHAT_TURNS)
