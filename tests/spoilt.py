"""Faults that get into processes from outside: a sitecustomize.py for a folder on PYTHONPATH."""

from __future__ import annotations

_BEFORE = '''
import importlib.machinery, os, signal, sys, time

FOLDER = os.path.dirname(__file__)

def times(name):
    """How often this was called with this name, over all processes."""
    fd = os.open(os.path.join(FOLDER, name), os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    os.write(fd, b".")
    try:
        return os.lseek(fd, 0, os.SEEK_CUR)
    finally:
        os.close(fd)
'''
_AFTER = """
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name not in SPOILT:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        run = spec.loader.exec_module
        spec.loader.exec_module = lambda module: (run(module), SPOILT[name](module))
        return spec

sys.meta_path.insert(0, Finder())
"""


def sitecustomize(changes: str) -> str:
    """`changes` defines SPOILT: what is done to each module once it is imported, by its name."""
    return _BEFORE + changes + _AFTER
