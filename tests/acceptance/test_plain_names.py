"""No variable, parameter, attribute or function has a bare participle as its name: a name says what it holds."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

MTOOL = Path(__file__).parents[2] / "mtool"
BARE = re.compile(r"_*(asked|given|wanted|known|taken|said|lent)_*")


def names(tree: ast.Module) -> Iterator[str]:
    """Yield the names that a module defines or imports, and the attributes that it uses."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(name) | ast.arg(name) | ast.Attribute(attr=name) | ast.ExceptHandler(name=str(name)):
                yield name
            case ast.FunctionDef(name) | ast.ClassDef(name) | ast.alias(asname=str(name)) | ast.alias(name):
                yield name


def bare(text: str) -> list[str]:
    return [name for name in names(ast.parse(text)) if BARE.fullmatch(name)]


def test_names_say_what_they_hold() -> None:
    files = {path.relative_to(MTOOL).as_posix(): path.read_text() for path in sorted(MTOOL.rglob("*.py"))}
    assert len(files) > 400
    left = {path: bare(text) for path, text in files.items() if BARE.search(text)}
    assert not {path: lines for path, lines in left.items() if lines}, "write the noun: options, expected, args, ranges"


def test_each_kind_of_name_is_seen() -> None:
    texts = ("given = 1", "def f(*wanted): pass", "f(lambda known: 0)", "a.taken", "def said(): pass", "x._asked = 1")
    assert all(
        map(bare, (*texts, "import a as known", "from a import said", "[0 for given in a]", "class _Given: known: int"))
    )
    assert not bare('is_known = a["given"]  # known')
