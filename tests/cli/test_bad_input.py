"""Bad input ends with its exit code and one clear message, and leaves nothing half-written."""

import hashlib
import os
import shutil
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from mtool.cli import app
from mtool.device.session import opening

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits_int8.onnx"

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def save(name: str, *nodes: onnx.NodeProto, shape: tuple[int | str, ...] = (1, 4), **constants: np.ndarray) -> str:
    """Write a model with one float input "x", the given nodes and one output "y"; return the file's name."""
    graph = helper.make_graph(
        list(nodes),
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * len(shape))],
        [numpy_helper.from_array(value, key) for key, value in constants.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), name)
    return name


def relu(name: str, shape: tuple[int | str, ...] = (1, 4)) -> str:
    return save(name, helper.make_node("Relu", ["x"], ["y"], "relu"), shape=shape)


@pytest.mark.parametrize("command", ["compile", "build", "run", "verify", "bench", "flash"])
@pytest.mark.parametrize(
    ("arguments", "reported"),
    [
        ("--executor graph --operators-api typed", "calls the operators as packed functions"),
        ("--executor graph-host --operators-api values", "calls the operators as packed functions"),
        ("--executor graph --interface-api step", "runs the operators from C"),
        ("--executor tree", "tree"),
        ("--interface-api cpp", "cpp"),
        ("--schedule conv_2", "expected NAME=VALUE"),
        ("--schedule conv_2=", "the schedule is missing"),
        ("--schedule conv_2=dsp_patch:unroll", "expected KNOB=VALUE, found 'unroll'"),
        ("--schedule conv_2=dsp_patch:unroll=8,", "expected KNOB=VALUE, found ''"),
        ("--schedule conv_2=c99_patch --schedule conv_2=dsp_patch", "conv_2 already has a schedule"),
        ("--schedule conv_7=c99_patch", "unknown node"),
    ],
)
def test_options_that_do_not_go_together(command: str, arguments: str, reported: str, capsys: Captured) -> None:
    board = ["--board", "host"] if command != "flash" else ["--board", "stm32f746g_disco", "--dry-run"]
    assert app.invoke([command, str(DIGITS), *board, *arguments.split()]) == 2
    captured = capsys.readouterr()
    assert reported in captured.err and "Traceback" not in captured.err
    assert list(Path().iterdir()) == []


def with_weights_in(location: str) -> str:
    """Write a model whose weights lie in another file."""
    name = save("external.onnx", helper.make_node("Add", ["x", "w"], ["y"], "add"), w=np.ones((1, 4), np.float32))
    model = onnx.load(name)
    weights = model.graph.initializer[0]
    weights.ClearField("raw_data")
    weights.data_location = TensorProto.EXTERNAL
    entry = weights.external_data.add()
    entry.key, entry.value = "location", location
    Path(name).write_bytes(model.SerializeToString())
    return name


def fails(arguments: list[str], code: int, *messages: str, capsys: Captured, command: str = "run") -> None:
    """Check that a command ends with a code, says all of `messages`, and leaves no folder."""
    before = written()
    assert app.invoke([command, *arguments]) == code
    captured = capsys.readouterr()
    assert captured.err.count("error: ") == 1 and captured.err.endswith(f"exit {code}\n")
    assert "Traceback" not in captured.err
    for message in messages:
        assert message in captured.err
    assert written() == before


def written() -> list[Path]:
    """Return all that is there but the note that a build is fresh."""
    return sorted(path for path in Path().rglob("*") if path.name != "compiled.key")


def test_what_is_read_is_not_overwritten(capsys: Captured) -> None:
    name = relu("model.onnx")
    Path("page.html").symlink_to(name)
    np.savez("x.npz", x=np.ones((1, 4), np.float32))
    for command, *arguments in (
        ["report", name, "-o", name],
        ["report", name, "-o", "page.html"],
        ["run", name, "--input", "x.npz", "--output", "./x.npz"],
    ):
        fails(arguments, 2, "would overwrite", capsys=capsys, command=command)


@pytest.mark.parametrize("command", ["build", "compile", "run"])
def test_an_empty_name_is_not_a_folder(command: str, capsys: Captured) -> None:
    fails([relu("model.onnx"), "--output-dir", ""], 2, "--output-dir is empty", capsys=capsys, command=command)


@pytest.mark.parametrize(
    "arguments",
    ["verify --seed -1", "run --seed -1", "verify --samples 1000000000000", "check --dim N=" + 5000 * "9"],
)
def test_numbers_out_of_range(arguments: str, capsys: Captured) -> None:
    command, *options = arguments.split()
    fails([relu("model.onnx"), *options], 2, capsys=capsys, command=command)


