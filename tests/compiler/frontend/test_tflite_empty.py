"""TFLite tensors without elements: constants without a buffer, zero rows, means of nothing."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tflite_cases import compute
from tflite_models import Op, T, litert, model

from mtool.base.errors import MtoolError
from mtool.compiler.kernels.target import Target

HOST = Target("host", frozenset({"fpu"}))
GATHER = (
    [T("x", [5, 2]), T("i", [0, 1], np.int32), T("y", [0, 2])],
    Op("GATHER_ND", ["x", "i"], ["y"], "GatherNdOptions"),
)
DENSE = (
    [
        T("x", [4, 0, 5], np.int8, 0.1, 3),
        T("w", [3, 5], np.int8, 0.1, data=np.ones((3, 5))),
        T("y", [4, 0, 3], np.int8, 0.1, 3),
    ],
    Op("FULLY_CONNECTED", ["x", "w", ""], ["y"], "FullyConnectedOptions", {"KeepNumDims": True}),
)


@pytest.mark.parametrize("rounding", ["onnx", "tflite"])
@pytest.mark.parametrize(("tensors", "op"), [GATHER, DENSE], ids=["a constant without a buffer", "no rows"])
def test_nothing_is_computed(tensors: list[T], op: Op, rounding: Any, tmp_path: Path) -> None:
    data = model(tensors, [op], ["x"], ["y"])
    feeds = {"x": np.zeros(tensors[0].shape, tensors[0].dtype)}
    (found,) = compute(data, feeds, tmp_path, rounding, HOST)
    np.testing.assert_array_equal(found, litert(data, feeds, reference=rounding == "tflite")[0], strict=True)


def test_an_integer_mean_of_nothing_is_refused(tmp_path: Path) -> None:
    tensors = [
        T("x", [0, 3], np.int8, 0.1, 3),
        T("a", [1], np.int32, data=np.zeros(1)),
        T("y", [3], np.int8, 0.1, 3),
    ]
    data = model(tensors, [Op("MEAN", ["x", "a"], ["y"], "ReducerOptions")], ["x"], ["y"])
    with pytest.raises(MtoolError, match="it reduces no elements"):
        compute(data, {"x": np.zeros((0, 3), np.int8)}, tmp_path, "tflite", HOST)
