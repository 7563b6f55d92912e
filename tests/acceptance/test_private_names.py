"""No test, fuzzer or script uses another module's private names: not by import, attribute or patch."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
ALLOWED = {
    "os._exit": "the documented way to end a forked process",
    "_tab": "flatbuffers' generated classes give offsets in the file by it alone",
    "super()._split_scope": "the method that xdist's schedulers override",
    "shutil._use_fd_functions": "rmtree as on a system without openat",
}


# What a line holds that may reach for one: most files have none, and are not parsed.
ATTRIBUTE, IMPORTED, NAMED = r"(?<!self)(?<!cls)\._[a-zA-Z]", r"import .*\b_[a-zA-Z]|^ +_\w+,$", r"""["'.]_\w+["']"""
MAYBE = re.compile(f"{ATTRIBUTE}|{IMPORTED}|{NAMED}", re.MULTILINE)


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def private_names(tree: ast.Module) -> Iterator[str]:
    """Yield the private names of others: imported, read as attributes, or named to monkeypatch."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names if is_private(alias.name))
        elif isinstance(node, ast.Attribute) and is_private(node.attr):
            owner = ast.unparse(node.value)
            if owner not in ("self", "cls"):
                yield f"{owner}.{node.attr}"
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("setattr", "delattr", "patch")):
            values = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
            yield from (value for value in values if isinstance(value, str) and is_private(value.rpartition(".")[2]))


def test_private_names_stay_private() -> None:
    files = [path for folder in ("tests", "scripts") for path in sorted((ROOT / folder).rglob("*.py"))]
    assert len(files) > 300
    found = {
        name: path.relative_to(ROOT)
        for path in files
        if MAYBE.search(path.read_text())
        for name in private_names(ast.parse(path.read_text()))
        if not {name, name.rpartition(".")[2]} & ALLOWED.keys()
    }
    assert found == {}, "make what a test needs public, or test what a user sees of it"


def test_each_way_to_reach_for_one_is_seen() -> None:
    texts = ("from a import _b", "a._b", "patch.setattr(a, '_b', 1)", "patch.setattr('a._b', 1)", "a()._b.c")
    assert all(MAYBE.search(text) and [*private_names(ast.parse(text))] for text in texts)
    assert MAYBE.search("from a import (\n    b,\n    _c,\n)")
    assert not [*private_names(ast.parse("self._b = a.__name__"))]
