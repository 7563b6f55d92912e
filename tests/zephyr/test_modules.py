"""Zephyr firmware that accepts modules, in QEMU, with Zephyr's flash simulator."""

from pathlib import Path

import numpy as np
import pytest

import mtool
from mtool.commands import modules
from mtool.device import session
from mtool.manifest.modules import keys
from mtool.stages.options import module_options
from tests.zephyr.test_zephyr import need, pytestmark  # noqa: F401

BOARD = "mps2_an386"
DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits_int8.onnx"


@pytest.mark.slow
def test_a_module_runs_from_the_flash_of_zephyr(tmp_path: Path) -> None:
    need(BOARD)
    keys.make(tmp_path / "own.key")
    taken = module_options(True, tmp_path / "own.key.pub")
    options = mtool.Options(name="own", template="zephyr", template_options=taken)
    folder = mtool.prepare(DIGITS, board=BOARD, folder=tmp_path / "project", options=options).folder
    made = modules.make_module(DIGITS, board=BOARD, key=tmp_path / "own.key", options=mtool.Options(name="net"))
    x = {"image": np.arange(64, dtype=np.int8).reshape(1, 1, 8, 8)}
    for ram in (False, True):
        with session.open(folder) as device:
            found = device.load(made.data, ram=ram).run(x)["scores"]
            assert np.array_equal(found, device["own"].run(x)["scores"])
