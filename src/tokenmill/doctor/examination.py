"""All findings about the machine that need no script, the most helpful first."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping
from importlib import metadata
from urllib.parse import urlsplit

from tokenmill import __version__
from tokenmill.doctor import machine_findings as machine
from tokenmill.doctor.findings import Finding
from tokenmill.doctor.vocabulary import cache_finding, reach_finding

_PACKAGES = (
    *("gigatoken", "tiktoken", "pyarrow", "numpy", "datasets", "multiprocess", "dill"),
    *("huggingface_hub", "torch", "tokenizers"),
)


def examine(environment: Mapping[str, str]) -> list[Finding]:
    """Every finding about this machine and process; under two seconds, nothing heavy imported."""
    hub = hub_cache(environment)
    return [
        machine.cpu_finding(),
        machine.memory_finding(),
        machine.oom_finding(),
        machine.shared_memory_finding(),
        machine.open_files_finding(),
        machine.start_method_finding(),
        machine.threads_finding(environment),
        cache_finding(environment),
        reach_finding(environment),
        hub_finding(environment),
        machine.disk_finding("disk here", os.getcwd()),
        machine.temporary_files_finding(),
        machine.disk_finding("Hugging Face cache", hub),
        versions_finding(),
    ]


def hub_cache(environment: Mapping[str, str]) -> str:
    cache = environment.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    home = environment.get("HF_HOME") or os.path.join(cache, "huggingface")
    return environment.get("HF_DATASETS_CACHE") or home


def hub_finding(environment: Mapping[str, str]) -> Finding:
    """The variables that configure the Hub's client. Of a token, only whether it is set."""
    shown = []
    for name in ("HF_HOME", "HF_HUB_OFFLINE", "HF_ENDPOINT"):
        value = environment.get(name, "not set")
        if name == "HF_ENDPOINT" and "@" in value:  # user:password@host
            value = f"{urlsplit(value).scheme}://{urlsplit(value).hostname} (with a password)"
        shown.append(f"{name} {value}")
    shown.append(f"HF_TOKEN {'set' if environment.get('HF_TOKEN') else 'not set'}")
    return Finding("ok", "Hugging Face", ", ".join(shown))


def versions_finding() -> Finding:
    libc = " ".join(platform.libc_ver()).strip() or "unknown C library"
    shown = [
        f"Python {platform.python_version()} ({sys.platform}, {platform.machine()}, {libc}, "
        f"kernel {platform.release()})",
        f"tokenmill {__version__}",
    ]
    for name in _PACKAGES:
        try:
            shown.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            shown.append(f"{name} not installed")
    return Finding("ok", "versions", ", ".join(shown))
