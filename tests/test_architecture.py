"""The shape of the code, kept by tests: imports go one way, files are touched in one place."""

from __future__ import annotations

import ast
import graphlib
import subprocess
import sys
from pathlib import Path

import pytest

import tokenmill

SOURCE = Path(tokenmill.__file__).parent

# A room imports from the layers above it here, and within its layer from the rooms to its left.
LAYERS = {
    "ground": ["errors", "arrays", "wording", "plugins", "storage"],
    "seams": ["where", "config", "encodings", "formats"],
    "the mill": ["corpus", "encode", "assemble"],
    "work": ["settings", "runners"],
    "datasets": ["dataset", "loader", "estimate", "vocabulary", "doctor", "look", "testing"],
    "the run": ["run", "prepare"],
    "surface": ["cli", "api"],
}
ROOMS = [room for rooms in LAYERS.values() for room in rooms]
FORBIDDEN_MODULES = {
    "pickle",
    "dill",
    "cloudpickle",
    "marshal",
    "shelve",
    "joblib",
    "multiprocessing",
}
# What creates, renames, syncs or removes files; tests/faults/ puts a faulty disk under these.
CHANGING_MODULES = [
    SOURCE / "storage" / f"{name}.py" for name in ("disk", "file_piece", "lock", "new_file")
]


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def first_party_imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            if node.module == "tokenmill":
                found |= {alias.name for alias in node.names}
            elif node.module.startswith("tokenmill."):
                found.add(node.module.split(".")[1])
        elif isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("tokenmill.")}
    return found - {"__version__"}


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_one_way(path):
    own = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    if own in ("__init__", "__main__"):
        return
    for other in first_party_imports(path) - {own}:
        assert ROOMS.index(other) < ROOMS.index(own), f"{own} must not import {other}"


def loaded_with(path: Path, names: set[str]) -> set[str]:
    """The modules that a module's own import imports: not those that a function does."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module in names:
            below = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= below & names or {node.module}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names} & names
    return found


def test_modules_of_a_room_do_not_import_in_a_circle():
    def name_of(path: Path) -> str:
        parts = path.relative_to(SOURCE.parent).with_suffix("").parts
        return ".".join(parts).removesuffix(".__init__")

    names = {name_of(path) for path in modules()} - {"tokenmill"}
    graph = {name_of(path): loaded_with(path, names) for path in modules()}
    graphlib.TopologicalSorter(graph).prepare()  # CycleError names the circle


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_only_storage_writes_and_nothing_pickles_or_evaluates(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = (
                [a.name for a in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
            )
            assert not {name.split(".")[0] for name in names} & FORBIDDEN_MODULES, names
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            assert called not in ("eval", "exec"), f"{path}:{node.lineno}"
            assert not any(k.arg == "shell" for k in node.keywords), f"{path}:{node.lineno}"
            if path in CHANGING_MODULES or path.parent.name == "testing":
                continue
            assert called not in (
                *("os.rename", "os.replace", "os.unlink", "os.remove", "os.fsync", "os.truncate"),
                *("os.makedirs", "os.mkdir", "shutil.rmtree", "shutil.move", "np.save"),
            ), f"{path}:{node.lineno}: {called}"
            assert not called.endswith((".tofile", ".write_text", ".write_bytes"))
            if called in ("open", "io.open"):
                mode = node.args[1].value if len(node.args) > 1 else "r"
                assert not set(mode) & set("wax+"), f"{path}:{node.lineno}: open({mode!r})"


def test_only_what_gets_a_path_from_a_user_asks_whether_it_is_a_url():
    asking = {str(path.relative_to(SOURCE)) for path in modules() if "is_url" in path.read_text()}
    outside = {name for name in asking if not name.startswith("storage/")}
    assert outside == {"config/options.py", "corpus/source_files.py", "dataset/files.py"}


def test_a_public_class_name_means_one_thing():
    places: dict[str, list[str]] = {}
    for path in modules():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(str(path.relative_to(SOURCE)))
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}


def test_public_names_are_these_and_all_resolve():
    assert set(tokenmill.__all__) == {
        "Config",
        "ConfigError",
        "ConflictError",
        "Encoding",
        "Estimate",
        "InputError",
        "IntegrityError",
        "Loader",
        "Manifest",
        "NetworkError",
        "OutputError",
        "Tokenize",
        "TokenmillError",
        "UncheckedError",
        "VerifyReport",
        "WorkerError",
        "__version__",
        "convert",
        "estimate",
        "get_encoding",
        "open",
        "pack",
        "prepare",
        "push",
        "verify",
    }
    for name in tokenmill.__all__:
        assert getattr(tokenmill, name) is not None
    assert set(dir(tokenmill)) == set(tokenmill.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        _ = tokenmill.nope


def test_import_tokenmill_is_light():
    script = "import sys, tokenmill; print(len({'numpy', 'pyarrow'} & set(sys.modules)))"
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "0"
