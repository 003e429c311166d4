"""For people who extend tokenmill: the contract that every format passes.

    from tokenmill.testing import FormatContract

    class TestMine(FormatContract):
        format = MyFormat()

Then `pytest`. Nothing here is used by tokenmill itself, or imported by it.
"""

from tokenmill.testing.format_contract import FormatContract, Written, write_documents

__all__ = ["FormatContract", "Written", "write_documents"]
