"""Files over several connections, from the CDN of the tests' Hub, in this process."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import mmap
import random
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import download_client
import hub_server
from download_client import SMALL_RANGES
from hub_server import HubServer, Line, Response
from tokenmill.corpus.download import connection_count, downloads, line_meter
from tokenmill.corpus.download.downloads import Downloads
from tokenmill.corpus.download.file_download import FileDownload, FileRange, RangeWish
from tokenmill.corpus.download.http_answers import HttpAnswers
from tokenmill.corpus.download.http_source import HttpSource
from tokenmill.storage.partial_file import PartialFile

FILES = {f"{i}.bin": random.Random(i).randbytes(2_000_000 + i) for i in range(3)}
SIZE = sum(map(len, FILES.values()))
CLIENTS: list[Client] = []


@pytest.fixture(autouse=True)
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SMALL_RANGES.items():
        monkeypatch.setattr(line_meter, name, value)


@pytest.fixture(autouse=True)
def closed_connections() -> Iterator[None]:
    yield
    while CLIENTS:
        CLIENTS.pop().answers.close()


class Client(download_client.Client):
    def __init__(self, server: HubServer, folder: Path) -> None:
        super().__init__(server.url, server.repo, folder)
        CLIENTS.append(self)

    def downloads(self, may_begin: Callable[[str], bool] = lambda name: True) -> Downloads:
        wanted = {path: (len(d), hashlib.sha256(d).hexdigest()) for path, d in FILES.items()}
        return super().downloads(wanted, may_begin)

    def fetch_all(self) -> None:
        with contextlib.closing(self.downloads()) as downloads:
            downloads.wait()

    def require_all(self) -> None:
        for path, data in FILES.items():
            assert (self.folder / path).read_bytes() == data
        assert sorted(path.name for path in self.folder.iterdir()) == sorted(FILES)


def bodies(server: HubServer) -> list[tuple[str, int]]:
    """File and first byte of every range that was asked for, in order."""
    asked = server.asked(r"^GET /cdn/")
    return [(request.path[-5:], int(re.findall(r"\d+", request.range)[0])) for request in asked]


@pytest.fixture
def server() -> Iterator[HubServer]:
    with HubServer(FILES) as running:
        yield running


def test_files_when_fetched_in_ranges_then_each_byte_is_sent_once_and_the_first_file_first(
    server, tmp_path, monkeypatch
):
    taken: list[tuple[str, int]] = []  # as the server sees it, late threads are late
    next_range = FileDownload.next_range

    def noted(self: FileDownload, *arguments: Any) -> FileRange | None:
        found = next_range(self, *arguments)
        if found is not None:
            taken.append((self.remote.name, found.start))
        return found

    monkeypatch.setattr(FileDownload, "next_range", noted)
    client = Client(server, tmp_path)
    client.fetch_all()
    client.require_all()
    assert server.num_file_bytes_sent == SIZE
    assert len(bodies(server)) > 3 * len(FILES)
    assert taken == sorted(taken) and len(taken) == len(bodies(server))
    assert len(server.asked(r"/resolve/")) == len(FILES)  # one address for all ranges of a file


def test_download_when_closed_and_begun_again_then_goes_on_with_what_is_missing(tmp_path):
    arrived = 0
    for _ in range(3):
        with HubServer(FILES, line=Line(bytes_per_second=SIZE)) as server:
            downloads = Client(server, tmp_path).downloads()
            while downloads.progress().num_bytes < arrived + 500_000:
                time.sleep(0.01)
            downloads.close()
            arrived = downloads.progress().num_bytes
    with HubServer(FILES) as server:
        client = Client(server, tmp_path)
        client.fetch_all()
        assert server.num_file_bytes_sent == SIZE - arrived
    client.require_all()


def test_far_away_then_no_more_ranges_are_asked_for_than_connections_are_wanted(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(connection_count, "FIRST_CONNECTIONS", 2)
    monkeypatch.setattr(connection_count, "MAX_CONNECTIONS", 2)
    line = Line(bytes_per_second_each=SIZE / 8, latency_seconds=0.15)
    with HubServer(FILES, line=line) as server:
        ended_at: list[float] = []
        right = server.answering

        @contextlib.contextmanager
        def watched(response: hub_server.Response) -> Iterator[hub_server.Response]:
            with right(response) as found:
                yield found
            if found.status == 206:
                ended_at.append(time.monotonic())

        server.answering = watched
        client = Client(server, tmp_path)
        client.fetch_all()
        client.require_all()
        assert server.num_file_bytes_sent == SIZE
        asked_at = [request.at_seconds for request in server.asked(r"^GET /cdn/")]
    most = max(
        sum(at <= now for at in asked_at) - sum(at < now for at in ended_at) for now in asked_at
    )
    assert most == 2


def test_progress_when_all_is_here_then_says_so(server, tmp_path):
    client = Client(server, tmp_path)
    with contextlib.closing(client.downloads()) as downloads:
        downloads.wait()
        found = downloads.progress()
    assert (found.num_bytes, found.total_bytes) == (SIZE, SIZE)
    assert (found.num_files, found.total_files, found.num_connections) == (3, 3, 0)
    client = Client(server, tmp_path)
    client.fetch_all()  # nothing but hashes
    assert server.num_file_bytes_sent == SIZE


def test_file_when_it_may_not_begin_then_waits_until_it_may(server, tmp_path):
    allowed = {"0.bin"}
    client = Client(server, tmp_path)
    with contextlib.closing(client.downloads(allowed.__contains__)) as downloads:
        while "0.bin" not in downloads.here:
            time.sleep(0.01)
        time.sleep(0.3)
        assert {path for path, _ in bodies(server)} == {"0.bin"}
        with downloads.changed:
            allowed.update(FILES)
            downloads.changed.notify_all()
        downloads.wait()
    client.require_all()


@pytest.mark.parametrize(
    "fault",
    [
        hub_server.cut(30_000),
        hub_server.cut(30_000, resets=True),
        hub_server.cut(),
        hub_server.short_body(1000),
        hub_server.status(500),
        hub_server.ignored_range(),
        hub_server.wrong_bytes(),
        hub_server.changed_file(),
        hub_server.refused_address(),
    ],
    ids=lambda fault: fault.__qualname__.split(".")[0],
)
def test_piece_when_it_fails_then_the_files_are_right_in_the_end(fault, server, tmp_path):
    server.fail(r"^GET /cdn/.*1\.bin", lambda right: right, lambda right: right, fault)
    client = Client(server, tmp_path)
    client.fetch_all()
    client.require_all()


def test_end_that_is_supplied_while_it_is_on_its_way_then_the_rest_is_waited_for(server, tmp_path):
    near_end = rf"bytes=\d+-{len(FILES['1.bin']) - 1}$"
    server.fail(
        r"^GET /cdn/.*1\.bin",
        hub_server.stall(1.0, 0),
        only=lambda request: re.search(near_end, request.range or "") is not None,
    )
    client = Client(server, tmp_path)
    with contextlib.closing(client.downloads()) as downloads:
        while downloads.progress().total_bytes - downloads.progress().num_bytes > 200_000:
            time.sleep(0.01)
        assert downloads.supply_end("1.bin", FILES["1.bin"][-200_000:]) is not None
        time.sleep(0.3)
        assert "1.bin" not in downloads.here  # a thread still writes to it
        downloads.wait()
    client.require_all()


@pytest.mark.parametrize("is_supply_wrong", [True, False])
def test_end_that_is_supplied_then_no_byte_is_replaced_once_it_is_here(
    is_supply_wrong, server, tmp_path
):
    """Or the hash would be of other bytes than those in the file."""
    right = FILES["1.bin"]
    near_end = rf"bytes=\d+-{len(right) - 1}$"

    def late(answer: Response) -> Response:
        other = bytes(answer.body[:-10]) + bytes(10)
        body = answer.body if is_supply_wrong else memoryview(other)
        return replace(answer, body=body, stall_at_bytes=0, stall_seconds=1.5)

    server.fail(
        r"^GET /cdn/.*1\.bin",
        late,
        only=lambda request: re.search(near_end, request.range or "") is not None,
    )
    client = Client(server, tmp_path)
    with contextlib.closing(client.downloads()) as downloads:
        while downloads.progress().total_bytes - downloads.progress().num_bytes > 450_000:
            time.sleep(0.01)
        time.sleep(0.5)  # all but the late range is here, and hashed
        num_missing = downloads.progress().total_bytes - downloads.progress().num_bytes
        supplied = bytearray(right[-num_missing - 100_000 :])
        supplied[0] ^= is_supply_wrong
        assert downloads.supply_end("1.bin", bytes(supplied)) is not None
        assert downloads.progress().num_bytes == SIZE
        downloads.wait()
        assert downloads.progress().num_bytes == SIZE
    client.require_all()
    assert not client.notices


def test_file_when_it_changes_for_good_then_nothing_of_the_old_one_stays(server, tmp_path):
    # All ranges but two come from another file; the last attempt gets the right one again.
    faults = [*[lambda right: right] * 2, *[hub_server.changed_file()] * 8]
    server.fail(r"^GET /cdn/.*0\.bin", *faults)
    client = Client(server, tmp_path)
    client.fetch_all()
    client.require_all()
    assert any("0.bin changed during the download" in notice for notice in client.notices)


def test_server_without_ranges_then_one_connection_gets_the_file(server, tmp_path):
    server.fail(r"^GET /cdn/", *[hub_server.ignored_range()] * 100)
    client = Client(server, tmp_path)
    client.fetch_all()
    client.require_all()
    assert len(bodies(server)) < 10 * len(FILES)  # of 20 ranges; the first few are asked for


def test_addresses_when_they_expire_then_fresh_ones_are_asked_for(tmp_path):
    line = Line(bytes_per_second_each=SIZE / 16)
    with HubServer(FILES, address_seconds=0.2, line=line) as server:
        client = Client(server, tmp_path)
        client.fetch_all()
        client.require_all()
        assert len(server.asked(r"/resolve/")) > len(FILES)
        assert server.num_file_bytes_sent == SIZE


def test_server_that_is_asked_too_much_then_nobody_sends_before_retry_after(tmp_path):
    with HubServer(FILES, line=Line(max_answers=2, bytes_per_second_each=SIZE)) as server:
        refused_at: list[float] = []
        right = server.answering

        @contextlib.contextmanager
        def watched(response: hub_server.Response) -> Iterator[hub_server.Response]:
            with right(response) as found:
                if found.status == 429:
                    refused_at.append(time.monotonic())
                yield found

        server.answering = watched
        client = Client(server, tmp_path)
        client.fetch_all()
        client.require_all()
        asked = [request.at_seconds for request in server.asked(r"^GET /cdn/")]
    assert refused_at
    for refusal in refused_at:
        # A request may already have been on its way.
        assert not [at for at in asked if refusal + 0.1 < at < refusal + 0.9]


@pytest.fixture
def new_session() -> Iterator[Callable[[], object]]:
    """Clients as huggingface_hub's own, made where the test wants: they read the environment."""
    from huggingface_hub.utils import _http

    with contextlib.ExitStack() as stack:
        yield lambda: stack.enter_context(_http.default_client_factory())


