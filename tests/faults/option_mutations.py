"""Hostile options: a `tokenmill.toml` and an expression of `--where`, made to be slow, deep or
ambiguous rather than just wrong."""

from __future__ import annotations

import random

SOUND_TOML = """tokenizer = "gpt2"
val_fraction = 0.01
shard_tokens = "1M"
# where: rows
[source.web]
paths = ["web/", "more/*.jsonl"]
where = "score >= 3"
[source.code]
paths = "code/"
repeat = 2
"""
_ODD_TOML = (
    *("x = " + "[" * 5000, "x = " + "[" * 900 + "]" * 900, "x = " + "{a=" * 400 + "1" + "}" * 400),
    *("a" + ".a" * 300_000 + " = 1", "[" + "a." * 300_000 + "a]", '"a b"' + '."a b"' * 200_000),
    *("'a'.'a'.\"a\".a = 1", "[[source]]\npaths = 1", "[[source.web]]\npaths = 'a'", "[source]"),
    *("seed = " + "9" * 5000, "seed = 0x" + "f" * 4000, "seed = 1e999", "seed = nan", "seed = inf"),
    *("sample = -nan", "limit_docs = 1e308", "num_proc = 99999999999999999999", "seed = true"),
    *("seed = 2020-01-01", "where = 12:00:00", "name = 1979-05-27T07:32:00Z", "keep = [[1], 'a']"),
    *("keep = {a = 1}", "sources = [{paths = 'a'}]", "source = 5", "source = [1, 'a']"),
    *(
        '"a\\u0000b" = 1',
        '"\\u001b[31m" = 1',
        '"\\n" = 1',
        '"" = 1',
        "'' = ''",
        '[source."\\u0007"]',
    ),
    *('[source.""]', '[source."../x"]', "[source.web]", "tokenizer = 'gpt2'", "[source.web.where]"),
    *('where = """\n' + "(" * 70_000 + '"""', "template = '{{{'", "template = ''", "x\0 = 1"),
    *(
        "where = ''",
        "name = '../../x'",
        "out = '\\u0000'",
        "\ufeff",
        "format = []",
        "eot = 'eot\n'",
    ),
    *("\r", "\r\n\r", "# \x07", "a = '\x1b'", "keep = ['" + "a" * 100_000 + "']", "= 1", "é = 1"),
)


def toml(rng: random.Random) -> bytes:
    lines = SOUND_TOML.split("\n")
    for _ in range(rng.choice((1, 1, 2, 4))):
        lines.insert(rng.randrange(len(lines)), rng.choice(_ODD_TOML))
    what = rng.random()
    if what < 0.1:  # many lines that have the key that is wrong, and one of them is
        lines = [*lines, *(f"# text_column {i}" for i in range(40_000)), "[source.z]", "where = 1"]
    elif what < 0.2:
        lines = [f"where{i} = 1" for i in range(3000)] + lines
    elif what < 0.3:
        at = rng.randrange(len(lines))
        lines[at] = lines[at][: rng.randrange(len(lines[at]) + 1)]
    data = "\n".join(lines).encode()
    if rng.random() < 0.1:
        at = rng.randrange(len(data))
        data = data[:at] + rng.choice((b"\xff", b"\0", b"\xed\xa0\x80")) + data[at:]
    return data


_OPERANDS = (
    *("text", "n", "len(text)", "`a b`", "meta.text") * 4,
    *("text", "n", "len(text)", "`a b`", "meta.text", "nothing", "1", "-1e308", "'x'", '"\\u00e9"'),
    *("true", "9" * 300, "0." + "1" * 300, "1e999", "len(n)", "len(len(text))", "``", "'\\ud800'"),
    *("text.n", "`text`", "n.", ".n", "null", "1_000", "0x1f", "'" + "é" * 500 + "'"),
)
_PATTERNS = (
    *("^(a+)+$", "(x+x+)+y", "(?i)" + "a?" * 300 + "a" * 300, "(" * 500 + ")" * 500, "(.*)*" * 20),
    *("((a{100}){100}){100}", "[", "\\", "(?<name>a)", "(?=a)", "\\pL+", "a{1001}", "", "\\C", "."),
)
_RELATIONS = (
    *("==", "!=", "<", ">=", "is not", "matches") * 2,
    *("==", "!=", "<", ">=", "=", "<>", "~", "is", "is not", "matches", "in", "not in", ""),
)


def where(rng: random.Random, depth: int = 0) -> str:
    what = rng.random()
    if depth == 0 and what < 0.25:
        return rng.choice(_WHOLE)(rng.choice((10, 90, 101, 3000)))
    if depth > 6 or what < 0.55:
        return _test(rng)
    one, other = where(rng, depth + 1), where(rng, depth + 1)
    if what < 0.65:
        return f"not {one}"
    if what < 0.75:
        return f"({one})"
    return f"{one} {rng.choice(('and', 'or', 'AND', '&&', ''))} {other}"


_WHOLE = (
    lambda n: "(" * n + "n > 1" + ")" * n,
    lambda n: "not " * n + "n > 1",
    lambda n: " and ".join(["text matches '(a+)+$'"] * min(n, 300)),
    lambda n: " or ".join(f"n == {i}" for i in range(n)),
    lambda n: f"n in ({', '.join(map(str, range(n)))})",
    lambda n: "text in (" + ", ".join(["'x'"] * n) + ")",
    lambda n: "(not " * n + "n > 1",
    lambda n: "n > 1" + ")" * n,
    lambda n: "a." * n + "b == 1",
    lambda n: "'" * n,
    lambda n: "\0" * n,
)


def _test(rng: random.Random) -> str:
    relation = rng.choice(_RELATIONS)
    operand, other = rng.choice(_OPERANDS), rng.choice(_OPERANDS)
    if relation == "matches":
        other = "'" + rng.choice(_PATTERNS) + "'"
    elif relation in ("is", "is not") and rng.random() < 0.7:
        other = "null"
    elif relation in ("in", "not in"):
        other = f"({', '.join(rng.choices(_OPERANDS, k=rng.choice((0, 1, 5))))})"
    return f"{operand} {relation} {other}"
