"""Float softmax calls the exponential once per element, and can share its input's memory."""

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from graphs import compiled, model, reference, run_c
from onnx import helper

N = helper.make_node


@pytest.mark.parametrize(
    ("nodes", "calls"),
    [
        ([N("Exp", ["x"], ["a"]), N("Softmax", ["a"], ["y"])], 1),
        ([N("Exp", ["x"], ["a"]), N("Softmax", ["a"], ["b"]), N("Mul", ["b", "k"], ["y"])], 1),
        ([N("Exp", ["x"], ["a"]), N("Softmax", ["a"], ["b"]), N("Mul", ["b", "a"], ["y"])], 2),
    ],
    ids=["alone", "times a constant", "times its input"],
)
def test_powers_are_kept_unless_something_else_lies_there(
    nodes: list[onnx.NodeProto], calls: int, tmp_path: Path
) -> None:
    proto = model(nodes, {"x": (np.float32, (5, 7))}, ["y"], {"k": np.linspace(0.5, 2, 7, dtype=np.float32)})
    feeds = {"x": np.random.default_rng(3).normal(0, 1, (5, 7)).astype(np.float32)}
    (found,), (expected,) = run_c(compiled(proto), feeds, tmp_path), reference(proto, feeds)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    functions = re.findall(r"^MT_ALONE void test_softmax.*?^}", (tmp_path / "test.c").read_text(), re.M | re.S)
    assert [function.count("mt_exp_f32(") for function in functions] == [calls]
