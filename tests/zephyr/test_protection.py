"""Memory protection on Zephyr: what a model may not do ends it alone, as on bare metal."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from graphs import reference

import mtool
from mtool import boards
from mtool.device import session
from tests.device.session import faulty, protected, test_protected_modules
from tests.zephyr.test_zephyr import need, pytestmark  # noqa: F401


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["mps2_an386", "mps2_an385", "mps2_an500", "mps3_an547", "mps2_an521", "qemu_cortex_m3"]
)
def test_what_a_model_may_not_do_ends_it_alone(name: str, tmp_path: Path) -> None:
    protected.check(protected.make(need(name).name, tmp_path, "zephyr"))


@pytest.mark.slow
def test_modules_run_under_memory_protection(tmp_path: Path) -> None:
    need(test_protected_modules.BOARD)
    test_protected_modules.check(tmp_path, "zephyr")


@pytest.mark.slow
def test_constants_in_ram_are_copied_and_read(tmp_path: Path) -> None:
    known, slow = need("mps2_an386"), boards.get("nucleo_l4r5zi")
    flash = known.memories["ssram1"].model_copy(update={"reads": slow.memories["flash"].reads})
    memories = {**known.memories, "ssram1": flash}
    board = known.model_copy(update={"memories": memories, "clock_hz": slow.clock_hz})
    options = mtool.Options(template="zephyr", protect=True)
    prepared = mtool.prepare(faulty.DIGITS, board=board, folder=tmp_path / "project", options=options)
    assert prepared.manifest.constant_bytes_in_ram > 0
    with session.open(prepared.folder) as device:
        found = device.run(protected.image())["scores"]
    np.testing.assert_array_equal(found, reference(onnx.load(faulty.DIGITS), protected.image())[0])