def test_files_that_are_not_what_their_name_says(capsys: Captured) -> None:
    """A pipe would be waited for; an archive named .npy is none of one array."""
    name = relu("model.onnx")
    os.mkfifo("pipe.onnx")
    fails(["pipe.onnx"], 2, "pipe.onnx is a pipe, not a file", capsys=capsys, command="check")
    np.savez("two.npz", a=np.ones(4), b=np.ones(4))
    Path("two.npz").rename("two.npy")
    fails(
        [name, "--const", "x=two.npy"],
        2,
        "expected a number, a list of numbers or a .npy file",
        capsys=capsys,
    )
    for text in ('x=[1,"a"]', "x={}", "x=[[1],2]", "x=null"):
        fails([name, "--const", text], 2, "expected a number", capsys=capsys, command="check")


@pytest.mark.timeout(60)
@pytest.mark.parametrize("option", ["run --input", "verify --golden"])
def test_data_that_is_not_a_file(option: str, capsys: Captured) -> None:
    """A pipe would be waited for, and /dev/zero has no end."""
    name, (command, flag) = relu("model.onnx"), option.split()
    os.mkfifo("pipe.npz")
    for path, kind in (("pipe.npz", "a pipe"), ("/dev/zero", "a device"), (".", "a folder")):
        fails([name, flag, path], 2, f"{path} is {kind}, not a file", capsys=capsys, command=command)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "options",
    ["--tuned pipe", "--boards pipe", "--modules --module-key pipe -b mps2_an386"],
)
def test_files_of_a_build_that_are_pipes(options: str, capsys: Captured) -> None:
    os.mkfifo("pipe")
    fails([relu("model.onnx"), *options.split()], 2, "pipe is a pipe, not a file", capsys=capsys, command="build")


def test_a_log_through_a_pipe_that_is_open(capsys: Captured) -> None:
    """As the shell gives it for `--tuned <(cat a.jsonl b.jsonl)`."""
    reader, writer = os.pipe()
    os.write(writer, b"no log\n")
    os.close(writer)
    assert app.invoke(["build", relu("model.onnx"), "--tuned", f"/dev/fd/{reader}"]) == 0
    assert f"/dev/fd/{reader}, line 1 is truncated" in capsys.readouterr().err
    os.close(reader)


@pytest.mark.timeout(60)
def test_outputs_that_are_pipes(capsys: Captured) -> None:
    """Nobody may read them: nothing waits for a reader."""
    name = relu("model.onnx")
    for suffix in (".npz", ".html", ".onnx"):
        os.mkfifo(f"pipe{suffix}")
    for command, output in (("run", "--output pipe.npz"), ("report", "-o pipe.html"), ("quantize", "-o pipe.onnx")):
        data = ["--data", "x.npz"] if command == "quantize" else []
        fails([name, *output.split(), *data], 2, "it is a pipe, not a file", capsys=capsys, command=command)
    for command in ("build", "compile"):
        fails([name, "-d", "pipe.npz"], 2, "pipe.npz", capsys=capsys, command=command)
        fails([name, "-d", "/dev/null"], 2, "/dev/null", capsys=capsys, command=command)
    Path("project").mkdir()
    os.mkfifo("project/mtool.json")
    fails(["project"], 2, "is not an mtool project", capsys=capsys, command="calibrate")
    for command in ("build", "compile", "run"):
        fails([name, "-d", "project"], 2, "project", capsys=capsys, command=command)


def test_a_missing_file(capsys: Captured) -> None:
    fails(["nothing.onnx"], 2, "nothing.onnx", capsys=capsys)
    fails(["."], 2, capsys=capsys)


def test_a_file_that_is_not_onnx(capsys: Captured) -> None:
    Path("text.onnx").write_text("this is not a model\n")
    fails(["text.onnx"], 3, "text.onnx", capsys=capsys)
    Path("empty.onnx").write_bytes(b"")
    fails(["empty.onnx"], 3, "empty.onnx", capsys=capsys)


@pytest.mark.parametrize("kept", [0.1, 0.5, 0.9, 0.999])
def test_a_truncated_model(kept: float, capsys: Captured) -> None:
    data = DIGITS.read_bytes()
    Path("short.onnx").write_bytes(data[: int(kept * len(data))])
    fails(["short.onnx"], 3, "short.onnx", capsys=capsys)


def test_unsupported_operators_are_listed_all_at_once(capsys: Captured) -> None:
    name = save(
        "odd.onnx",
        helper.make_node("Conjure", ["x"], ["a"], "/head/conjure", domain="org.example"),
        helper.make_node("Banish", ["x"], ["b"], "/head/banish", domain="org.example"),
        helper.make_node("Add", ["a", "b"], ["y"], "/head/add"),
    )
    model = onnx.load(name)
    model.opset_import.append(helper.make_opsetid("org.example", 1))
    onnx.save(model, name)
    fails([name], 3, "2 operators", "/head/conjure", "/head/banish", capsys=capsys)
    fails([name], 3, "2 operators", "/head/conjure", "/head/banish", capsys=capsys, command="check")


