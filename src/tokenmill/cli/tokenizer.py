"""`tokenmill tokenizer train` and `tokenmill tokenizer compare`."""

from __future__ import annotations

import argparse
import json
import re
import sys
from typing import TYPE_CHECKING, Any

from tokenmill.cli import run_options
from tokenmill.cli.moving_line import MovingLine
from tokenmill.cli.screen import printable, shown_bytes, shown_count
from tokenmill.errors import ConfigError
from tokenmill.words.plural import counted
from tokenmill.words.quantities import count_of

if TYPE_CHECKING:
    from tokenmill.encodings import Encoding
    from tokenmill.vocabulary.comparison import Compared
    from tokenmill.vocabulary.training import Trained

_HEADING = "bytes per token"


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "tokenizer",
        help="train a tokenizer of your own, or compare some on your text",
        description="Train a byte-pair tokenizer on a corpus, or compare tokenizers on one.",
    )
    parser.set_defaults(run=lambda arguments: _say_what_to_type(parser), verbose=False)
    actions = parser.add_subparsers(title="actions", dest="action", metavar="ACTION")
    _add_train(actions)
    _add_compare(actions)


def _say_what_to_type(parser: argparse.ArgumentParser) -> int:
    parser.print_help(sys.stderr)
    return 2


def _add_train(actions: Any) -> None:
    parser = actions.add_parser(
        "train",
        help="learn a vocabulary from a corpus",
        description="Learn a byte-pair vocabulary from a corpus. Writes FILE.json, a "
        "tokenizer.json for `tokenizers` and `prepare`, and FILE.tiktoken, its ranks. The same "
        "corpus and options give the same file. An interrupted run continues counting.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="""\
examples:
  tokenmill tokenizer train corpus/*.parquet -o my.json --vocab-size 32768
  tokenmill tokenizer train corpus/ -o my.json --vocab-size 50257 --pattern gpt2 --sample 2GB
  tokenmill prepare corpus/ --tokenizer my.json -o data/mine""",
    )
    run_options.add_sources(parser)
    parser.add_argument("-o", "--out", required=True, metavar="FILE.json", help="the tokenizer")
    parser.add_argument(
        "--vocab-size", required=True, metavar="N", help="tokens, special ones included: 32768"
    )
    parser.add_argument(
        "--pattern",
        default="cl100k",
        help="how text is cut into words: gpt2, cl100k, o200k, qwen or a regular expression "
        "(default: cl100k)",
    )
    parser.add_argument(
        "--special-token",
        action="append",
        metavar="TEXT",
        help="added after the merges; may be repeated (default: <|endoftext|>)",
    )
    parser.add_argument(
        "--ties",
        choices=("tokenizers", "bytes"),
        default="tokenizers",
        help="of two pairs that are equally frequent, which first: by the letters that stand for "
        "bytes, as `tokenizers` does (default), or by bytes, as rustbpe does",
    )
    reading = run_options.add_reading_options(parser)
    reading.add_argument("--where", metavar="EXPR", help="only rows for which this is true")
    reading.add_argument(
        "--sample",
        metavar="SIZE|F",
        help="learn from about so much text (2GB), or this fraction of the rows (0.1), spread over "
        "the corpus (default: all)",
    )
    parser.add_argument("--seed", type=int, metavar="S", help="of the sample (default: 0)")
    parser.add_argument(
        "--num-proc", type=int, metavar="N", help="threads (default: the CPUs there are)"
    )
    parser.add_argument(
        "--overwrite", action="store_true", help="replace FILE.json and FILE.tiktoken"
    )
    parser.add_argument("--json", action="store_true", help="print the summary as JSON on stdout")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress, no summary")
    parser.add_argument("-v", "--verbose", action="store_true", help="tracebacks with errors")
    parser.set_defaults(run=run_train)


def _add_compare(actions: Any) -> None:
    parser = actions.add_parser(
        "compare",
        help="bytes per token of several tokenizers on your text",
        description="Encode a sample of a corpus with several tokenizers: bytes per token, file by "
        "file (one file per language or source says most), and how many tokens are never used.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="""\
examples:
  tokenmill tokenizer compare my.json gpt2 o200k_base --corpus corpus/*.parquet""",
    )
    parser.add_argument("tokenizers", nargs="+", metavar="TOKENIZER", help="names or files")
    parser.add_argument(
        "--corpus", nargs="+", required=True, dest="sources", metavar="SOURCE", help="the text"
    )
    run_options.add_reading_options(parser)
    parser.add_argument(
        "--bytes-per-file", default="8M", metavar="N", help="of text at most (default: 8M)"
    )
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.add_argument("-v", "--verbose", action="store_true", help="tracebacks with errors")
    parser.set_defaults(run=run_compare)


def run_train(arguments: argparse.Namespace) -> int:
    from tokenmill.vocabulary.training import TrainingOptions, train

    sample, sample_bytes = _parsed_sample(arguments.sample)
    options = TrainingOptions(
        vocab_size=count_of("--vocab-size", arguments.vocab_size),
        pattern=arguments.pattern,
        special_tokens=tuple(arguments.special_token or ("<|endoftext|>",)),
        ties=arguments.ties,
    )
    arguments.pattern = None  # not for a tokenizer that exists
    config = run_options.typed_config(arguments, sample=sample, overwrite=False)
    line = MovingLine(sys.stderr, arguments.quiet)
    try:
        trained = train(
            config,
            options,
            sample_bytes=sample_bytes,
            overwrite=arguments.overwrite,
            watch=_watch(line, options.vocab_size),
        )
    finally:
        line.end()
    if arguments.json:
        print(json.dumps(trained.to_plain()))
    elif not arguments.quiet:
        for text in summary(trained, options.vocab_size):
            print(printable(text))
    return 0


def _watch(line: MovingLine, vocab_size: int) -> Any:
    from tokenmill.vocabulary.training import TrainingWatch

    class Watch(TrainingWatch):
        total = done = 0

        def planned(self, text_bytes: int) -> None:
            self.total = text_bytes

        def counted(self, text_bytes: int) -> None:
            self.done += text_bytes
            line.show("counting words", self.done, self.total)

        def merged(self, num_tokens: int) -> None:
            line.show("merging pairs", num_tokens, vocab_size)

        def notice(self, message: str) -> None:
            line.end()
            print(printable(message), file=sys.stderr)

    return Watch()


def summary(trained: Trained, asked: int) -> list[str]:
    lines = [
        f"learned {trained.vocab_size:,} tokens from {shown_bytes(trained.text_bytes)} of text: "
        f"{counted(trained.num_documents, 'document')}, "
        f"{shown_count(trained.num_words)} different words",
        f"        {trained.bytes_per_token:.3f} bytes a token on that text",
        f"saved   {trained.path} and {trained.ranks_path}",
        f"next    tokenmill prepare SOURCE --tokenizer {trained.path} -o OUT",
    ]
    if trained.vocab_size < asked:
        lines.insert(2, f"        {asked:,} were asked for: there is no pair left to merge")
    if trained.dropped_share:
        lines.insert(
            2, f"        {trained.dropped_share:.2%} of all words were too rare to be kept"
        )
    return lines


def _parsed_sample(text: str | None) -> tuple[float | None, int | None]:
    """A fraction of the rows, or a size."""
    if text is None:
        return None, None
    if re.fullmatch(r"0?\.\d+", text):
        return float(text), None
    if (size := re.fullmatch(r"(\d+(?:\.\d+)?[KMGT]?)i?B?", text, re.IGNORECASE)) is None:
        raise ConfigError(
            f"--sample {text}: neither a size nor a fraction", hint="--sample 2GB, or --sample 0.1"
        )
    return None, count_of("--sample", size[1].upper())


def run_compare(arguments: argparse.Namespace) -> int:
    from tokenmill.encodings import get_encoding
    from tokenmill.vocabulary.comparison import compare

    encodings = _by_name({typed: get_encoding(typed) for typed in arguments.tokenizers})
    found = compare(
        encodings,
        run_options.typed_config(arguments),
        count_of("--bytes-per-file", arguments.bytes_per_file),
    )
    names = list(encodings)
    sizes = {name: encoding.n_vocab for name, encoding in encodings.items()}
    if arguments.json:
        print(json.dumps([_plain(one, names) for one in found], indent=1))
        return 0
    for text in table(found, names, sizes):
        print(printable(text))
    return 0


def _by_name(typed: dict[str, Encoding]) -> dict[str, Encoding]:
    """Tokenizers by their names; as they were typed, if two have the same name."""
    found = {encoding.name: encoding for encoding in typed.values()}
    return found if len(found) == len(typed) else typed


def table(found: list[Compared], names: list[str], sizes: dict[str, int]) -> list[str]:
    """Bytes per token: a line for each file, a column for each tokenizer, the best marked."""
    width = max(len(_HEADING), *(len(one.name) for one in found))
    columns = [max(8, len(name)) for name in names]
    header = "  ".join(f"{name:>{w}}" for name, w in zip(names, columns, strict=True))
    lines = [f"{_HEADING:<{width}}  {header}"]
    for one in found:
        rates = [one.bytes_per_token(name) for name in names] if one.num_documents else []
        cells = (
            f"{rate:.3f}{'*' if rate == max(rates) else ' '}".rjust(w)
            for rate, w in zip(rates, columns, strict=False)
        )
        lines.append(f"{one.name:<{width}}  {'  '.join(cells)}")
    unused = (
        f"{found[-1].usage[name].num_unused / sizes[name]:.1%}".rjust(w)
        for name, w in zip(names, columns, strict=True)
    )
    lines.append(f"{'never used':<{width}}  {'  '.join(unused)}")
    lines.append(f"{shown_bytes(found[-1].text_bytes)} of text; * the most bytes per token")
    return lines


def _plain(one: Compared, names: list[str]) -> dict[str, Any]:
    return {
        "name": one.name,
        "text_bytes": one.text_bytes,
        "documents": one.num_documents,
        "tokenizers": {
            name: {
                "tokens": one.usage[name].num_tokens,
                "bytes_per_token": one.bytes_per_token(name),
                "never_used": one.usage[name].num_unused,
            }
            for name in names
            if name in one.usage
        },
    }
