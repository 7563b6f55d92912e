"""Batches of models: a C compiler's errors are reported by model, and no program is left behind."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest

from mtool import boards
from mtool.base.errors import BuildError, DeviceError
from mtool.base.filetree import FileTree
from mtool.compiler.compilation import target_of
from mtool.plugins.onnx_backend import batch, firmware


@pytest.mark.parametrize("place", ["m1.c", "m1_weights.c", "./m1.c"], ids=["gcc", "weights", "clang"])
def test_a_refused_model_is_found_by_its_file(place: str) -> None:
    models: list[Any] = [SimpleNamespace(manifest=SimpleNamespace(model=name)) for name in ("m0", "m1")]
    assert batch.refused(f"{place}:3:4: error: no such thing\n1 error generated.", models) == {1: "no such thing"}


def test_a_program_that_died_is_reported_and_started_again(tmp_path: Path) -> None:
    program = tmp_path / "batch"
    program.write_text("#!/bin/sh\necho found it >&2\nexit 3\n")
    program.chmod(0o755)
    no_inputs = SimpleNamespace(fed=(), manifest=SimpleNamespace(inputs=(), outputs=[SimpleNamespace(bytes=4)]))
    models: list[Any] = [no_inputs]
    with batch.Batch(program, models) as made:
        for _ in range(2):
            with pytest.raises(DeviceError, match="the program died with 3") as caught:
                made.run(0, [])
            assert caught.value.details == ("found it",)


def test_it_does_not_outlive_a_process_that_is_killed(tmp_path: Path) -> None:
    program = tmp_path / "batch"
    program.write_text(f"#!/bin/sh\necho $$ >{tmp_path}/pid\nprintf done\nexec sleep 60\n")
    program.chmod(0o755)
    script = f"""
from mtool.base.proc import Answering
running = Answering([{str(program)!r}])
print(running.answers.read(4), flush=True)
running.answers.read(4)
"""
    caller = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, cwd=Path(__file__).parents[2])
    assert caller.stdout is not None and caller.stdout.readline() == b"b'done'\n"
    caller.kill()
    caller.communicate()
    pid, deadline = int((tmp_path / "pid").read_text()), time.monotonic() + 10
    with pytest.raises(ProcessLookupError):
        while time.monotonic() < deadline:
            os.kill(pid, 0)
            time.sleep(0.01)


BOARD = boards.get("qemu_riscv32_v")


def sum_of(inputs: str, shape: Sequence[int], name: str) -> batch.CModel:
    """Return a model of one Sum as C for BOARD; each letter is an input."""
    tensors = {one: onnx.helper.make_tensor_value_info(one, onnx.TensorProto.FLOAT, shape) for one in f"{inputs}y"}
    node = onnx.helper.make_node("Sum", [*inputs], ["y"])
    graph = onnx.helper.make_graph([node], "g", [tensors[one] for one in inputs], [tensors["y"]])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    return batch.to_c(model, name, target=target_of(BOARD))


@pytest.fixture
def emulated() -> None:
    """Skip where the tools of BOARD are not installed."""
    for program in (BOARD.toolchain, "qemu-system-riscv32", "cmake", "ninja"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")


@pytest.mark.usefixtures("emulated")
def test_firmware_leaves_out_what_the_compiler_refuses(tmp_path: Path) -> None:
    empty, wrong = sum_of("ab", [0, 3], "m0"), sum_of("ab", [2], "m1")
    files = {name: wrong.files[name] + b"\n#error wrong\n" * (name == "m1.c") for name in wrong.files}
    with firmware.build([empty, replace(wrong, files=FileTree(files))], tmp_path / "project", BOARD) as device:
        assert device.run(0, [np.ones((0, 3), np.float32)] * 2)[0].shape == (0, 3)
        with pytest.raises(BuildError, match="the C compiler rejects the model"):
            device.run(1, [np.ones(2, np.float32)] * 2)


@pytest.mark.slow
@pytest.mark.usefixtures("emulated")
def test_firmware_of_one_float(tmp_path: Path) -> None:
    """Where GCC inlines much it sees a copy of the float onto itself (-Wrestrict), in code that is never reached."""
    board = BOARD.model_copy(update={"cflags": (*BOARD.cflags, "--param=max-inline-insns-auto=300")})
    with firmware.build([sum_of("abc", [1], "m0")], tmp_path / "project", board) as device:
        assert device.run(0, [np.float32([n]) for n in (1, 2, 4)])[0] == [7]
