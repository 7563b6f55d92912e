"""Float softmax calls the exponential once per element, and can share its input's memory; exponentials, logarithms."""

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from graphs import compiled, model, reference, run_c
from onnx import helper

import mtool

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


@pytest.mark.parametrize("board", ["mps2_an385", pytest.param("mps2_an386", marks=pytest.mark.slow)])
def test_exponentials_and_logarithms_on_boards(board: str, tmp_path: Path) -> None:
    edges = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, 1e-39, 3e38, 1, -1, 88.7, 88.8, -87.4, -103, -104.1, 87.1]
    chance = np.random.default_rng(1)
    near = [*chance.uniform(-88, 88, 2000), *chance.uniform(0, 2, 1000), *1 + chance.normal(0, 1e-3, 500)]
    x = np.float32([*edges, *near, *np.exp2(chance.uniform(-126, 127, 500))])
    proto = model([N("Exp", ["x"], ["e"]), N("Log", ["x"], ["l"])], {"x": (np.float32, x.shape)}, ["e", "l"])
    onnx.save(proto, tmp_path / "m.onnx")
    deployment = mtool.Deployment(tmp_path / "p")
    (found,) = mtool.run(tmp_path / "m.onnx", board=board, inputs=[{"x": x}], deployment=deployment).outputs
    with np.errstate(all="ignore"):
        for mine, wanted in ((found["e"], np.exp(x.astype(float))), (found["l"], np.log(x.astype(float)))):
            right = wanted.astype(np.float32)
            exact = (mine == right) | (np.isnan(mine) & np.isnan(right))
            assert np.all(exact | (np.abs(mine - wanted) <= 2.3 * np.spacing(np.abs(right))))
