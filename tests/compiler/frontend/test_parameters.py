"""Which numbers count as a model's parameters: the trained ones, as in the file."""

from pathlib import Path

import control_flow
import models
import numpy as np
import onnx
import pytest
import stateful
from golden_model import small_model
from graphs import model
from onnx import helper

from mtool.compiler import frontend
from mtool.compiler.frontend.parameters import parameter_count


def counted(proto: object, folder: Path) -> int:
    onnx.save(proto, folder / "m.onnx")
    return parameter_count(frontend.load(folder / "m.onnx"))


def test_a_layer_without_a_bias_has_none(tmp_path: Path) -> None:
    nodes = [helper.make_node("Gemm", ["x", "w"], ["a"]), helper.make_node("Gemm", ["a", "w", "b"], ["y"])]
    constants = {"w": np.ones((5, 5), np.float32), "b": np.zeros(5, np.float32)}
    assert counted(model(nodes, {"x": (np.float32, (1, 5))}, ["y"], constants), tmp_path) == 5 * 5 + 5  # w once


def test_scales_zero_points_shapes_and_single_numbers_are_none(tmp_path: Path) -> None:
    assert counted(small_model(), tmp_path) == 4 * 2 * 9 + 4 * 9 + 4 * 3


def test_those_of_recurrent_operators_and_of_bodies_count(tmp_path: Path) -> None:
    size, hidden, classes = stateful.SIZE, stateful.HIDDEN, stateful.CLASSES
    lstm = 4 * hidden * (size + hidden + 2)
    assert counted(stateful.recurrent("LSTM", "torch", 4)[0], tmp_path) == lstm + hidden * classes
    assert counted(control_flow.CASES["an if"].proto, tmp_path) == 2 * 6 * 8
    assert counted(control_flow.CASES["integers across all borders"].proto, tmp_path) == 2 * 6 * 8


@models.needed
@pytest.mark.parametrize(
    ("name", "count"), [("kws/kws_int8_qdq", 22_604), ("vww/vww_int8_qdq", 210_850), ("ad/ad_float32", 265_864)]
)
def test_those_of_the_shared_models(name: str, count: int) -> None:
    assert parameter_count(frontend.load(models.path(name))) == count
