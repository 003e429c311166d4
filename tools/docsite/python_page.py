"""The reference of the Python API: what `tokenmill` exports, with signatures and docstrings."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

from command_pages import inline, inline_html

import tokenmill

PLACE = "python-api.md"
_WIDTH = 88
_INTRODUCTION = """\
Every public name of `tokenmill`, taken from the code; [examples are here](python.md). A `Quantity`
is a number, or a string such as `"100M"`. Failures raise one of the [errors](#errors)."""
_ERRORS = """\
There is one class for each kind of failure, with the same meaning as the command's
[exit code](commands.md#exit-codes). `error.message` says what went wrong and where, `error.hint`
what to do, and `str(error)` both. Catch the base class for all of them:

```python
try:
    tokenmill.prepare("corpus/", "out")
except tokenmill.TokenmillError as error:
    print(error, error.exit_code)
```"""
_PAGE = re.compile(r"\bdocs/([a-z-]+)\.md")
_PARAMETER = re.compile(r"^(\w+(?:, \w+)*) {2,}(\S.*)$")


def python_page() -> str:
    names = [name for name in tokenmill.__all__ if not name.startswith("_")]
    objects = {name: getattr(tokenmill, name) for name in names}
    pieces = ["# The Python API", _INTRODUCTION]
    for title, wants_class in (("Functions", False), ("Classes", True)):
        pieces.append(f"## {title}")
        for name, found in objects.items():
            if inspect.isclass(found) == wants_class and not _is_error(found):
                pieces += _class(name, found) if wants_class else _function(name, found)
    pieces += ["## Errors", _ERRORS]
    errors = filter(_is_error, objects.values())
    for found in sorted(errors, key=lambda error: error.exit_code):
        pieces += _error(found)
    return "\n\n".join(pieces) + "\n"


def _is_error(found: Any) -> bool:
    return inspect.isclass(found) and issubclass(found, tokenmill.TokenmillError)


def _error(found: type[tokenmill.TokenmillError]) -> Iterator[str]:
    yield f"### {found.__name__} {{ #{found.__name__} }}"
    yield from _docstring(found)
    yield f"Exit code {found.exit_code}."


def _function(
    name: str, found: Callable[..., Any], level: str = "###", anchor: str = ""
) -> list[str]:
    heading = f"{level} {name} {{ #{anchor or name} }}"
    shown = name.rpartition(".")[2] if anchor else f"tokenmill.{name}"
    return [heading, _code(signature(shown, found)), *_docstring(found)]


def _class(name: str, found: type) -> Iterator[str]:
    yield f"### {name} {{ #{name} }}"
    yield from _docstring(found)
    fields = list(getattr(found, "__dataclass_fields__", {}))
    if fields:
        yield _code(_fields(found))
    else:
        yield _code(signature(f"tokenmill.{name}", found))
        yield from _docstring(found.__init__) if inspect.isfunction(found.__init__) else ()
    for member, value in vars(found).items():
        if member.startswith("_") or member in fields:
            continue
        yield from _member(f"{name}.{member}", value)


def _fields(found: type) -> str:
    """Names, types and defaults, with what the source says beside them."""
    source = textwrap.dedent(inspect.getsource(found))
    [tree] = ast.parse(source).body
    assert isinstance(tree, ast.ClassDef)
    lines, shown, last = source.splitlines(), [], tree.lineno
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            above = [line.strip() for line in lines[last : node.lineno - 1]]
            shown += [line for line in above if line.startswith("#")]
            beside = lines[(node.end_lineno or 0) - 1][node.end_col_offset :]
            default = _default(found.__dataclass_fields__[node.target.id])
            shown.append(f"{node.target.id}: {ast.unparse(node.annotation)}{default}{beside}")
        last = node.end_lineno or 0
    return "\n".join(shown)


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default_factory is not dataclasses.MISSING:
        return f" = {field.default_factory()!r}"
    return "" if field.default is dataclasses.MISSING else f" = {field.default!r}"


def _member(name: str, value: Any) -> Iterator[str]:
    anchor = name.replace(".", "-")
    if isinstance(value, property) or type(value).__name__ == "cached_property":
        getter = getattr(value, "fget", None) or value.func
        kind = _annotation(getter.__annotations__.get("return", ""))
        yield f"#### {name} {{ #{anchor} }}"
        yield _code(f"{name.rpartition('.')[2]}: {kind}")
        yield from _docstring(getter)
    else:
        function = getattr(value, "__func__", value)
        if inspect.isfunction(function):
            yield from _function(name, function, "####", anchor)


def signature(name: str, found: Callable[..., Any]) -> str:
    """As it would be written; one parameter a line where it is long. `self` is left out."""
    declared = inspect.signature(found)
    pieces, is_keyword_only = [], False
    for parameter in declared.parameters.values():
        if parameter.name in ("self", "cls"):
            continue
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not is_keyword_only:
            is_keyword_only = True
            pieces.append("*")
        pieces.append(_parameter(parameter))
    result = "" if inspect.isclass(found) else _annotation(declared.return_annotation)
    end = f") -> {result}" if result else ")"
    line = f"{name}({', '.join(pieces)}{end}"
    if len(line) <= _WIDTH:
        return line
    return "\n".join([f"{name}(", *(f"    {piece}," for piece in pieces), end])


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    kind = _annotation(parameter.annotation)
    text = f"{stars}{parameter.name}" + (f": {kind}" if kind else "")
    if parameter.default is parameter.empty:
        return text
    return f"{text} = {parameter.default!r}"


def _annotation(kind: Any) -> str:
    if kind is inspect.Signature.empty:
        return ""
    return kind if isinstance(kind, str) else getattr(kind, "__name__", str(kind))


def _code(text: str) -> str:
    return f"```python\n{text}\n```"


def _docstring(found: Any) -> Iterator[str]:
    """Paragraphs, examples (indented) and lists of parameters (a name, spaces, what it is)."""
    text = inspect.cleandoc(getattr(found, "__doc__", None) or "")
    if text.startswith(f"{getattr(found, '__name__', '')}("):
        return  # made by dataclass
    for block in re.split(r"\n\s*\n", text):
        lines = block.splitlines()
        if not lines:
            continue
        if lines[0].startswith("    "):
            yield _code(inspect.cleandoc("\n" + block))
        elif _PARAMETER.match(lines[0]):
            yield _parameters(lines)
        else:
            yield _PAGE.sub(r"[\1.md](\1.md)", inline(block))


def _parameters(lines: list[str]) -> str:
    listed: list[tuple[str, str]] = []
    for line in lines:
        if match := _PARAMETER.match(line):
            listed.append((match[1], match[2]))
        else:
            name, before = listed.pop()
            listed.append((name, f"{before} {line.strip()}"))
    rows = [f"<dt><code>{name}</code></dt>\n<dd>{inline_html(text)}</dd>" for name, text in listed]
    return "\n".join(['<dl class="options">', *rows, "</dl>"])
