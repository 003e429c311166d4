"""Makes a server of the tests the Hub of this process: `huggingface_hub` reads HF_* on import."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import huggingface_hub
import huggingface_hub.constants


def connect(monkeypatch, url: str, home: Path, token: str | None = None) -> None:
    constants = huggingface_hub.constants
    template = f"{url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    for name, value in {
        "ENDPOINT": url,
        "HUGGINGFACE_CO_URL_TEMPLATE": template,
        "HF_HUB_DISABLE_XET": True,
        "HF_HUB_OFFLINE": False,
        "HF_HUB_CACHE": str(home / "hub"),
        "HF_TOKEN_PATH": str(home / "token"),
    }.items():
        monkeypatch.setattr(constants, name, value)
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    if token is not None:
        monkeypatch.setenv("HF_TOKEN", token)


def share_blobs(cache: Path) -> None:
    """Lay the cache out as huggingface_hub 1.33 and hf_xet do: a blob is a link into the store that
    all repositories share, where files have the names of their Xet hashes."""
    for blob in list(cache.glob("*--*/blobs/*")):
        name = hashlib.sha256(b"xet" + blob.name.encode()).hexdigest()
        kept = cache / "blobs" / name[:2] / name
        kept.parent.mkdir(parents=True, exist_ok=True)
        blob.rename(kept)
        blob.symlink_to(os.path.relpath(kept, blob.parent))


def disconnect(monkeypatch) -> None:
    """HF_HUB_OFFLINE=1, and nobody there."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
