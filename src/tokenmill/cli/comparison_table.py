"""The table of `tokenmill tokenizer compare`, as text and as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tokenmill.cli.screen import shown_bytes

if TYPE_CHECKING:
    from tokenmill.vocabulary.comparison import Compared


@dataclass(frozen=True)
class ComparisonTable:
    """Bytes per token: a line for each source, a column for each tokenizer, the best marked."""

    found: list[Compared]
    sizes: dict[str, int]  # of the vocabularies, by the tokenizers' names

    def lines(self) -> list[str]:
        width = max(len("bytes per token"), *(len(one.name) for one in self.found))
        columns = [max(8, len(name)) for name in self.sizes]
        header = "  ".join(f"{name:>{w}}" for name, w in zip(self.sizes, columns, strict=True))
        lines = [f"{'bytes per token':<{width}}  {header}"]
        for one in self.found:
            rates = [one.bytes_per_token(name) for name in self.sizes] if one.num_documents else []
            cells = (
                f"{rate:.3f}{'*' if rate == max(rates) else ' '}".rjust(w)
                for rate, w in zip(rates, columns, strict=False)
            )
            lines.append(f"{one.name:<{width}}  {'  '.join(cells)}")
        everything = self.found[-1]
        unused = (
            f"{everything.usage[name].num_unused / size:.1%} ".rjust(w)
            for (name, size), w in zip(self.sizes.items(), columns, strict=True)
        )
        lines.append(f"{'never used':<{width}}  {'  '.join(unused)}")
        lines.append(f"{shown_bytes(everything.text_bytes)} of text; * the most bytes per token")
        return lines

    def to_plain(self) -> list[dict[str, Any]]:
        return [
            {
                "name": one.name,
                "text_bytes": one.text_bytes,
                "documents": one.num_documents,
                "tokenizers": {
                    name: {
                        "tokens": usage.num_tokens,
                        "bytes_per_token": one.bytes_per_token(name),
                        "never_used": usage.num_unused,
                    }
                    for name, usage in one.usage.items()
                },
            }
            for one in self.found
        ]
