"""The reference of the command line: a page for each command, from the parsers themselves."""

from __future__ import annotations

import argparse
import re
from html import escape

from tokenmill.cli import parser as tokenmill_parser
from tokenmill.cli.usage import commands_of

FOLDER = "command-line"
_TITLES = {"positional arguments": "Arguments", "options": "Options"}
_MARKED = re.compile(r"`([^`]+)`|(?<![\w/-])(--[a-z][a-z-]*)|docs/([a-z-]+)\.md")
_REMARK = re.compile(r"(\S) {3,}(\S.*)$", flags=re.MULTILINE)


def command_pages() -> dict[str, str]:
    """Markdown by place, the page that lists the commands first."""
    top = tokenmill_parser()
    pages = {f"{FOLDER}/index.md": _index(top)}
    for name, command in commands_of(top).items():
        pages[f"{FOLDER}/{name}.md"] = _page(command)
    return pages


def _index(top: argparse.ArgumentParser) -> str:
    helps = _short_helps(top).items()
    rows = [f"| [`{name}`]({name}.md) | {inline(short)} |" for name, short in helps]
    lines = ["# The command line", "", f"`{top.prog} COMMAND`. {top.description}", ""]
    lines += [
        "These pages are made from the program itself: `tokenmill help COMMAND` prints the same.",
        "",
    ]
    lines += ["| command | |", "|---|---|", *rows, ""]
    lines += [f"{inline((top.epilog or '').capitalize())}. ", ""]
    lines += ["[What each of these codes means](../commands.md#exit-codes).", ""]
    return "\n".join(lines)


def _short_helps(parser: argparse.ArgumentParser) -> dict[str, str]:
    return {
        choice.dest: choice.help or ""
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
        for choice in action._choices_actions
    }


def _page(command: argparse.ArgumentParser) -> str:
    """A command; its sub-commands as sections of the page."""
    pieces = [f"# {command.prog}", *_body(command, "")]
    anchor = command.prog.replace(" ", "-")
    helps = _short_helps(command).items()
    pieces += ["\n".join(f"- [`{name}`](#{anchor}-{name}): {inline(text)}" for name, text in helps)]
    for name, action in commands_of(command).items():
        pieces += [f"## {action.prog}", *_body(action, f"{name}-")]
    return "\n\n".join(filter(None, pieces)) + "\n"


def _body(command: argparse.ArgumentParser, prefix: str) -> list[str]:
    formatter = argparse.HelpFormatter(command.prog)
    pieces = [inline(command.description or ""), f"```text\n{_usage(command, formatter)}\n```"]
    level = "##" if not prefix else "###"
    if command.epilog:
        pieces += [f"{level} {'Examples' if 'examples' in command.epilog else 'Example'}"]
        pieces += [_examples(command.epilog)]
        if prefix:
            pieces[-2] += f" {{ #{prefix}examples }}"
    for group in command._action_groups:
        shown = [action for action in group._group_actions if _is_shown(action)]
        title = _TITLES.get(group.title or "", (group.title or "").capitalize())
        if shown:
            anchor = f" {{ #{prefix}{title.lower().replace(' ', '-')} }}"
            pieces += [f"{level} {title}{anchor}", inline(group.description or "")]
            pieces += [_list(shown, formatter, prefix)]
    return [piece for piece in pieces if piece]


def _usage(command: argparse.ArgumentParser, formatter: argparse.HelpFormatter) -> str:
    """What must be given; the options are listed below it."""
    arguments = [action for action in command._actions if not action.option_strings]
    options = [action for action in command._actions if action.option_strings]
    words = [_shown(action, formatter) for action in arguments]
    for action in options:
        if action.required:
            words.append(f"{action.option_strings[0]} {_value(action, formatter)}")
    if any(_is_shown(action) and not action.required for action in options):
        words.insert(0 if _takes_rest(arguments) else len(words), "[OPTIONS]")
    return " ".join([command.prog, *words])


def _takes_rest(arguments: list[argparse.Action]) -> bool:
    return any(action.nargs == argparse.REMAINDER for action in arguments)


def _value(action: argparse.Action, formatter: argparse.HelpFormatter) -> str:
    return formatter._format_args(action, action.dest.upper())


def _is_shown(action: argparse.Action) -> bool:
    """Not what every command has, nor sub-commands, which have a section of their own."""
    is_special = isinstance(action, (argparse._HelpAction, argparse._SubParsersAction))
    return not is_special and action.help != argparse.SUPPRESS


def _list(actions: list[argparse.Action], formatter: argparse.HelpFormatter, prefix: str) -> str:
    lines = ['<dl class="options">']
    for action in actions:
        anchor = prefix + (action.option_strings or [action.dest])[-1].lstrip("-")
        lines.append(
            f'<dt id="{escape(anchor)}"><code>{escape(_shown(action, formatter))}</code></dt>'
        )
        lines.append(f"<dd>{inline_html(_help(action, formatter), '../')}</dd>")
    return "\n".join([*lines, "</dl>"])


def _help(action: argparse.Action, formatter: argparse.HelpFormatter) -> str:
    return formatter._expand_help(action) if action.help else ""


def _shown(action: argparse.Action, formatter: argparse.HelpFormatter) -> str:
    if action.nargs == argparse.REMAINDER:
        return str(action.metavar)
    if not action.option_strings:
        return formatter._format_args(action, str(action.metavar or action.dest))
    takes = "" if action.nargs == 0 else _value(action, formatter)
    return f"{', '.join(action.option_strings)} {takes}".strip()


def _examples(epilog: str) -> str:
    lines = re.sub(r"^examples?:\s*", "", epilog).splitlines()
    text = "\n".join(line.strip() for line in lines)
    text = _REMARK.sub(r"\1   # \2", text)
    return f"```sh\n{text}\n```"


def inline(text: str) -> str:
    """Help text as Markdown, in which a * or a < is just that."""
    return re.sub(r"(`[^`]*`)|([<*_\[\]\\])", lambda m: m[1] or f"\\{m[2]}", text)


def inline_html(text: str, up: str = "") -> str:
    """Help text as HTML: options and what is quoted as code, pages of docs/ as links."""

    def marked(match: re.Match[str]) -> str:
        quoted, option, page = match.groups()
        if page:
            return f'<a href="{up}{page}.html">{page}.md</a>'
        return f"<code>{quoted or option}</code>"

    return _MARKED.sub(marked, escape(text, quote=False))
