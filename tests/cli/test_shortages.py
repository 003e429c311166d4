"""The machine has no more memory, processes or threads: that is said, and nothing else blamed."""

from __future__ import annotations

import errno
import json
import os
import threading

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tokenmill.cli import main
from tokenmill.runners.worker import outcome
from tokenmill.storage.output_errors import as_output_error


def raises(error: BaseException):
    def failing(*arguments: object, **more: object) -> None:
        raise error

    return failing


def no_memory() -> OSError:
    return OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))


NO_MAPPING = OSError("Memory mapping file failed: Cannot allocate memory")  # as Arrow words it
NO_MALLOC = pa.ArrowMemoryError("malloc of size 3066496 failed")
NO_SEGMENT = ImportError("libarrow.so: failed to map segment from shared object")
NO_THREAD = RuntimeError("can't start new thread")
NO_PROCESS = BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))


@pytest.fixture
def prepared(tmp_path, monkeypatch, capfd):
    """A function: the exit code and stderr of `prepare` in this process."""
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"text": ["one", "two"] * 50}), "a.parquet")
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "three"}) + "\n")

    def run(name: str, *options: str) -> tuple[int, str]:
        code = main(["prepare", name, "-o", "out", "--num-proc", "1", "--no-val", *options])
        return code, capfd.readouterr().err

    return run


@pytest.mark.parametrize(
    ("place", "name", "error"),
    [
        ("pyarrow.parquet.ParquetFile", "a.parquet", NO_MAPPING),
        ("pyarrow.parquet.ParquetFile", "a.parquet", NO_MALLOC),
        ("pyarrow.parquet.ParquetFile", "a.parquet", no_memory()),
        ("tokenmill.encode.mill.encode_slice", "a.jsonl", MemoryError()),
        ("tokenmill.encode.mill.encode_slice", "a.jsonl", NO_SEGMENT),
        ("numpy.memmap", "a.jsonl", no_memory()),
    ],
    ids=lambda value: value if isinstance(value, str) else repr(value)[:40],
)
def test_memory_when_there_is_no_more_then_that_is_said_and_the_run_can_go_on(
    place, name, error, prepared, monkeypatch
):
    with monkeypatch.context() as patch:
        patch.setattr(place, raises(error))
        code, said = prepared(name)
    assert code == 7, said
    assert "error: out of memory: " in said and "ulimit -v" in said
    assert "bug" not in said and "Traceback" not in said and "fetch it again" not in said
    assert prepared(name)[0] == 0


@pytest.mark.parametrize("error", [NO_THREAD, NO_PROCESS], ids=["thread", "process"])
def test_processes_when_no_more_may_be_started_then_that_is_said(error, prepared, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("tokenmill.encode.mill.encode_slice", raises(error))
        code, said = prepared("a.jsonl")
    assert code == 7, said
    assert "no more processes or threads may be started" in said and "pids.max" in said
    assert "bug" not in said and "Traceback" not in said


def test_worker_when_a_file_cannot_be_written_for_lack_of_memory_then_that_is_its_answer():
    def write() -> None:
        with as_output_error("write", "out/train.bin"):
            raise no_memory()

    assert outcome(write) == ("memory",)
    assert outcome(raises(no_memory())) == ("memory",)
    assert outcome(raises(NO_MALLOC)) == ("memory",)
    assert outcome(raises(NO_THREAD))[0] == "error"
    assert outcome(raises(ValueError("other")))[0] == "bug"


def test_pipe_as_vocabulary_is_read_though_it_has_no_size(tmp_path):
    from tokenmill.encodings.vocabulary_file import vocabulary_bytes

    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(b"x" * 1000,))
    writer.start()
    assert len(vocabulary_bytes(pipe)) == 1000
    writer.join()
