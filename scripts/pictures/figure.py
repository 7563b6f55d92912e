"""A figure of the documentation: its data, how it is drawn, and where its data come from."""

import inspect
import json
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outputs import DIGITS, MODELS, ROOT, printed_by

from pictures.style import Picture, data_in

if TYPE_CHECKING:
    from pictures.terminals import Session

DOCS = ROOT / "docs"
FIGURES = DOCS / "figures"
DIGITS_MODEL = DIGITS / "digits_int8.onnx"
TINY = {"kws": "keyword spotting", "vww": "visual wake words", "ic": "image classification", "ad": "anomaly detection"}
BOARD = "mps2_an386"


class Missing(Exception):
    """A model is missing that the data come from."""


@dataclass(frozen=True)
class Drawn:
    """A figure: what it is called, what it shows, how its data are found, how they are drawn."""

    name: str
    title: str
    description: str
    data: Callable[[], Any]
    draw: Callable[[Any], Picture]

    @property
    def path(self) -> Path:
        """Where it is."""
        return FIGURES / f"{self.name}.svg"

    def current_data(self) -> Any:
        """Return its data, found again if that is possible; as plain JSON."""
        try:
            return json.loads(json.dumps(self.data()))
        except Missing:
            return data_in(self.path)

    def is_same(self, kept: Any, found: Any) -> bool:
        """Return whether data are the same."""
        return kept == found

    def svg(self, data: Any) -> str:
        """Return the figure."""
        return self.draw(data).svg(self.title, self.description, data)


ALL: dict[str, "Drawn | Session"] = {}


def figure(data: Callable[[], Any]) -> Callable[[Callable[[Any], Picture]], None]:
    """Add a figure, named after the function that draws it; the docstring of that has its title and its description."""

    def add(draw: Callable[[Any], Picture]) -> None:
        name = draw.__name__.replace("_", "-")
        title, _, description = inspect.cleandoc(draw.__doc__ or "").partition("\n\n")
        ALL[name] = Drawn(name, title.rstrip("."), " ".join(description.split()), data, draw)

    return add


def tiny(name: str) -> Path:
    """Return one of MLPerf Tiny's models."""
    path = MODELS / name.split("_")[0] / name
    if not path.is_file():
        raise Missing(name)
    return path


def printed(*words: str) -> Any:
    """Run mtool with --json, and return what it prints."""
    code, out, merged = printed_by(["mtool", *words, "--json"])
    if code:
        raise RuntimeError("\n".join(merged))
    return json.loads("\n".join(out))


@contextmanager
def folder() -> Iterator[Path]:
    """Work in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="mtool-figures") as made, chdir(made):
        yield Path(made)


def table(page: str, first: str, number: int = 0) -> list[list[str]]:
    """Return the rows of a page's table whose heading begins with some words."""
    lines = (DOCS / page).read_text().splitlines()
    begins = [at for at, line in enumerate(lines) if line.startswith("|") and line.strip("| ").startswith(first)]
    if len(begins) <= number:
        raise ValueError(f"docs/{page} has no table {number} that begins with {first}")
    rows = []
    for line in lines[begins[number] :]:
        if not line.startswith("|"):
            break
        cells = [cell.strip().strip("*`") for cell in line.strip("|").split("|")]
        if not all(set(cell) <= {"-", ":"} and cell for cell in cells):
            rows.append(cells)
    return rows[1:]


def amount(text: str) -> float:
    """Return the number at the start of a table's cell."""
    return float(re.match(r"-?[\d,.]+", text)[0].replace(",", ""))  # type: ignore[index]


def short(number: float) -> str:
    """Return a number as people say it: 2.57 M, 31 k."""
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.{0 if number >= 100 * size else 1 if number >= 10 * size else 2}f} {unit}"
    return f"{number:,.0f}"


def c_function(source: str, name: str) -> list[str]:
    """Return a function of generated C, without the comment above it."""
    begin = source.rindex("\n", 0, source.index(f" {name}(")) + 1
    return source[begin : source.index("\n}\n", begin) + 2].splitlines()


def c_source(model: Any) -> str:
    """Return a model's C."""
    name = model.manifest.model
    return next(text.decode() for path, text in model.files.files.items() if Path(path).name == f"{name}.c")


def onnx_file(text: str, name: str) -> Path:
    """Write a model that is given as text; return its file."""
    import onnx.parser

    onnx.save(onnx.parser.parse_model(text), f"{name}.onnx")
    return Path(f"{name}.onnx").resolve()


def c_file(model: Any, name: str) -> str:
    """Return one of a model's files."""
    return next(text.decode() for path, text in model.files.files.items() if Path(path).name == name)
