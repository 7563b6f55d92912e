"""CMSIS-NN computes what LiteRT does, byte for byte; it is not mtool's, and CMSIS_NN_DIR says where it is."""

import os
import shutil
from pathlib import Path

import models
import numpy as np
import pytest

import mtool
from mtool.backends import BackendSpec
from mtool.backends.cmsis_nn import arithmetic
from mtool.workflow.stages import Options

library = pytest.mark.skipif("CMSIS_NN_DIR" not in os.environ, reason="CMSIS_NN_DIR does not say where CMSIS-NN is")
BOARDS = {"host": "cc", "mps2_an386": "qemu-system-arm", "mps3_an547": "qemu-system-arm"}


@library
@models.needed
@pytest.mark.parametrize("board", BOARDS)
@pytest.mark.parametrize("name", ["kws/kws_int8", "vww/vww_int8", "ic/ic_int8", "ad/ad_int8"])
def test_equal_to_litert(name: str, board: str, tmp_path: Path) -> None:
    if shutil.which(BOARDS[board]) is None:
        pytest.skip(f"{BOARDS[board]} is not installed")
    path = (models.FOLDER / name).with_suffix(".tflite")
    options = Options(rounding="tflite", backends=(BackendSpec("cmsis_nn"),))
    project = mtool.Deployment(tmp_path / "project")
    report = mtool.verify(path, board=board, options=options, deployment=project, samples=1)
    assert report.ok
    model = mtool.compile(path, board=board, options=options)
    taken = [claim for claim in model.manifest.claims if claim.backend]
    assert len(taken) >= len(model.manifest.claims) // 3


def test_two_ways_to_round() -> None:
    values = np.array([-3, -1, 0, 1, 3, 1000, -1000])
    half, shift = 1 << 30, 0
    np.testing.assert_array_equal(arithmetic.requantised(values, half, shift), [-1, 0, 0, 1, 2, 500, -500])
    np.testing.assert_array_equal(arithmetic.rounded_once(values, half, shift), [-1, 0, 0, 1, 2, 500, -500])
    assert arithmetic.differs_from_once((1 << 30) + 1, -4, 1 << 16)
    assert not arithmetic.differs_from_once(1 << 30, 0, 1000)
    assert arithmetic.differs_from_once(1 << 30, 0, 1 << 24), "more than are tried"
