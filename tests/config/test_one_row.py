"""Adding an option is a row in config/options.py: with one more there, everything knows it."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = r"""
import contextlib, importlib.machinery, importlib.util, io, sys

ROW = 'shout: bool = _option(False, kinds.SWITCH, WRITTEN, "in capitals", other_names="loud")'


class OneMore(importlib.machinery.SourceFileLoader):
    def get_data(self, path):
        data = super().get_data(path)
        assert data.count(b"    shuffle: bool =") == 1 or path.endswith(".pyc")
        return data.replace(b"    shuffle: bool =", f"    {ROW}\n    shuffle: bool =".encode())

    def path_stats(self, path):
        raise OSError  # no compiled file


class Finder:
    def find_spec(self, name, path, target=None):
        if name != "tokenmill.config.options":
            return None
        loader = OneMore(name, f"{path[0]}/options.py")
        return importlib.util.spec_from_loader(name, loader)


sys.meta_path.insert(0, Finder())
from tokenmill.cli import commands, run_options
from tokenmill.cli.usage import commands_of
from tokenmill.config import Config
from tokenmill.config.names import option_meant
from tokenmill.config.options import OPTIONS
from tokenmill.dataset import recipe
from tokenmill.errors import ConfigError

top = commands.parser({"prepare"})
prepare = commands_of(top)["prepare"]
assert "--shout, --no-shout" in prepare.format_help()


def asked(*words):
    return run_options.config_from(top.parse_args(["prepare", *words]))


path = sys.argv[1]
with open(path, "w") as file:
    file.write('sources = "a"\nout = "b"\nshout = true\n')
assert asked("a", "-o", "b", "--shout").shout and not asked("a", "-o", "b").shout
assert asked("--config", path).shout and not asked("--config", path, "--no-shout").shout
with open(path, "a") as file:
    file.write("[source.x]\npaths = 'y'\nshout = true")
for wrong in (lambda: Config(sources="a", shout=3), lambda: asked("--config", path)):
    try:
        wrong()
    except ConfigError as error:
        assert "shout" in error.message, error
    else:
        raise AssertionError("taken")
changed, usual = (Config(sources="a", shout=shout).identity() for shout in (True, False))
assert (changed.pop("shout"), usual.pop("shout")) == (True, False) and changed == usual
assert list(recipe._changed({**changed, "shout": True}, {**usual, "shout": False})) == ["--shout"]
assert option_meant("loud", OPTIONS) == option_meant("shuot", OPTIONS) == "shout"
"""


def test_option_when_it_is_a_row_then_it_is_everywhere(tmp_path):
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "tokenmill.toml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
