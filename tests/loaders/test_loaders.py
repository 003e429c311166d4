"""The loaders that other tests trust read what the trainers' own writers write."""

import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from loader_env import loader, write_own

DOCUMENTS = [[1, 2, 3, 9], [4, 9], [5, 6, 7, 8, 9]]
IN_FOURS = [[1, 2, 3, 9], [4, 9, 5, 6]]  # the last 3 tokens do not fill a sample


def test_megatron_when_written_by_its_builder_gives_documents(tmp_path: Path) -> None:
    write_own("megatron", tmp_path, DOCUMENTS, "int32")
    found = loader("megatron", tmp_path, "--split", "train")
    assert found["documents"] == DOCUMENTS
    assert found["dtypes"] == ["int32"]


def test_datatrove_when_written_by_its_file_gives_documents_and_windows(tmp_path: Path) -> None:
    write_own("datatrove", tmp_path, DOCUMENTS, "uint32")
    found = loader("datatrove", tmp_path, "--dtype", "uint32", "--seq-len", 4)
    assert found["documents"] == DOCUMENTS
    assert found["samples"] == [[1, 2, 3, 9, 4], [9, 5, 6, 7, 8]]
    assert found["positions"] == [[0, 1, 2, 3, 0], [0, 0, 1, 2, 3]]


def test_mds_when_written_by_its_writer_gives_documents(tmp_path: Path) -> None:
    write_own("mds", tmp_path, DOCUMENTS, "uint16")
    found = loader("mds", tmp_path)
    assert found["documents"] == DOCUMENTS
    assert found["dtypes"] == ["uint16"]


def test_mds_when_written_with_a_fixed_length_gives_samples(tmp_path: Path) -> None:
    write_own("mds", tmp_path, IN_FOURS, "uint16:4")
    found = loader("mds", tmp_path)
    assert found["samples"] == IN_FOURS
    assert "documents" not in found


@pytest.mark.parametrize("dtype", ["uint16", "uint32"])  # a torch code and a numpy code
def test_litdata_when_written_by_its_cache_gives_blocks(tmp_path: Path, dtype: str) -> None:
    write_own("litdata", tmp_path, DOCUMENTS, dtype)
    assert loader("litdata", tmp_path, "--block-size", 4)["samples"] == IN_FOURS


def test_olmo_when_arrays_are_raw_gives_documents_and_instances(tmp_path: Path) -> None:
    # Its writer, dolma, is a compiled tokenizer; the layout is the one OLMo-core documents.
    ends = np.cumsum([len(document) for document in DOCUMENTS])
    np.concatenate(DOCUMENTS).astype("<u4").tofile(tmp_path / "part-train-00000.npy")
    with gzip.open(tmp_path / "part-train-00000.csv.gz", "wt") as file:
        for start, end in zip([0, *ends], ends, strict=False):
            file.write(f"{start},{end},id,a.jsonl,1\n")
    found = loader("olmo", tmp_path, "--eos", 9, "--vocab-size", 100277, "--seq-len", 4)
    assert found["dtype"] == "uint32"
    assert found["documents"] == found["documents_by_eos"] == DOCUMENTS
    assert found["samples"] == IN_FOURS


def test_parquet_when_written_by_pyarrow_gives_documents(tmp_path: Path) -> None:
    table = pa.table({"input_ids": pa.array(DOCUMENTS, pa.list_(pa.uint16()))})
    pq.write_table(table, tmp_path / "train-00000.parquet")
    found = loader("parquet", tmp_path)
    assert found["documents"] == DOCUMENTS
    assert found["dtype"] == "uint16"
