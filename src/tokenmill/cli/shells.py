"""The completion scripts of each shell; completion.py says what they complete."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenmill.cli.completion import CommandCompletion, OptionCompletion

_BASH = """\
# tokenmill completion bash
_tokenmill() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD - 1]}} found=
    COMPREPLY=()
    if [[ $word == = ]]; then  # --option=value is three words
        word=
    elif [[ $before == = ]]; then
        before=${{COMP_WORDS[COMP_CWORD - 2]}}
    fi
    if ((COMP_CWORD == 1)); then
        found='{commands}'
    else
        case "${{COMP_WORDS[1]}} $before" in
{values}
        *)
            case "${{COMP_WORDS[1]}} $word" in
{options}
            esac
            ;;
        esac
    fi
    COMPREPLY=($(compgen -W "$found" -- "$word"))
}}
complete -o bashdefault -o default -F _tokenmill tokenmill
"""


def bash(commands: Sequence[CommandCompletion]) -> str:
    """The script for bash, which completes files if nothing matches."""
    values, options = [], []
    for command in commands:
        for option in command.options:
            if option.value is not None:
                cases = "|".join(f"'{command.name} {name}'" for name in option.names)
                values.append(f"        {cases}) found='{' '.join(option.values)}' ;;")
        names = " ".join(name for option in command.options for name in option.names)
        options.append(f"            '{command.name} -'*) found='{names}' ;;")
        if command.values:
            options.append(f"            '{command.name} '*) found='{' '.join(command.values)}' ;;")
    return _BASH.format(
        commands=" ".join(["--help", "--version", *(command.name for command in commands)]),
        values="\n".join(values),
        options="\n".join(options),
    )


_ZSH = """\
#compdef tokenmill
_tokenmill_or_file() {{
    compadd -- "$@"
    _files
}}
_tokenmill() {{
    if ((CURRENT == 2)); then
        local -a commands=(
{commands}
        )
        _describe command commands
        return
    fi
    shift words
    ((CURRENT--))
    case $words[1] in
{cases}
    esac
}}
if [[ $funcstack[1] == _tokenmill ]]; then
    _tokenmill "$@"
else
    compdef _tokenmill tokenmill
fi
"""


def zsh(commands: Sequence[CommandCompletion]) -> str:
    cases = []
    for command in commands:
        specs = [_zsh_spec(option, name) for option in command.options for name in option.names]
        arguments = f"({' '.join(command.values)})" if command.values else "_files"
        specs.append(shlex.quote(f"*:argument:{arguments}"))
        lines = " \\\n            ".join(specs)
        cases.append(
            f"    {command.name})\n        _arguments -S \\\n            {lines}\n        ;;"
        )
    return _ZSH.format(
        commands="\n".join(
            f"            {shlex.quote(f'{command.name}:{command.help}')}" for command in commands
        ),
        cases="\n".join(cases),
    )


def _zsh_spec(option: OptionCompletion, name: str) -> str:
    text = re.sub(r"([\[\]:\\])", r"\\\1", option.help)
    others = "" if option.is_repeatable else f"({' '.join(option.names)})"
    spec = f"{'*' if option.is_repeatable else others}{name}"
    if option.value is None:
        return shlex.quote(f"{spec}[{text}]")
    values = "_files" if not option.values else f"({' '.join(option.values)})"
    if option.values and option.takes_files:
        values = f" _tokenmill_or_file {' '.join(option.values)}"
    value = option.value.replace(":", " ")
    return shlex.quote(f"{spec}{'=' if name.startswith('--') else '+'}[{text}]:{value}:{values}")


_FISH = """\
# tokenmill completion fish
function __tokenmill_runs
    set -l words (commandline -opc)
    test (count $words) -ge 2; and test "$words[2]" = "$argv[1]"
end
complete -c tokenmill -n 'test (count (commandline -opc)) -eq 1' -f -l help -l version
{commands}
"""


def fish(commands: Sequence[CommandCompletion]) -> str:
    lines = []
    for command in commands:
        lines.append(
            "complete -c tokenmill -n 'test (count (commandline -opc)) -eq 1' -f "
            f"-a {command.name} -d {_fish_quoted(command.help)}"
        )
        head = f"complete -c tokenmill -n '__tokenmill_runs {command.name}'"
        if command.values:
            lines.append(f"{head} -f -a {_fish_quoted(' '.join(command.values))}")
        for option in command.options:
            names = [f"-l {n[2:]}" if n.startswith("--") else f"-s {n[1:]}" for n in option.names]
            line = f"{head} {' '.join(names)} -d {_fish_quoted(option.help)}"
            if option.value is not None:
                line += " -r -F" if option.takes_files else " -x"
            if option.values:
                line += f" -a {_fish_quoted(' '.join(option.values))}"
            lines.append(line)
    return _FISH.format(commands="\n".join(lines))


def _fish_quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