def test_client_of_the_program_is_used_where_it_made_one(server, tmp_path, new_session):
    client = Client(server, tmp_path)
    client.answers = HttpAnswers(new_session(), False, 10.0)
    client.fetch_all()
    client.require_all()


def test_proxy_of_the_environment_is_used_except_where_it_says_not_to(
    server, tmp_path, new_session, monkeypatch
):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # where nobody answers
    source = functools.partial(HttpSource, "0.bin", len(FILES["0.bin"]))
    address = Client(server, tmp_path)._address("0.bin")
    answers = HttpAnswers(new_session(), True, 10.0)
    with pytest.raises(Exception, match="refused"):
        next(source(lambda: address, answers).stream(0, 100))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with contextlib.closing(HttpAnswers(new_session(), True, 10.0)) as answers:
        [block] = source(lambda: address, answers).stream(0, 100)
        assert block == FILES["0.bin"][:100]


def test_two_downloads_of_the_same_files_then_each_byte_is_fetched_once(tmp_path):
    with HubServer(FILES, line=Line(bytes_per_second=SIZE)) as server:
        clients = [Client(server, tmp_path) for _ in range(2)]
        threads = [threading.Thread(target=client.fetch_all) for client in clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert server.num_file_bytes_sent == SIZE
    clients[0].require_all()


def test_two_files_with_the_same_bytes_then_the_second_is_there_as_soon_as_the_first(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(downloads, "IN_USE_SECONDS", 60.0)
    twins = {"0.bin": FILES["0.bin"], "1.bin": FILES["0.bin"], "2.bin": FILES["2.bin"]}
    monkeypatch.setattr(sys.modules[__name__], "FILES", twins)
    with HubServer(twins) as server:
        client = Client(server, tmp_path)
        running = client.downloads()
        with contextlib.closing(running), running.changed:
            assert running.changed.wait_for(lambda: len(running.here) == len(twins), timeout=20)
        client.require_all()
    assert not client.notices


def test_closed_while_a_server_is_silent_then_the_file_is_free_once_the_thread_is(
    server, tmp_path, monkeypatch
):
    monkeypatch.setattr(downloads, "CLOSE_SECONDS", 0.1)
    speaks_again = threading.Event()

    def silent(right: hub_server.Response) -> hub_server.Response:
        assert speaks_again.wait(60)
        return right

    server.fail(r"^GET /cdn/.*1\.bin", silent)
    first = Client(server, tmp_path).downloads()
    with first.changed:
        assert first.changed.wait_for(lambda: set(first.here) == {"0.bin", "2.bin"}, timeout=20)
    first.close()
    client = Client(server, tmp_path)
    second = client.downloads()
    while not client.notices:
        time.sleep(0.01)
    assert client.notices == ["another run is downloading 1.bin; waiting for it"]
    speaks_again.set()
    with contextlib.closing(second), second.changed:
        assert second.changed.wait_for(lambda: len(second.here) == len(FILES), timeout=20)
    client.require_all()


def test_file_of_50_gb_then_offsets_are_right(tmp_path):
    size = 51 * 10**9
    with open(tmp_path / "source", "w+b") as source:
        source.truncate(size)
        source.seek(size - 300_000)
        source.write(random.Random(1).randbytes(300_000))
        source.flush()
        content = mmap.mmap(source.fileno(), size, access=mmap.ACCESS_READ)
        with HubServer({"big.bin": memoryview(content)}) as server:
            client = Client(server, tmp_path)
            remote = client.remote("big.bin", size, hashlib.sha256(b"big.bin").hexdigest())
            done = PartialFile(remote.partial_path)
            done.write(memoryview(b"\0"), size - 300_001)
            done.ranges.add(0, size - 300_000)
            done._rewrite_journal()
            done.close()
            download = FileDownload(remote)
            assert download.num_bytes == size - 300_000
            range_ = download.next_range(RangeWish(100_000, 200_000), 4)
            assert (range_.start, range_.stop) == (size - 300_000, size - 200_000)
            for block in remote.source.stream(range_.start, range_.stop):
                download.write(range_, block)
            expected = content[size - 300_000 : size - 200_000]
            assert download.partial.read(100_000, size - 300_000) == expected
            download.partial.close()
            again = PartialFile(remote.partial_path)
            assert list(again.ranges) == [(0, size - 200_000)]
            again.close()
            assert bodies(server) == [("g.bin", size - 300_000)]
