"""The session, the server and each template's port together: the test model as the firmware of every board."""

import os
import shutil
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from mtool import boards, manifest, project
from mtool.base import filetree
from mtool.base.errors import CommunicationError
from mtool.base.filetree import FileTree
from mtool.boards import Board
from mtool.device import build, session
from mtool.device.build.stack import CallGraph
from tests.crt import firmware
from tests.device.session.test_device import check, expected, first, inputs

SOURCE = (firmware.CRT / "tests" / "mt_test_model.c").read_bytes()
MODEL = FileTree({"test_model_rpc.c": SOURCE, "test_model.c": b"extern int nothing;\nint nothing = 0;\n"})
INTERRUPT = 108  # of a UART, at most: the registers that it saves
RUNNABLE = [
    board
    for board in boards.load_all().values()
    if "host" in board.templates or ("baremetal" in board.templates and board.emulator and "uart" not in board.ports)
]


@pytest.fixture(scope="module", params=RUNNABLE, ids=lambda board: board.name)
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Board, Path]:
    board: Board = request.param
    for program in [board.toolchain, *([board.emulator.program, "cmake", "ninja"] if board.emulator else [])]:
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    folder = tmp_path_factory.mktemp(board.name) / "project"
    template = "host" if "host" in board.templates else "baremetal"
    filetree.write(project.render(MODEL, firmware.MANIFEST, board, template=template)[0], folder)
    build.build(folder)
    return board, folder


def test_run_time_and_stack(built: tuple[Board, Path]) -> None:
    board, folder = built
    with session.open(folder, timeout_s=30) as device:
        for run in range(1, 4):
            check(device.run(inputs(run)), expected(inputs(run), run=run))
        flat = device.stack_bytes()
        timings = [device.time(number=2, repeat=3, inputs=inputs()) for _ in range(2)]
        assert timings[0].median > 0
        device.run(first(firmware.LOG))
        deep = device.client.run([bytes([firmware.GO_DEEP])], [0], work_s=10) and device.stack_bytes()
    assert board.timer is not None
    assert timings[0].unit == board.timer.unit
    if board.timer.unit == "instructions":
        assert timings[0] == timings[1]
        assert timings[0].spread <= timings[0].granularity
    if board.memories:
        graph = CallGraph(manifest.firmware_of(folder, manifest.load(folder).in_project, "host_driven"))
        bound = graph.bound("mt_work_run", {"mt_work_run": ["run"]}).bytes
        assert bound is not None and deep is not None and 1000 < deep <= bound + INTERRUPT, "never below the measured"
        assert flat is not None and 0 < flat < 200
        assert deep is not None and 1000 <= deep < 1200
    else:
        assert flat is None


def test_a_killed_emulator_is_reported_and_started_again(built: tuple[Board, Path]) -> None:
    with session.open(built[1], timeout_s=30) as device:
        check(device.run(inputs(1)), expected(inputs(1), run=1))
        os.kill(device.connection.transport.pid, signal.SIGKILL)  # type: ignore[attr-defined]
        began = time.monotonic()
        with pytest.raises(CommunicationError, match="was killed by signal 9") as caught:
            device.run(inputs(2))
        assert time.monotonic() - began < 5
        assert caught.value.exit_code == 8
        device.reconnect()
        check(device.run(inputs(3)), expected(inputs(3), run=1))


def test_a_large_input_goes_in_fast(built: tuple[Board, Path]) -> None:
    data = np.zeros(27_648, np.uint8).tobytes()
    with session.open(built[1], timeout_s=30) as device:
        seconds = []
        for _ in range(10):
            start = time.perf_counter()
            device.client.write([b"", b"", data])
            seconds.append(time.perf_counter() - start)
    assert min(seconds) < 0.01
