"""Batches of models: what a C compiler refuses is told by model."""

from types import SimpleNamespace
from typing import Any

import pytest

from mtool.onnx_backend import batch


@pytest.mark.parametrize("place", ["m1.c", "m1_weights.c", "./m1.c"], ids=["gcc", "weights", "clang"])
def test_a_refused_model_is_found_by_its_file(place: str) -> None:
    models: list[Any] = [SimpleNamespace(manifest=SimpleNamespace(model=name)) for name in ("m0", "m1")]
    assert batch._refused(f"{place}:3:4: error: no such thing\n1 error generated.", models) == {1: "no such thing"}
