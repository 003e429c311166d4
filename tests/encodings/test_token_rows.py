"""The bytes of all ids at once are those of each id, by tiktoken or whatever the reference is."""

from __future__ import annotations

import hashlib
import subprocess
import sys

import pytest

import tokenmill
from tokenmill.encodings.published import BUILTIN
from tokenmill.encodings.ranks import known_ranks, parsed_ranks
from tokenmill.encodings.vocabulary_file import VOCAB_FOLDER


@pytest.mark.parametrize("name", BUILTIN)
def test_rows_of_a_shipped_encoding_are_those_of_tiktoken(name):
    encoding = tokenmill.get_encoding(name)
    # In a process of its own: here, the reference may be loaded already.
    code = f"""
import hashlib, tokenmill
from tokenmill.encodings import loading
rows = tokenmill.get_encoding({name!r}).token_rows()
assert not loading._REFERENCES
print(len(rows), hashlib.sha256(repr(rows).encode()).hexdigest())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    expected = []
    for token in range(encoding.n_vocab):
        try:
            expected.append(encoding.decode_single_token_bytes(token))
        except KeyError:
            expected.append(b"")
    if name == "o200k_harmony":  # this id has two names, and tiktoken takes one by chance
        assert expected[200018] in (b"<|endofprompt|>", b"<|reserved_200018|>")
        expected[200018] = b"<|endofprompt|>"
    digest = hashlib.sha256(repr(expected).encode()).hexdigest()
    assert done.stdout.split() == [str(len(expected)), digest]
    by_reference = encoding.token_rows()  # now that it is loaded
    assert [n for n, row in enumerate(by_reference) if row != expected[n]] in ([], [200018])
    for token, text in encoding.special_tokens_by_id.items():
        assert encoding.encode_single_token(text) == token


@pytest.mark.parametrize("name", BUILTIN)
def test_ranks_of_a_known_file_are_those_that_are_checked_line_by_line(name):
    data = (VOCAB_FOLDER / BUILTIN[name].file).read_bytes()
    assert known_ranks(data) == parsed_ranks(data, name)
