"""Small valid TFLite models of every supported operator: the tests' cases, alone and in groups."""

import importlib
import random
import sys
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]
LISTS = {"test_tflite_operators": ("EXACT",), "test_tflite_coverage": ("FLOAT", "MOVES", "STEPS")}


def own() -> dict[str, bytes]:
    """Return the models."""
    for folder in (TESTS, TESTS / "compiler" / "frontend"):
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
    from tflite_cases import one_model

    found, everything = {}, []
    for module, lists in LISTS.items():
        for name in lists:
            cases = list(getattr(importlib.import_module(module), name))
            everything += cases
            for case in cases:
                found[f"{name}.{case.name}"] = one_model([case])[0]
    rng = random.Random(3)
    for number in range(20):
        found[f"group.{number}"] = one_model(rng.sample(everything, 4))[0]
    return found


def given(folder: Path, limit: int = 400_000) -> Iterator[tuple[str, bytes]]:
    """Yield the models of a folder that are not too large to mutate quickly."""
    for path in sorted(folder.rglob("*.tflite")):
        if path.stat().st_size <= limit:
            yield path.stem, path.read_bytes()
