"""tiktoken's vocabulary cache and its download host. tokenmill itself needs neither.

tiktoken keeps a file per URL, named by the URL's sha1, in TIKTOKEN_CACHE_DIR, else in
DATA_GYM_CACHE_DIR, else in the temporary folder, where reboots and job ends delete it. A worker
that unpickles an encoding loads it from there, or from the network (tiktoken 0.14, load.py).
"""

from __future__ import annotations

import hashlib
import os
import shlex
import socket
import threading
from collections.abc import Mapping
from typing import Literal
from urllib.parse import urlsplit

from tokenmill.doctor.findings import Finding
from tokenmill.encodings.builtin import BUILTIN_ENCODINGS
from tokenmill.encodings.vocabulary_file import VOCAB_FOLDER
from tokenmill.errors import OutputError
from tokenmill.storage.scratch import temporary_folder

HOST = "openaipublic.blob.core.windows.net"
REACH_SECONDS = 1.5
OFFLINE_VARIABLES = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "TIKTOKEN_OFFLINE")

# tiktoken_ext/openai_public.py; gpt2 is the one that is not made of a single file.
FILES: dict[str, dict[str, str]] = {
    "gpt2": {
        f"https://{HOST}/gpt-2/encodings/main/vocab.bpe": "1ce1664773c50f3e0cc8842619a93edc"
        "4624525b728b188a9e0be33b7726adc5",
        f"https://{HOST}/gpt-2/encodings/main/encoder.json": "196139668be63f3b5d6574427317ae82"
        "f612a97c5d1cdaf36ed2256dbf636783",
    },
    **{
        name: {f"https://{HOST}/encodings/{shipped.file}": shipped.file_sha256}
        for name, shipped in BUILTIN_ENCODINGS.items()
        if name != "gpt2"
    },
}

State = Literal["right", "damaged", "absent"]


def cache_folder(environment: Mapping[str, str]) -> str:
    """The folder of tiktoken's cache; "" if its cache is switched off."""
    for name in ("TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR"):
        if name in environment:
            return environment[name]
    try:
        parent = temporary_folder()
    except OutputError:  # which is a finding of its own
        parent = environment.get("TMPDIR", "/tmp")
    return os.path.join(parent, "data-gym-cache")


def cached_states(folder: str) -> dict[str, State]:
    """For every encoding that OpenAI publishes, whether its files are present and correct."""
    return {name: _state(folder, files) for name, files in FILES.items()}


def cache_finding(environment: Mapping[str, str]) -> Finding:
    folder = cache_folder(environment)
    if not folder:
        advice = "set TIKTOKEN_CACHE_DIR to a folder, or use tokenmill.get_encoding"
        what = "switched off: every process downloads the vocabulary"
        return Finding("note", "tiktoken cache", what, advice)
    states = cached_states(folder)
    groups = [(s, [n for n in states if states[n] == s]) for s in ("right", "damaged", "absent")]
    what = f"{folder}: " + "; ".join(f"{s}: {', '.join(names)}" for s, names in groups if names)
    if all(state == "right" for state in states.values()):
        return Finding("ok", "tiktoken cache", what)
    name = next((n for n in states if states[n] != "right" and n != "gpt2"), "cl100k_base")
    return Finding("note", "tiktoken cache", what, f"{fill_command(name, folder)}; {_WAY_OUT}")


_WAY_OUT = "tokenmill.get_encoding('gpt2') needs no cache and no network"


def fill_command(name: str, folder: str) -> str:
    """A shell command that copies tokenmill's own vocabulary to tiktoken's cache.

    tiktoken's gpt2 is made of other files; its r50k_base has the same ids.
    """
    [url] = FILES[name]
    source = VOCAB_FOLDER / BUILTIN_ENCODINGS[name].file
    quoted = (folder, str(source), os.path.join(folder, _cache_name(url)))
    return "mkdir -p {} && cp {} {}".format(*map(shlex.quote, quoted))


def reach_finding(environment: Mapping[str, str]) -> Finding:
    """Whether a connection to the vocabulary's host, or to the proxy before it, can be made."""
    for name in OFFLINE_VARIABLES:
        if environment.get(name, "").upper() in ("1", "ON", "YES", "TRUE"):
            return Finding("ok", "vocabulary host", f"not tried, because {name} is set")
    proxy = environment.get("https_proxy") or environment.get("HTTPS_PROXY") or ""
    host, port, where = HOST, 443, HOST
    if proxy:
        parts = urlsplit(proxy if "//" in proxy else f"//{proxy}")
        host, port = parts.hostname or "", parts.port or 80
        where = f"the proxy {host}:{port} before {HOST}"
    reason = _connection_error(host, port)
    if reason is None:
        return Finding("ok", "vocabulary host", f"{where} can be reached")
    advice = "tiktoken.get_encoding fails unless its cache is filled; " + _WAY_OUT
    return Finding("note", "vocabulary host", f"{where} cannot be reached: {reason}", advice)


def _connection_error(host: str, port: int) -> str | None:
    """Why no connection can be made. In a thread: looking up a name has no time limit."""
    found: list[str | None] = []

    def connect() -> None:
        try:
            socket.create_connection((host, port), timeout=REACH_SECONDS).close()
            found.append(None)
        except (OSError, UnicodeError) as error:
            found.append(str(error))

    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(REACH_SECONDS)
    return found[0] if found else f"no answer in {REACH_SECONDS:g} s"


def _state(folder: str, files: Mapping[str, str]) -> State:
    found: set[State] = set()
    for url, sha256 in files.items():
        try:
            with open(os.path.join(folder, _cache_name(url)), "rb") as file:
                is_right = hashlib.sha256(file.read()).hexdigest() == sha256
        except OSError:
            found.add("absent")
        else:
            found.add("right" if is_right else "damaged")
    return "damaged" if "damaged" in found else "absent" if "absent" in found else "right"


def _cache_name(url: str) -> str:
    return hashlib.sha1(url.encode(), usedforsecurity=False).hexdigest()
