"""A seeded sample of onnx's node tests on an emulated microcontroller; other tests run a case of each operator."""

import random
import shutil

import pytest

from mtool import boards
from mtool.compiler.compilation import target_of
from tests.onnx_suite.cases import Case, node_cases
from tests.onnx_suite.expectations import NOT_PASSED
from tests.onnx_suite.running import compiled, run_on_board

BOARD = boards.get("mps2_an386")
COUNT = 200
FIRMWARES = 4
MOST_BYTES = 64 * 1024  # of constants, arena, inputs and outputs: all of a firmware's models lie side by side

pytestmark = [pytest.mark.long, pytest.mark.timeout(600), pytest.mark.filterwarnings("ignore"), pytest.mark.slow]


def sample() -> list[Case]:
    """Return COUNT of the tests that pass on the host, drawn with seed 0, leaving out what is too large."""
    cases = [case for case in node_cases() if f"node/{case.name}" not in NOT_PASSED]
    random.Random(0).shuffle(cases)
    fitting = []
    for case in cases:
        inputs, outputs = case.data[0]
        if sum(array.nbytes for array in (*inputs, *outputs)) <= MOST_BYTES:
            fitting.append(case)
        if len(fitting) == COUNT:
            break
    return fitting


@pytest.mark.parametrize("part", range(FIRMWARES))
def test_a_sample_of_the_node_tests(part: int) -> None:
    assert BOARD.emulator is not None
    for program in (BOARD.toolchain, BOARD.emulator.program, "cmake", "ninja"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    cases = sample()[part::FIRMWARES]
    for case in cases:
        manifest = compiled(case, "m", target_of(BOARD)).model.manifest
        assert manifest.arena_bytes + manifest.constant_bytes <= MOST_BYTES, f"{case.name} does not fit"
    assert not run_on_board(cases, BOARD)
