"""The real `huggingface_hub` client against tests/hub_server.py.

Two things at once: the server speaks the client's language, and what the client itself does about
a bad network is written down. A test that fails after an upgrade of the client says which of its
habits changed.
"""

from __future__ import annotations

import io
import json
import os
import random
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from email.utils import parsedate_to_datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hub_corpus import answer
from hub_server import (
    COMMIT,
    HubServer,
    cut,
    gated,
    ignored_range,
    rate_limited,
    rate_limited_until_date,
    redirect_loop,
    short_body,
    stall,
    status,
    wrong_bytes,
)
from xet_store import XetStore

SMALL = random.Random(1).randbytes(100_000)
# The client writes, and so resumes, in steps of 10 MiB: a file must be larger to see it.
CLIENT_STEP_BYTES = 10 << 20
LARGE = random.Random(2).randbytes(CLIENT_STEP_BYTES + 1_000_000)
FILES = {
    "README.md": b"# A dataset\n",
    "data/CC-MAIN-2024-10/a.parquet": SMALL,
    "data/CC-MAIN-2024-10/odd name#1.jsonl": b'{"text": "x"}\n',
    "data/CC-MAIN-2024-18/b.parquet": b"b" * 10,
}

CLIENT = """
import json
import os
from huggingface_hub import HfApi, HfFileSystem, hf_hub_download, snapshot_download

REPO = "OWNER/NAME"

def download(path, **options):
    return hf_hub_download(REPO, path, repo_type="dataset", **options)

def outcome(call):
    try:
        return call()
    except Exception as error:
        return " from ".join(type(e).__name__ for e in (error, error.__cause__) if e is not None)

def main():
{body}

print(json.dumps(outcome(main)), flush=True)
# At once: a thread of pyarrow that still calls Python would abort an interpreter that ends.
os._exit(0)
"""

Client = Callable[..., object]


@pytest.fixture
def client(tmp_path: Path) -> Client:
    """Runs the body of a function in a fresh process; what it returns, or its error's names."""

    def run(url: str, body: str, env: Mapping[str, str] | None = None) -> object:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
        settings = {
            "HF_ENDPOINT": url,
            "HF_HOME": str(tmp_path / "home"),
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "NO_PROXY": "*",
        }
        code = CLIENT.format(body=textwrap.indent(textwrap.dedent(body), "    "))
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**clean, **settings, **(env or {})},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


@pytest.fixture
def hub() -> Iterator[HubServer]:
    with HubServer(FILES, page_size=2) as server:
        yield server


def test_download_when_xet_is_on_comes_from_the_store(client: Client, tmp_path: Path) -> None:
    with HubServer({"a.parquet": SMALL}, xet=XetStore(tmp_path / "store")) as hub:
        path = client(hub.url, 'return download("a.parquet")', {"HF_HUB_DISABLE_XET": "0"})
        assert Path(path).read_bytes() == SMALL
        assert hub.asked("xet-read-token") and not hub.asked("^GET /cdn/")


def test_listing_when_paged_then_holds_every_entry_with_its_sha256(
    client: Client, hub: HubServer
) -> None:
    sha, tree, inner, paths = client(
        hub.url,
        """
        api = HfApi()
        tree = list(api.list_repo_tree(REPO, recursive=True, revision="main", repo_type="dataset"))
        inner = api.list_repo_tree(REPO, "data/CC-MAIN-2024-10", repo_type="dataset")
        paths = api.get_paths_info(REPO, ["README.md", "data", "none"], repo_type="dataset")
        return [
            api.repo_info(REPO, revision="main", repo_type="dataset").sha,
            {f.path: [f.size, f.lfs and f.lfs.sha256] for f in tree if hasattr(f, "size")},
            [f.path for f in inner],
            [p.path for p in paths],
        ]
        """,
    )
    assert sha == COMMIT
    assert {path: size for path, (size, _) in tree.items()} == {
        path: len(content) for path, content in FILES.items()
    }
    assert tree["README.md"][1] is None
    assert tree["data/CC-MAIN-2024-18/b.parquet"][1] == (
        "6d2fe32dc4249ef7e7359c6d874fffbbf335e832e49a2681236e1b686af78794"
    )
    assert inner == ["data/CC-MAIN-2024-10/a.parquet", "data/CC-MAIN-2024-10/odd name#1.jsonl"]
    assert paths == ["README.md", "data"]
    # 4 files and 3 folders, two to a page.
    assert len(hub.asked(r"GET .*/tree/main\?")) == 4


