"""Recipes: TOML files with the bits of a quantized model's layers, to make the same model again."""

import hashlib
import json
import logging
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field

from mtool.base import files, records
from mtool.base.configuration import read_toml
from mtool.base.errors import UsageError
from mtool.base.option_values import Integer, Method
from mtool.base.records import Strict
from mtool.base.tensors import Sample
from mtool.quantization.budget import Bits, Point
from mtool.quantization.dataset import hash_of
from mtool.stages import arrays
from mtool.stages.formatting import kilobytes
from mtool.version import __version__

log = logging.getLogger(__name__)


class Made(Strict):
    """What a recipe's model was made of: the hashes of the float model's file and of the samples."""

    mtool: str
    model: str
    model_sha256: str
    samples: int
    samples_sha256: str

    @classmethod
    def of(cls, model: Path, samples: Sequence[Sample]) -> Self:
        """Return it for a file and calibration data."""
        return cls(
            mtool=__version__,
            model=model.name,
            model_sha256=_sha256(model.read_bytes()),
            samples=len(samples),
            samples_sha256=hash_of(samples).hexdigest(),
        )


class How(Strict):
    """The fields of a `Scheme` but for the weights."""

    method: Method
    activations: Integer
    symmetric: bool
    exclude: list[str]
    integer_io: bool


class Row(Strict):
    """A model that was tried."""

    bits: str
    weight_bytes: int
    flash_bytes: int | None = None
    ram_bytes: int | None = None
    milliseconds: float | None = None
    accuracy: float | None = None
    sqnr_db: float
    chosen: bool = False


class Result(Strict):
    """The model that was chosen: its file's hash, and what its accuracy is."""

    sha256: str
    board: str
    budget: str
    measure: str


class Recipe(Strict):
    """A recipe: the bits of the weights of each layer (32: float), and the tensors of 16 bits."""

    made: Made
    scheme: How
    weights: dict[str, Literal[8, 4, 2, 32]]
    activations: dict[str, Literal[16]] = Field(default={})
    result: Result
    front: list[Row] = Field(default=[])

    @property
    def bits(self) -> Bits:
        """The bits of the model."""
        return Bits(self.weights, tuple(self.activations))

    @classmethod
    def of(cls, made: Made, scheme: Any, bits: Bits, result: Result, front: Sequence[Row]) -> Self:
        """Return the recipe of a model that was made with a `Scheme` and these bits."""
        how = How.model_validate(scheme, from_attributes=True)
        wide: dict[str, Literal[16]] = dict.fromkeys(bits.wide, 16)
        weights: Any = {**bits.weights}
        return cls(made=made, scheme=how, weights=weights, activations=wide, result=result, front=[*front])

    def as_toml(self) -> bytes:
        """Return its file."""
        lines = [f"# Makes the model again: mtool quantize {self.made.model} --data DATA --recipe THIS"]
        for name, table in self.model_dump(exclude_none=True).items():
            for row in filter(None, table if isinstance(table, list) else [table]):
                lines += ["", f"[[{name}]]" if isinstance(table, list) else f"[{name}]"]
                keys = {key: key if re.fullmatch(r"[\w-]+", key, re.ASCII) else _text(key) for key in row}
                lines += [f"{keys[key]} = {_text(value)}" for key, value in row.items()]
        return ("\n".join(lines) + "\n").encode()

    def check_made(self, model: Path, samples: Sequence[Sample], result: bytes) -> None:
        """Warn if the result is another than the recipe's, and why."""
        if _sha256(result) == self.result.sha256:
            return
        made, now = self.made, Made.of(model, samples)
        differ = {
            f"the model is not the {made.model} that it is for": made.model_sha256 != now.model_sha256,
            "the calibration data are others": made.samples_sha256 != now.samples_sha256,
            f"it was made by mtool {made.mtool}": made.mtool != now.mtool,
        }
        reasons = [reason for reason, is_other in differ.items() if is_other]
        log.warning("the result differs from the recipe's: %s", "; ".join(reasons) or "packages have other versions")


def read(path: Path) -> Recipe:
    """Read a recipe.

    Raises:
        UsageError: it can't be read, or is not a recipe.
    """
    arrays.check_regular(path)
    tables, _ = read_toml(path, "the recipe ")
    return records.read(Recipe, tables, f"{path} is not a recipe", hint="mtool quantize --budget writes them", most=5)


def of_model(path: Path) -> Recipe | None:
    """Return the recipe beside a model's file, if it is this model's."""
    try:
        recipe = read(path.with_suffix(".toml"))
    except UsageError:
        return None
    return recipe if recipe.result.sha256 == _sha256(path.read_bytes()) else None


def check_target(path: Path, files_read: Sequence[Path]) -> None:
    """Check that a recipe can be written, which replaces only recipes.

    Raises:
        UsageError: there is another file.
    """
    files.check_writable(path, files_read)
    if path.exists():
        try:
            read(path)
        except UsageError:
            raise UsageError(
                f"{path} exists and is not a recipe", hint="choose another name for the output: -o"
            ) from None


def _text(value: Any) -> str:
    """Return a value as TOML, whose strings are JSON's but for one character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def rows(front: Sequence[Point], chosen: Point) -> list[Row]:
    """Return the models that were tried."""
    return [
        Row(
            bits=str(point.bits),
            weight_bytes=point.weight_bytes,
            flash_bytes=point.cost.flash,
            ram_bytes=point.cost.ram,
            milliseconds=point.cost.ms,
            accuracy=point.score.accuracy,
            sqnr_db=point.score.sqnr_db,
            chosen=point == chosen,
        )
        for point in front
    ]


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def table(front: Sequence[Row]) -> tuple[tuple[str, ...], list[list[str]]]:
    """Return headings, and a row of text for each model; the first column marks the chosen one."""
    columns: tuple[tuple[str, Callable[[Row], str | None]], ...] = (
        ("", lambda row: "  chosen" if row.chosen else ""),
        ("bits: layers", lambda row: row.bits),
        ("weights", lambda row: kilobytes(row.weight_bytes)),
        ("flash", lambda row: kilobytes(row.flash_bytes) if row.flash_bytes else None),
        ("RAM", lambda row: kilobytes(row.ram_bytes) if row.ram_bytes else None),
        ("ms", lambda row: f"{row.milliseconds:.3g}" if row.milliseconds else None),
        ("accuracy", lambda row: f"{row.accuracy:.1%}" if row.accuracy is not None else None),
        ("SQNR", lambda row: f"{row.sqnr_db:.1f} dB"),
    )
    shown = [(title, text) for title, text in columns if any(text(row) is not None for row in front)]
    return tuple(title for title, _ in shown), [[text(row) or "" for _, text in shown] for row in front]
