"""Data-dependent control flow against onnxruntime: on the host under sanitizers, and on a Cortex-M4."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from mtool import boards
from mtool.compiler.compilation import target_of
from mtool.compiler.frontend import ModelOptions
from mtool.compiler.kernels.target import Target
from mtool.plugins.onnx_backend import batch, firmware
from mtool.plugins.onnx_backend.batch import HOST, Batch, CModel
from mtool.plugins.onnx_backend.firmware import Firmware
from mtool.stages import samples as sampling
from tests.control_flow import CASES
from tests.onnx_suite.running import built

ort = pytest.importorskip("onnxruntime")
NAMES = [*CASES]


def models(target: Target = HOST) -> list[CModel]:
    return [
        batch.to_c(case.proto, f"m{number}", ModelOptions(maxima=case.maxima), target)
        for number, case in enumerate(CASES.values())
    ]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Batch]:
    with built(models(), tmp_path_factory.mktemp("control")) as made:
        yield made


def check(program: Batch | Firmware, name: str) -> None:
    case, number = CASES[name], NAMES.index(name)
    session = ort.InferenceSession(case.proto.SerializeToString(), providers=["CPUExecutionProvider"])
    for feeds in case.feeds:
        wanted = session.run(None, feeds)
        given = [feeds[value.name] for value in case.proto.graph.input]
        tensors = program.models[number].manifest.outputs
        found = dict(zip((t.name for t in tensors), program.run(number, given), strict=True))
        for expected, actual in zip(wanted, sampling.cut(tensors, found).values(), strict=True):
            assert actual.dtype == expected.dtype
            assert actual.shape == expected.shape
            np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.product(2)
@pytest.mark.parametrize("name", NAMES)
def test_it_computes_what_onnxruntime_does(program: Batch, name: str) -> None:
    check(program, name)


@pytest.mark.slow
def test_all_of_it_on_a_cortex_m4(tmp_path: Path) -> None:
    board = boards.get("mps2_an386")
    with firmware.build(models(target_of(board)), tmp_path / "project", board) as device:
        for name in NAMES:
            check(device, name)
