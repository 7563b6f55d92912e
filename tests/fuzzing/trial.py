"""Compile one mutant, as the command line would, and return the outcome."""

import random
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mtool import boards
from mtool.base.errors import FitError, ModelError, MtoolError, NeedsValues, UsageError
from mtool.base.filetree import FileTree
from mtool.compiler.compilation import compile_model
from mtool.compiler.request import Request
from mtool.manifest import Manifest

REFUSALS = (UsageError, ModelError, FitError)
HOST = boards.get("host")


@dataclass(frozen=True, slots=True)
class Compiled:
    """A mutant that mtool compiled: what came out, and what was said of it beside its file."""

    files: FileTree
    manifest: Manifest
    rounding: str
    constants: dict[str, Any] = field(default_factory=dict)
    dims: dict[str, int] = field(default_factory=dict)


def compiled(path: Path, rng: random.Random) -> Compiled | str:
    """Compile a model file for the host; a str is mtool's refusal.

    What mtool asks for (values of inputs, sizes) it is given, as a careless user would.
    """
    given: dict[str, Any] = {"dims": {}, "constants": {}, "maxima": {}}
    if path.suffix == ".tflite":
        given["rounding"] = rng.choice(("onnx", "tflite"))
    for _ in range(4):
        try:
            made = compile_model(path, HOST, Request(**given))
            return Compiled(made.files, made.manifest, given.get("rounding", "onnx"), given["constants"], given["dims"])
        except REFUSALS as refused:
            if not _answered(refused, given, rng):
                return f"{type(refused).__name__}: {refused}"
        except MtoolError as other:
            raise AssertionError(f"an error of the class {type(other).__name__}: {other}") from other
    return "asks on and on"


def _answered(refused: MtoolError, given: dict[str, Any], rng: random.Random) -> bool:
    """Take up an error's hint; whether it had one."""
    if isinstance(refused, NeedsValues) and not set(refused.inputs) <= set(given["constants"]):
        given["constants"].update({name: np.array(rng.choice((0, 1, 2, 3))) for name in refused.inputs})
        return True
    dims = re.findall(r"--dim (\S+)=1", refused.hint)
    maxima = re.findall(r"--max (\S+)=N", str(refused))
    if not dims and not maxima:
        return False
    before = dict(given["dims"]), dict(given["maxima"])
    given["dims"].update({name: rng.choice((1, 2, 3)) for name in dims})
    given["maxima"].update({name: rng.choice((1, 4, 6)) for name in maxima})
    return before != (given["dims"], given["maxima"])