def test_download_when_to_cache_or_folder_then_bytes_are_right_and_second_call_fetches_nothing(
    client: Client, hub: HubServer, tmp_path: Path
) -> None:
    cached, again, copied = client(
        hub.url,
        f"""
        paths = {list(FILES)!r}
        return [
            [download(path) for path in paths],
            [download(path) for path in paths],
            [download(path, local_dir="local", cache_dir="empty") for path in paths],
        ]
        """,
    )
    assert [Path(path).read_bytes() for path in cached] == list(FILES.values())
    assert again == cached
    assert copied == [str(tmp_path / "local" / path) for path in FILES]
    assert [Path(path).read_bytes() for path in copied] == list(FILES.values())
    assert len(hub.asked("HEAD ")) == 3 * len(FILES)
    assert len(hub.asked("GET ")) == 2 * len(FILES)


def test_download_when_cut_in_order_then_client_resumes_from_its_last_whole_step(
    client: Client,
) -> None:
    with HubServer({"big.bin": LARGE}) as hub:
        cut_late = cut(CLIENT_STEP_BYTES + 500_000)
        hub.fail("GET /cdn", cut_late, lambda right: right, cut_late, ignored_range())
        paths = client(
            hub.url, "return [download('big.bin', cache_dir=name) for name in ('one', 'two')]"
        )
        assert [Path(path).read_bytes() == LARGE for path in paths] == [True, True]
        resumed = f"bytes={CLIENT_STEP_BYTES}-"
        assert [r.range for r in hub.asked("GET ")] == [None, resumed, None, resumed]


def test_download_when_reset_then_client_gives_up_and_next_call_starts_from_zero(
    client: Client, tmp_path: Path
) -> None:
    with HubServer({"big.bin": LARGE}) as hub:
        hub.fail("GET /cdn", cut(CLIENT_STEP_BYTES + 500_000, resets=True))
        assert client(hub.url, "return download('big.bin')") == "ReadError from ReadError"
        assert not list(tmp_path.rglob("*.incomplete"))
        assert Path(client(hub.url, "return download('big.bin')")).read_bytes() == LARGE
        assert [r.range for r in hub.asked("GET ")] == [None, None]


def test_download_when_bytes_are_wrong_then_client_notices_length_only(
    client: Client, hub: HubServer, tmp_path: Path
) -> None:
    name = "data/CC-MAIN-2024-10/a.parquet"
    hub.fail("GET /cdn", short_body(500), wrong_bytes())
    assert client(hub.url, f"return download({name!r})") == "OSError"
    path = client(hub.url, f"return download({name!r})")
    got = Path(path).read_bytes()
    assert len(got) == len(SMALL)
    assert got != SMALL


def test_download_when_client_does_not_retry_then_its_error_is_known(
    client: Client, hub: HubServer
) -> None:
    hub.fail("HEAD .*parquet", gated(403), gated(401), redirect_loop(), cut())
    hub.fail("GET /cdn", status(503))
    assert client(
        hub.url,
        "return [outcome(lambda: download('data/CC-MAIN-2024-18/b.parquet')) for _ in range(5)]",
    ) == [
        "GatedRepoError from HTTPStatusError",
        "GatedRepoError from HTTPStatusError",
        "TooManyRedirects",
        "RemoteProtocolError from RemoteProtocolError",
        "HfHubHTTPError from HTTPStatusError",
    ]
    assert len(hub.asked("HEAD .*parquet")) == 5
    assert len(hub.asked("GET /cdn")) == 1


def test_download_when_line_stalls_then_client_retries_after_its_timeout(
    client: Client, hub: HubServer
) -> None:
    hub.fail("HEAD ", stall(30))
    hub.fail("GET /cdn", stall(30, after_bytes=5))
    path = client(
        hub.url,
        "return download('data/CC-MAIN-2024-18/b.parquet')",
        {"HF_HUB_ETAG_TIMEOUT": "1", "HF_HUB_DOWNLOAD_TIMEOUT": "1"},
    )
    assert Path(path).read_bytes() == b"b" * 10
    assert [r.method for r in hub.requests] == ["HEAD", "HEAD", "GET", "GET"]


