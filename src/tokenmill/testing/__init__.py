"""For authors of plugins: the contract tests that every format, reader and encoding passes.

    from tokenmill.testing import FormatContract

    class TestMine(FormatContract):
        format = MyFormat()

Then run `pytest`. tokenmill itself imports nothing from here.
"""

from tokenmill.testing.encoding_contract import EncodingContract
from tokenmill.testing.format_contract import FormatContract, Written, write_documents
from tokenmill.testing.reader_contract import ReaderContract

__all__ = [
    "EncodingContract",
    "FormatContract",
    "ReaderContract",
    "Written",
    "write_documents",
]
