"""Bytecode module files, errors before one is written, and the lists that C and Python share."""

import re
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from graphs import model
from onnx import helper

from mtool.base.errors import ModelError, UsageError
from mtool.cli import app
from mtool.commands import Options, modules
from mtool.commands.modules import make_bytecode
from mtool.compiler.bytecode.call import KERNELS, MAGIC, MORE
from mtool.compiler.bytecode.model import compile_bytecode
from mtool.compiler.bytecode.program import STEPS
from mtool.compiler.plan import Choice
from mtool.manifest.modules import keys
from mtool.manifest.modules.format import Kind, unpack
from tests.compiler.bytecode import host, small


@pytest.fixture
def path(tmp_path: Path) -> Path:
    onnx.save(small.network(), tmp_path / "small.onnx")
    return tmp_path / "small.onnx"


@pytest.mark.slow
def test_a_module_has_the_calls_the_interface_and_a_signature(path: Path, tmp_path: Path) -> None:
    public = keys.make(tmp_path / "own.key")
    made = make_bytecode(path, key=tmp_path / "own.key", counter=4)
    module = unpack(made.data)
    assert (module.kind, module.machine, module.counter, module.imports) == (Kind.BYTECODE, 0, 4, ())
    assert modules.is_signed_by(made.data, public)
    assert struct.unpack_from("<2I", module.image) == (MAGIC, module.arena_bytes)
    assert [one.dtype for one in module.description.inputs] == ["int8"] and len(module.description.outputs) == 2
    assert host.Machine(module.image).operators() == len(module.description.operators)
    assert make_bytecode(path, key=tmp_path / "own.key", counter=4).data == made.data


def test_equal_constants_are_there_once(tmp_path: Path) -> None:
    weights = np.arange(64, dtype=np.float32).reshape(8, 8)
    sizes = []
    for count in (1, 2):
        nodes = [helper.make_node("MatMul", [f"v{n}", f"w{n}"], [f"v{n + 1}"]) for n in range(count)]
        proto = model(nodes, {"v0": (np.float32, (1, 8))}, [f"v{count}"], {f"w{n}": weights for n in range(count)})
        onnx.save(proto, tmp_path / "two.onnx")
        image = compile_bytecode(tmp_path / "two.onnx", Options()).image
        _, _, words, constants = struct.unpack_from("<4I", image.data)
        assert image.code_bytes == 16 + 4 * words and len(image.data) == image.code_bytes + constants
        sizes.append(constants)
    assert sizes == [4 * (64 + 8)] * 2


def test_all_operators_without_a_kernel_are_reported(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Sin", ["x"], ["a"], "wave"),
        helper.make_node("Relu", ["a"], ["b"], "clip"),
        helper.make_node("TopK", ["b", "k"], ["y", "i"], "best"),
    ]
    proto = model(nodes, {"x": (np.float32, (1, 8))}, ["y", "i"], {"k": np.array([2], np.int64)})
    onnx.save(proto, tmp_path / "no.onnx")
    with pytest.raises(ModelError) as caught:
        make_bytecode(tmp_path / "no.onnx")
    assert len(caught.value.details) == 2
    assert "sin" in caught.value.details[0] and "(wave, clip)" in caught.value.details[0]
    assert "best" in caught.value.details[1]
    assert "docs/bytecode.md" in str(caught.value.hint)


def test_states_are_refused(path: Path, tmp_path: Path) -> None:
    nodes = [helper.make_node("Add", ["x", "h"], ["y"], "sum")]
    onnx.save(model(nodes, dict.fromkeys("xh", (np.float32, (1, 4))), ["y"]), tmp_path / "cell.onnx")
    with pytest.raises(ModelError, match="keeps states"):
        make_bytecode(tmp_path / "cell.onnx", options=Options(states=(("y", "h"),)))


@pytest.mark.parametrize("options", [Options(schedules={"conv_0": Choice("c99_patch")}), Options(optimize="speed")])
def test_options_of_code_are_refused(path: Path, options: Options) -> None:
    with pytest.raises(UsageError, match="a bytecode module does not have"):
        make_bytecode(path, options=options)


def test_the_command_writes_one(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "small.mtm"
    assert app.invoke(["module", str(path), "--bytecode", "-o", str(target)]) == 0
    said = capsys.readouterr().out
    assert "bytecode: calls of the firmware's kernels" in said and unpack(target.read_bytes()).name == "small"
    names = "conv2d_int8, depthwise_int8, dense_int8, pool_int8, softmax_int8, add_int8, copy, map"
    assert f"kernels that the firmware needs: {names}" in said


def _listed(header: str, macro: str) -> dict[str, int]:
    text = (host.CRT / "include" / header).read_text()
    body = text[text.index(f"#define {macro}(X)") :].split("/* clang-format on")[0]
    return {name: int(number) for number, name in re.findall(r"X\((\d+),\s*(\w+)", body)}


def test_c_and_python_have_the_same_lists() -> None:
    assert _listed("mt_bytecode_kernels.h", "MT_BYTECODE_KERNELS") == KERNELS
    assert _listed("mt_bytecode_map.h", "MT_BYTECODE_STEPS") == STEPS


@pytest.mark.slow
def test_a_call_that_is_cut_or_unknown_is_refused(path: Path) -> None:
    image = compile_bytecode(path, Options()).image
    words = list(struct.unpack(f"<{len(image.data) // 4}I", image.data))

    def refused(*changes: tuple[int, int]) -> int:
        changed = list(words)
        for at, value in changes:
            changed[at] = value
        return host.Machine(struct.pack(f"<{len(changed)}I", *changed)).refused

    assert refused() == 0
    assert refused((0, MAGIC + 1)) == refused((2, words[2] + 1)) == refused((3, words[3] + 4)) == -1
    assert refused((4, words[4] & ~0x7FFF | 99)) == -2  # a kernel that the library has not
    assert refused((4, words[4] + (1 << 16))) > 0  # an operand more
    assert refused((4, words[4] - (1 << 16))) > 0  # one less
    assert refused((1, words[1] - 4)) > 0  # an arena that is too small
    assert refused((4, words[4] | MORE)) == 0  # the first call begins an operator all the same
    assert host.Machine(image.data[:-4]).refused == -1 and host.Machine(image.data[:-1]).refused == -1


def test_names_are_those_of_c(path: Path) -> None:
    long = replace(Options(), name="n" * 32)
    with pytest.raises(UsageError, match="too long for a module"):
        make_bytecode(path, options=long)