def test_names_when_missing_then_client_says_which(client: Client, hub: HubServer) -> None:
    assert client(
        hub.url,
        """
        api = HfApi()
        return [
            outcome(lambda: api.dataset_info("NO/SUCH")),
            outcome(lambda: api.dataset_info("NO/SUCH", token="hf_x")),
            outcome(lambda: api.dataset_info(REPO, revision="nope")),
            outcome(lambda: download("nope.bin")),
            outcome(lambda: download("README.md", revision="nope")),
            outcome(lambda: list(api.list_repo_tree(REPO, "nope", repo_type="dataset"))),
            outcome(lambda: HfFileSystem().open(f"datasets/{REPO}/nope.bin")),
        ]
        """,
    ) == [
        "RepositoryNotFoundError from HTTPStatusError",
        "RepositoryNotFoundError from HTTPStatusError",
        "RevisionNotFoundError from HTTPStatusError",
        "RemoteEntryNotFoundError from HTTPStatusError",
        "RevisionNotFoundError from HTTPStatusError",
        "RemoteEntryNotFoundError from HTTPStatusError",
        "FileNotFoundError",
    ]


def test_network_when_refused_then_info_fails(client: Client) -> None:
    with HubServer({}) as hub:
        pass
    result = client(hub.url, "return HfApi().dataset_info(REPO).sha")
    assert result == "ConnectError from ConnectError"


def test_rate_limit_when_listing_then_client_waits_but_not_for_info_or_dates(
    client: Client, hub: HubServer
) -> None:
    hub.fail("/tree/", rate_limited(1), status(200, body=b"[]"), rate_limited_until_date(20))
    hub.fail("GET /api/datasets/OWNER/NAME$", rate_limited(1))
    assert client(
        hub.url,
        """
        return [
            len(list(HfApi().list_repo_tree(REPO, repo_type="dataset"))),
            len(list(HfApi().list_repo_tree(REPO, repo_type="dataset"))),
            outcome(lambda: HfApi().dataset_info(REPO).sha),
        ]
        """,
    ) == [0, 2, "HfHubHTTPError from HTTPStatusError"]
    limited, answered, limited_by_date, answered_too = hub.asked("/tree/")
    assert answered.at_seconds - limited.at_seconds > 1.9  # Retry-After and a second
    assert 0.9 < answered_too.at_seconds - limited_by_date.at_seconds < 10  # the date is not read
    assert len(hub.asked("NAME$")) == 1


def test_parquet_when_read_through_filesystem_then_only_ranges_are_sent(client: Client) -> None:
    table = pa.table({"text": [random.Random(n).randbytes(100).hex() for n in range(50_000)]})
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=5_000, compression="none", use_dictionary=False)
    with HubServer({"a.parquet": sink.getvalue()}) as hub:
        num_rows, first = client(
            hub.url,
            """
            import pyarrow.parquet as pq
            with HfFileSystem().open(f"datasets/{REPO}/a.parquet", block_size=2**16) as file:
                parquet = pq.ParquetFile(file)
                return [parquet.metadata.num_rows, parquet.read_row_group(3)["text"][0].as_py()]
            """,
        )
        assert num_rows == 50_000
        assert first == table["text"][15_000].as_py()
        assert all(request.range for request in hub.asked("GET /cdn"))
        assert hub.num_file_bytes_sent < len(sink.getvalue()) / 4


