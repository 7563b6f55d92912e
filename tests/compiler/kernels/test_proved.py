"""Frama-C's Eva proves that no data makes a portable schedule do what C leaves undefined (docs/proofs.md)."""

import itertools
import shutil
from pathlib import Path

import numpy as np
import proved
import pytest
from graphs import compiled, model
from onnx import helper

from mtool.boards import get
from mtool.compiler.kernels.target import Target
from tests.crt.proofs import TOOL

pytestmark = pytest.mark.skipif(shutil.which(TOOL) is None, reason="frama-c is not installed (Debian: frama-c-base)")


@pytest.mark.slow
@pytest.mark.parametrize("target, prefix", proved.PORTABLE)
def test_no_data_harms(target: Target, prefix: str, tmp_path: Path) -> None:
    for schedule, plans in proved.smallest(target, prefix, 1).items():
        assert proved.proved(plans, tmp_path).alarms == (), schedule


def test_no_data_harms_a_small_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["xf"]),
        helper.make_node("DequantizeLinear", ["w", "s", "zero"], ["wf"]),
        helper.make_node("Conv", ["xf", "wf"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("QuantizeLinear", ["r", "s", "z"], ["y"]),
    ]
    constants = {"s": np.float32(0.05), "z": np.int8(-3), "zero": np.int8(0)}
    constants["w"] = np.arange(-27, 27).reshape(3, 2, 3, 3).astype(np.int8)
    plan = compiled(model(nodes, {"x": (np.int8, (1, 2, 4, 5))}, ["y"], constants), Target("rv32imc", frozenset()))
    assert proved.proved([plan], tmp_path).alarms == ()
    monkeypatch.setattr(proved, "TURNS", 0)  # sums of turns that are joined may overflow
    assert proved.proved([plan], tmp_path).alarms


@pytest.mark.slow
def test_no_data_harms_a_softmax_of_integers(tmp_path: Path) -> None:
    """More cases than Eva keeps apart in a function: each largest element at each place of a row."""
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["xf"]),
        helper.make_node("Softmax", ["xf"], ["p"]),
        helper.make_node("QuantizeLinear", ["p", "t", "least"], ["y"]),
    ]
    constants = {"s": np.float32(0.05), "z": np.int8(-3), "t": np.float32(2**-8), "least": np.int8(-128)}
    plan = compiled(model(nodes, {"x": (np.int8, (4, 2))}, ["y"], constants), Target("rv32imc", frozenset()))
    assert proved.proved([plan], tmp_path).alarms == ()


@pytest.mark.slow
def test_no_data_harms_random_networks(tmp_path: Path) -> None:
    for name, plan in itertools.islice(proved.networks(get("qemu_riscv32"), tmp_path), 2):
        assert proved.proved([plan], tmp_path).alarms == (), name
