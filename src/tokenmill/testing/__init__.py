"""For people who extend tokenmill: the contracts that every format, reader and encoding passes.

    from tokenmill.testing import FormatContract

    class TestMine(FormatContract):
        format = MyFormat()

Then `pytest`. Nothing here is used by tokenmill itself, or imported by it.
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