def test_snapshot_when_patterns_given_then_only_those_come_and_offline_finds_them(
    client: Client, hub: HubServer
) -> None:
    snapshot = """
    return snapshot_download(REPO, repo_type="dataset", allow_patterns="data/*-10/*")
    """
    folder = Path(client(hub.url, snapshot))
    assert sorted(str(p.relative_to(folder)) for p in folder.rglob("*.*")) == [
        "data/CC-MAIN-2024-10/a.parquet",
        "data/CC-MAIN-2024-10/odd name#1.jsonl",
    ]
    num_requests = len(hub.requests)
    offline = {"HF_HUB_OFFLINE": "1"}
    assert client(hub.url, snapshot, offline) == str(folder)
    file = "data/CC-MAIN-2024-10/a.parquet"
    assert client(hub.url, f"return download({file!r})", offline) == str(folder / file)
    assert client(
        hub.url,
        """
        return [
            outcome(lambda: download("README.md")),
            outcome(lambda: snapshot_download(REPO, repo_type="dataset")),
            outcome(lambda: HfApi().dataset_info(REPO)),
        ]
        """,
        offline,
    ) == [
        "LocalEntryNotFoundError from OfflineModeIsEnabled",
        "IncompleteSnapshotError from OfflineModeIsEnabled",
        "OfflineModeIsEnabled",
    ]
    assert len(hub.requests) == num_requests


def test_token_when_set_then_hub_gets_it_and_cdn_does_not(client: Client, hub: HubServer) -> None:
    body = """
    file = HfFileSystem().open(f"datasets/{REPO}/data/CC-MAIN-2024-18/b.parquet")
    return [download("data/CC-MAIN-2024-10/a.parquet"), len(file.read())]
    """
    client(hub.url, body, {"HF_TOKEN": "hf_made_up"})
    by_origin = {
        origin: {r.authorization for r in hub.requests if r.origin == origin}
        for origin in ("hub", "cdn")
    }
    assert by_origin == {"hub": {"Bearer hf_made_up"}, "cdn": {None}}


def test_branch_when_pushed_to_then_download_follows_and_old_commit_stays(
    client: Client, hub: HubServer
) -> None:
    hub.push({"README.md": b"# New\n"}, "ab" * 20)
    new, old = client(
        hub.url, f"return [download('README.md'), download('README.md', revision={COMMIT!r})]"
    )
    assert Path(new).read_bytes() == b"# New\n"
    assert Path(old).read_bytes() == FILES["README.md"]


@pytest.mark.parametrize(
    ("asked", "code", "content_range", "body"),
    [
        (None, 200, None, b"0123456789"),
        ("bytes=2-4", 206, "bytes 2-4/10", b"234"),
        ("bytes=7-", 206, "bytes 7-9/10", b"789"),
        ("bytes=7-99", 206, "bytes 7-9/10", b"789"),
        ("bytes=-3", 206, "bytes 7-9/10", b"789"),
        ("bytes=-99", 206, "bytes 0-9/10", b"0123456789"),
        ("bytes=10-", 416, "bytes */10", b""),
    ],
)
def test_range_when_asked_then_answer_is_exact(
    asked: str | None, code: int, content_range: str | None, body: bytes
) -> None:
    with HubServer({"a.json": b"0123456789"}) as hub:
        path = "/datasets/OWNER/NAME/resolve/main/a.json"
        got_code, headers, got = answer(hub.url, path, asked)
        assert (got_code, headers.get("Content-Range"), got) == (code, content_range, body)
        hub.fail("GET ", ignored_range())
        if code == 206:
            got_code, headers, got = answer(hub.url, path, asked)
            assert (got_code, "Content-Range" in headers, got) == (200, False, b"0123456789")


def test_faults_when_planned_then_used_in_order_and_once(hub: HubServer) -> None:
    hub.fail("README", rate_limited_until_date(600), status(502))
    path = "/datasets/OWNER/NAME/resolve/main/README.md"
    code, headers, _ = answer(hub.url, path)
    seconds = parsedate_to_datetime(headers["Retry-After"]).timestamp() - time.time()
    assert code == 429
    assert 300 < seconds <= 600
    assert [answer(hub.url, path)[0] for _ in range(2)] == [502, 200]


def test_line_when_throttled_then_connections_share_it() -> None:
    content = bytes(100_000)
    with HubServer({"a.json": content}, bytes_per_second=400_000) as hub:
        path = "/datasets/OWNER/NAME/resolve/main/a.json"
        threads = [threading.Thread(target=answer, args=(hub.url, path)) for _ in range(4)]
        start = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert time.monotonic() - start > 0.9
        assert hub.num_file_bytes_sent == 400_000