def test_a_dynamic_shape_needs_a_value(capsys: Captured) -> None:
    name = relu("dynamic.onnx", shape=("batch", 4))
    fails([name], 3, "batch", "--dim batch=1", capsys=capsys)
    fails([name, "--dim", "batch=1", "--dim", "width=3"], 2, "width", capsys=capsys)
    assert app.invoke(["run", name, "--dim", "batch=2"]) == 0


@pytest.mark.parametrize(
    ("array", "message"),
    [(np.zeros((1, 5), np.float32), "wrong shape"), (np.zeros((1, 4), np.float64), "wrong type")],
)
def test_an_input_of_another_shape_or_type(array: np.ndarray, message: str, capsys: Captured) -> None:
    np.save("x.npy", array)
    fails([relu("relu.onnx"), "--input", "x.npy"], 2, message, "float32[1,4]", capsys=capsys)


def test_an_input_file_that_is_missing(capsys: Captured) -> None:
    fails([relu("relu.onnx"), "--input", "x.npy"], 2, "x.npy does not exist", capsys=capsys)


@pytest.mark.parametrize("location", ["../outside.bin", "/etc/hostname", "sub/../../outside.bin"])
def test_external_data_outside_the_models_folder_is_refused(location: str, capsys: Captured) -> None:
    fails([with_weights_in(location)], 3, "outside", capsys=capsys)


def test_external_data_that_is_missing_or_cut_short(capsys: Captured) -> None:
    fails([with_weights_in("weights.bin")], 3, "weights.bin", capsys=capsys)
    Path("weights.bin").write_bytes(bytes(3))
    fails([with_weights_in("weights.bin")], 3, capsys=capsys)


def test_an_unknown_board(capsys: Captured) -> None:
    fails([str(DIGITS), "--board", "mps2_an3866"], 6, "mps2_an386", "mtool boards", capsys=capsys)


def test_an_unknown_template_or_option(capsys: Captured) -> None:
    fails([str(DIGITS), "--template", "nowhere"], 2, "nowhere", capsys=capsys)
    fails([str(DIGITS), "--option", "speed=11"], 2, "speed", capsys=capsys)


def test_a_folder_that_is_not_mtools_is_left_alone(capsys: Captured) -> None:
    Path("mine").mkdir()
    Path("mine/thesis.txt").write_text("years of work")
    fails([str(DIGITS), "--output-dir", "mine"], 2, "not made by mtool", capsys=capsys)
    assert Path("mine/thesis.txt").read_text() == "years of work"


def test_a_missing_compiler(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("mtool.device.build.toolchains.compiler_here", lambda name: [name])  # nor that of ziglang
    assert app.invoke(["run", str(DIGITS)]) == 5
    captured = capsys.readouterr()
    assert "cc is not installed" in captured.err and "apt-get install" in captured.err
    assert captured.err.endswith("exit 5\n")


def built(name: str) -> Path:
    """Build a model for the host and return its RPC firmware."""
    assert app.invoke(["build", name, "-q"]) == 0
    return Path("build", f"{Path(name).stem}-host", "build", "host_driven")


def pass_for_built(firmware: Path) -> None:
    """Let a firmware that was put there pass for the one that mtool built, which it would build again."""
    stamp = firmware.with_name(f"{firmware.name}.key")
    key, _, runs = stamp.read_text().split()
    stamp.write_text(f"{key} {hashlib.sha256(firmware.read_bytes()).hexdigest()} {runs}")


@pytest.mark.slow
def test_a_firmware_of_another_model(capsys: Captured) -> None:
    one, other = relu("one.onnx"), relu("other.onnx", shape=(1, 5))
    shutil.copy(built(other), firmware := built(one))
    assert app.invoke(["run", one]) == 0  # built again
    shutil.copy(built(other), firmware)
    pass_for_built(firmware)
    capsys.readouterr()
    fails([one], 8, "one", "other", capsys=capsys)


@pytest.mark.product(4)
@pytest.mark.parametrize("program", ["exit 3", "kill -9 $$", "echo no frames at all", "sleep 100"])
def test_a_firmware_that_ends_or_does_not_answer(
    program: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setitem(opening.open.__kwdefaults__, "timeout_s", 1.0)
    name = relu("one.onnx")
    firmware = built(name)
    firmware.write_text(f"#!/bin/sh\n{program}\n")
    pass_for_built(firmware)
    capsys.readouterr()
    start = time.monotonic()
    fails([name], 8, capsys=capsys)
    assert time.monotonic() - start < 10


def test_an_output_file_that_cant_be_written(capsys: Captured) -> None:
    name = relu("relu.onnx")
    fails([name, "--output", "y.txt"], 2, "--output y.npz", capsys=capsys)
    fails([name, "--output", "nowhere/y.npz"], 2, "no folder nowhere", capsys=capsys)
