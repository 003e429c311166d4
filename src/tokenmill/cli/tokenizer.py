"""`tokenmill tokenizer train` and `tokenmill tokenizer compare`."""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import shlex
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tokenmill.cli import commands, run_options
from tokenmill.cli.moving_line import MovingLine
from tokenmill.cli.screen import printable, shown_bytes, shown_count
from tokenmill.cli.usage import CommandParser, commands_of
from tokenmill.config.options import COMPARE, TRAIN
from tokenmill.errors import ConfigError, InputError
from tokenmill.wording.plural import counted
from tokenmill.wording.quantities import count_of

if TYPE_CHECKING:
    from tokenmill.config import Config
    from tokenmill.vocabulary.comparison import Compared
    from tokenmill.vocabulary.training import Trained


REPORTED = ("gpt2", "cl100k_base", "o200k_base")  # what a new tokenizer is compared with
REPORT_BYTES = 1 << 20  # of each named source or file
REPORT_FILES = 20


DESCRIPTION = "Train a byte-pair tokenizer on a corpus, or compare tokenizers on one."


def add_arguments(parser: CommandParser) -> None:
    actions = parser.add_subparsers(title="actions", dest="action", metavar="ACTION")
    _add_train(actions)
    _add_compare(actions)


def run(arguments: argparse.Namespace) -> int:
    """Without an action: say which there are."""
    commands_of(commands.parser({"tokenizer"}))["tokenizer"].print_help(sys.stderr)
    return 2


def _add_train(actions: Any) -> None:
    parser = actions.add_parser(
        "train",
        help="learn a vocabulary from a corpus",
        description="Learn a byte-pair vocabulary from a corpus. Writes FILE.json, a "
        "tokenizer.json for `tokenizers` and `prepare`, and FILE.tiktoken, its ranks. The same "
        "corpus and options give the same file. The same command resumes an interrupted run.",
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
        help="how equally frequent pairs are ordered: by the letters that stand for bytes, as in "
        "`tokenizers` (default), or by bytes, as in rustbpe",
    )
    groups = run_options.add_options(parser, TRAIN)
    groups["what is read"].add_argument(
        "--sample",
        metavar="SIZE|F",
        help="learn from about this much text (2GB), or this fraction of the rows (0.1), spread "
        "over the corpus (default: all)",
    )
    parser.add_argument(
        "--no-report",
        action="store_true",
        help="do not compare it with gpt2, cl100k_base and o200k_base on the corpus",
    )
    parser.add_argument("--json", action="store_true", help="print the summary as JSON on stdout")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress, no summary")
    parser.add_argument("-v", "--verbose", action="store_true", help="tracebacks with errors")
    parser.set_defaults(run=run_train)


def _add_compare(actions: Any) -> None:
    parser = actions.add_parser(
        "compare",
        help="bytes per token of several tokenizers on your text",
        description="Encode a sample of a corpus with several tokenizers and compare the bytes per "
        "token, by source (de=german/ fr=french/; file by file without names), and how many tokens "
        "are never used.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="""\
examples:
  tokenmill tokenizer compare my.json gpt2 o200k_base --corpus corpus/*.parquet
  tokenmill tokenizer compare my.json gpt2 --corpus de=german/ fr=french/""",
    )
    parser.add_argument("tokenizers", nargs="+", metavar="TOKENIZER", help="names or files")
    parser.add_argument(
        "--corpus", nargs="+", required=True, dest="sources", metavar="SOURCE", help="the text"
    )
    run_options.add_options(parser, COMPARE)
    parser.add_argument(
        "--bytes-per-file",
        default="8M",
        metavar="N",
        help="at most, of text, for each file or named source (default: 8M)",
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
    config = run_options.typed_config(arguments, TRAIN, sample=sample)
    line = MovingLine(sys.stderr, arguments.quiet)
    try:
        trained = train(
            config,
            options,
            sample_bytes=sample_bytes,
            overwrite=config.overwrite,
            watch=_watch(line, options.vocab_size),
        )
    finally:
        line.end()
    is_reported = not arguments.no_report and (arguments.json or not arguments.quiet)
    report = _report(trained, config) if is_reported else None
    if arguments.json:
        found = {} if report is None else {"comparison": report.to_plain()}
        print(json.dumps(trained.to_plain() | found))
    elif not arguments.quiet:
        lines = summary(trained, options.vocab_size)
        for text in lines if report is None else [*lines, "", *report.lines()]:
            print(printable(text))
    return 0


def _report(trained: Trained, config: Config) -> ComparisonTable | None:
    """The new tokenizer beside those that come with the package, on some of its corpus; None if
    that is on the Hub, and has to be downloaded again."""
    from tokenmill.encodings import get_encoding
    from tokenmill.vocabulary.comparison import are_here, compare

    config = dataclasses.replace(config, sample=None)  # less of each source is read anyway
    if not are_here(config):
        return None
    own = get_encoding(trained.path, eot=next(iter(trained.special_tokens)))
    own_name = trained.path if own.name in REPORTED else own.name
    encodings = {own_name: own, **{name: get_encoding(name) for name in REPORTED}}
    try:
        found = compare(encodings, config, REPORT_BYTES, max_files=REPORT_FILES)
    except InputError:  # none of the files that were picked has text: the tokenizer is there
        return None
    if not found[-1].text_bytes:
        return None
    return ComparisonTable(found, {name: one.n_vocab for name, one in encodings.items()})


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
    from tokenmill.encodings.tokenizer_json import USUAL_EOT

    first = next(iter(trained.special_tokens))
    is_usual = any(text in trained.special_tokens for text in USUAL_EOT)
    eot = "" if is_usual else f" --eot-token {shlex.quote(first)}"
    lines = [
        f"learned {trained.vocab_size:,} tokens from {shown_bytes(trained.text_bytes)} of text: "
        f"{counted(trained.num_documents, 'document')}, "
        f"{shown_count(trained.num_words)} different words",
        f"        {trained.bytes_per_token:.3f} bytes per token on that text, which never uses "
        f"{trained.num_unused:,} of them",
        f"saved   {trained.path} and {trained.ranks_path}",
        f"next    tokenmill prepare SOURCE --tokenizer {shlex.quote(trained.path)}{eot} -o OUT",
    ]
    if trained.vocab_size < asked:
        lines.insert(2, f"        {asked:,} were asked for, but there is no pair left to merge")
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

    typed = {name: get_encoding(name) for name in arguments.tokenizers}
    names = [encoding.name for encoding in typed.values()]
    encodings = {  # in two folders, files may have one name
        (name if names.count(encoding.name) > 1 else encoding.name): encoding
        for name, encoding in typed.items()
    }
    found = compare(
        encodings,
        run_options.typed_config(arguments, COMPARE),
        count_of("--bytes-per-file", arguments.bytes_per_file),
    )
    table = ComparisonTable(found, {name: one.n_vocab for name, one in encodings.items()})
    if arguments.json:
        print(json.dumps(table.to_plain(), indent=1))
        return 0
    for text in table.lines():
        print(printable(text))
    return 0


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
