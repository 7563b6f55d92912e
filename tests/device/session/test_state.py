"""Stateful models on a device: sequences step by step, restarted sessions, the cost of streaming."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import sliding
import stateful

import mtool
from mtool import commands
from mtool.base.errors import UsageError
from mtool.cli import app
from mtool.compiler import frontend

pytestmark = pytest.mark.long

onnxruntime = pytest.importorskip("onnxruntime")

needs_arm = pytest.mark.skipif(
    any(shutil.which(program) is None for program in ("arm-none-eabi-gcc", "qemu-system-arm", "cmake", "ninja")),
    reason="the Arm toolchain or QEMU is not installed",
)
M4 = "mps2_an386"
BOARDS = ["host", pytest.param(M4, marks=needs_arm)]
STEPS = 12
Model = tuple[onnx.ModelProto, list[tuple[str, str]]]


def saved(made: Model, folder: Path) -> tuple[Path, commands.Options]:
    path = folder / "model.onnx"
    onnx.save(made[0], path)
    return path, commands.Options(states=made[1])


def flags(pairs: list[tuple[str, str]]) -> list[str]:
    return [text for output, value in pairs for text in ("--state", f"{output}:{value}")]


@pytest.mark.slow
@pytest.mark.parametrize("board", BOARDS)
@pytest.mark.parametrize("style", ["torch", "keras"])
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
@pytest.mark.product
def test_step_by_step_is_the_sequence_at_once(kind: str, style: str, board: str, tmp_path: Path) -> None:
    whole, _ = stateful.recurrent(kind, style, STEPS)
    zeros = {put.name: np.zeros([dim.dim_value for dim in put.type.tensor_type.shape.dim], np.float32)
             for put in whole.graph.input}  # fmt: skip
    x = np.random.default_rng(2).standard_normal(zeros["x"].shape).astype(np.float32)
    (expected,) = onnxruntime.InferenceSession(whole.SerializeToString()).run(["y"], {**zeros, "x": x})

    path, options = saved(stateful.recurrent(kind, style, 1), tmp_path)
    prepared = mtool.prepare(path, board=board, options=options, folder=tmp_path / "project")
    assert [tensor.name for tensor in prepared.manifest.inputs] == ["x"]
    assert [tensor.name for tensor in prepared.manifest.outputs] == ["y"]
    single = (1, 1, stateful.SIZE)
    rows = x.reshape(STEPS, *single)
    with mtool.open(prepared) as device:
        for _ in range(2):
            found = [device.run({"x": row})["y"] for row in rows]
            np.testing.assert_allclose(np.reshape(found, expected.shape), expected, rtol=1e-5, atol=1e-5)
            device.reset_state()
        through_entry_point = [device.run({"x": row}, in_steps=False)["y"] for row in rows]
        np.testing.assert_array_equal(through_entry_point, found)
    with mtool.open(prepared) as device:  # a session begins a sequence
        np.testing.assert_array_equal(device.run({"x": rows[0]})["y"], found[0])


@pytest.mark.parametrize("board", BOARDS)
def test_a_reset_begins_the_window_again(board: str, tmp_path: Path) -> None:
    proto, slide = sliding.network(2)  # its zero point is not 0
    onnx.save(proto, tmp_path / "model.onnx")
    options = commands.Options(slides=[f"x={slide.hop}@{slide.axis}"])
    prepared = mtool.prepare(tmp_path / "model.onnx", board=board, options=options, folder=tmp_path / "project")
    (x,) = prepared.manifest.inputs
    row = {"x": np.full(x.shape, 50, x.dtype)}
    with mtool.open(prepared) as device:
        runs = []
        for _ in range(2):
            runs.append([np.concatenate([each.ravel() for each in device.run(row).values()]) for _ in range(4)])
            device.reset_state()
    np.testing.assert_array_equal(*runs)
    assert not np.array_equal(runs[0][0], runs[0][3])


def test_time_and_profile_go_on_with_the_sequence(tmp_path: Path) -> None:
    path, options = saved(stateful.recurrent("GRU", "torch", 1), tmp_path)
    x = {"x": np.ones((1, 1, stateful.SIZE), np.float32)}
    with mtool.open(mtool.prepare(path, board="host", options=options, folder=tmp_path / "project")) as device:
        steps = [device.run(x)["y"] for _ in range(4)]
        device.reset_state()
        device.time(number=1, repeat=1, warm_up=1, inputs=x)
        np.testing.assert_array_equal(device.run(x)["y"], steps[2])
        device.reset_state()
        device.profile(x, repeat=1)  # one run as a whole after a warm-up, and one operator by operator
        np.testing.assert_array_equal(device.run(x)["y"], steps[3])


@pytest.mark.slow
def test_initial_values_are_put_in_once(tmp_path: Path) -> None:
    """A state that does not begin as zero bytes: the steps of a session and the entry point are one sequence."""
    path, options = saved(stateful.stream(quantized=True), tmp_path)
    x = {"x": np.full((1, 40, 1), 0.7, np.float32)}
    with mtool.open(mtool.prepare(path, board="host", options=options, folder=tmp_path / "project")) as device:
        assert any(state.initial for state in device.manifest.states)
        expected = [device.run(x)["y"] for _ in range(6)]
        device.reset_state()
        found = [device.run(x, in_steps=step % 2 == 0)["y"] for step in range(6)]
        np.testing.assert_array_equal(found, expected)
    assert not np.array_equal(expected[0], expected[1])
    with mtool.open(tmp_path / "project") as device:
        found = [device.run(x, in_steps=step % 2 == 1)["y"] for step in range(6)]
        np.testing.assert_array_equal(found, expected)
        device.reset_state()
    with mtool.open(tmp_path / "project") as device:
        found = [device.run(x, in_steps=step % 2 == 0)["y"] for step in range(6)]
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("board", BOARDS)
@pytest.mark.parametrize("io", ["arena", "external"])
@pytest.mark.parametrize("quantized", [False, True], ids=["float", "int8"])
@pytest.mark.product
def test_a_stream_matches_the_reference(quantized: bool, io: Any, board: str, tmp_path: Path) -> None:
    made = stateful.stream(quantized=quantized)
    path, options = saved(made, tmp_path)
    options = commands.Options(io=io, states=made[1])
    report = mtool.verify(
        path, board=board, options=options, samples=20, deployment=mtool.Deployment(tmp_path / "project")
    )
    report.check()
    assert report.sequence and report.samples == 20
    layers = commands.verify_layers(
        path, board=board, options=options, samples=10, deployment=commands.Deployment(tmp_path / "project")
    )
    layers.check()
    assert "10 steps of a sequence" in layers.summary()


def test_the_reference_goes_on_too(tmp_path: Path) -> None:
    """Without the state, the same samples give other outputs: the comparison would notice a state that stands still."""
    made = stateful.stream(quantized=False)
    path, options = saved(made, tmp_path)
    inputs = [{"x": np.full((1, 40, 1), 0.5, np.float32)}] * 2
    ran = commands.run(
        path, board="host", options=options, inputs=inputs, deployment=commands.Deployment(tmp_path / "project")
    )
    first, second = (sample["y"] for sample in ran.outputs)
    assert np.abs(first - second).max() > 1e-2


@pytest.mark.slow
@pytest.mark.product(2)
@needs_arm
@pytest.mark.parametrize(("quantized", "at_most"), [(False, 0.9), (True, 0.65)], ids=["float", "int8"])
def test_a_state_saves_instructions_and_memory(quantized: bool, at_most: float, tmp_path: Path) -> None:
    """Against the same model whose caches the caller hands in and out."""
    path, options = saved(stateful.stream(quantized=quantized), tmp_path)
    kept = commands.bench(path, board=M4, options=options, deployment=commands.Deployment(tmp_path / "kept"))
    handed = commands.bench(path, board=M4, deployment=commands.Deployment(tmp_path / "handed"))
    assert kept.instructions is not None and handed.instructions is not None
    assert kept.instructions < at_most * handed.instructions
    assert kept.arena_bytes < 0.7 * handed.arena_bytes
    assert kept.arena_bytes == kept.arena_bound_bytes
    profile = commands.bench_layers(path, board=M4, options=options, deployment=commands.Deployment(tmp_path / "kept"))
    moves = [row for row in profile.operators if row.label.startswith(("concat", "slice"))]
    assert len(moves) == 6
    assert sum(row.median for row in moves) < 0.1 * profile.total


def test_a_real_export_of_torch(tmp_path: Path) -> None:
    path = Path(__file__).parents[2] / "exported" / "pytorch" / "lstm_of_one_step.onnx"
    options = commands.Options(states=[("hn", "x1"), ("cn", "x2")])
    mtool.verify(
        path, board="host", options=options, samples=20, deployment=mtool.Deployment(tmp_path / "project")
    ).check()


@pytest.mark.slow
def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = stateful.recurrent("LSTM", "torch", 1)
    saved(made, tmp_path)
    state = flags(made[1])

    def said(*arguments: str, code: int = 0) -> str:
        assert app.invoke([*arguments]) == code
        shown = capsys.readouterr()
        return shown.out + shown.err

    assert "matches onnxruntime over 6 steps of a sequence" in said("verify", "model.onnx", *state, "--samples", "6")
    document = json.loads(said("--quiet", "--json", "verify", "model.onnx", *state))
    assert document["sequence"] is True
    rows = np.random.default_rng(0).standard_normal((5, 1, 1, stateful.SIZE)).astype(np.float32)
    np.savez("x.npz", x=rows)
    said("run", "model.onnx", *state, "--input", "x.npz", "--output", "y.npz")
    with np.load("y.npz") as made_y:
        assert list(made_y) == ["y"] and made_y["y"].shape == (5, 1, 1, stateful.CLASSES)
    said("compile", "model.onnx", *state, "-d", "c")
    header = (tmp_path / "c" / "model.h").read_text()
    assert "hn -> h0: float32[1,1,16], 64 bytes at MODEL_STATE_H0_OFFSET" in header
    assert "void model_reset(void);" in header
    (manifest,) = json.loads((tmp_path / "c" / "mtool.json").read_text())["models"]
    assert [(entry["output"], entry["input"]) for entry in manifest["states"]] == made[1]
    assert manifest["symbols"]["reset"] == "model_reset"
    assert "lstm" in said("bench", "model.onnx", *state, "--layers")
    assert (
        "model_reset"
        in said("build", "model.onnx", *state)
        + (tmp_path / "build" / "model-host" / "src" / "standalone.c").read_text()
    )
    said("report", "model.onnx", *state, "--output", "page.html")
    assert "h0" in (tmp_path / "page.html").read_text()
    assert "x float32[1,1,8] -> y float32[1,1,4]" in said("check", "model.onnx", *state, "-b", "host")


def test_what_is_wrong_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, _ = saved(stateful.recurrent("LSTM", "torch", 1), tmp_path)

    def error(*pairs: str) -> str:
        arguments = [text for pair in pairs for text in ("--state", pair)]
        assert app.invoke(["compile", str(path), *arguments, "-d", str(tmp_path / "c")]) == 2
        return capsys.readouterr().err

    assert "no output 'hx'; did you mean hn?" in error("hx:h0")
    assert "no input 'zzz'; it has: x, h0, c0" in error("hn:zzz")
    wrong = error("y:h0")
    assert "expected  h0 float32[1,1,16]" in wrong and "found     y float32[1,1,4]" in wrong
    assert "more than one output" in error("hn:h0", "cn:h0")
    for text in ("hn", "hn:", ":h0", "hn:h0:c0"):
        assert "expected OUT:IN" in error(text)
    assert "expected a number, a list of numbers or a .npy file, found 'soon'" in error("hn:h0=soon")
    wrong = error("hn:h0=[1,2]")
    assert "expected  float32[1,1,16], or one number" in wrong and "found     int64[2], from 1 to 2" in wrong


@pytest.mark.slow
@pytest.mark.product(2)
@pytest.mark.parametrize("board", BOARDS)
def test_a_tflite_model(board: str, tmp_path: Path) -> None:
    """LiteRT is fed with its own state, which begins at its zero point there and here. With its reference kernels'
    rounding no step differs; otherwise one LSB in the sum would grow with the sequence."""
    pytest.importorskip("ai_edge_litert")
    tflite_models = pytest.importorskip("tflite_models")
    tensors = [
        tflite_models.T(name, [1, 4], np.int8, scale, zero)
        for name, scale, zero in (("x", 0.03, -5), ("h:0", 0.1, 2), ("next:0", 0.1, 2), ("y", 1 / 256, -128))
    ]
    operators = [
        tflite_models.Op("ADD", ["h:0", "x"], ["next:0"], "AddOptions", {}),
        tflite_models.Op("LOGISTIC", ["next:0"], ["y"]),
    ]
    path = tmp_path / "model.tflite"
    path.write_bytes(tflite_models.model(tensors, operators, ["x", "h:0"], ["y", "next:0"]))
    arguments = ["--board", board, "--state", "next:0:h:0", "--rounding", "tflite", "-d", str(tmp_path / "project")]
    assert app.invoke(["verify", str(path), *arguments, "--samples", "20"]) == 0
    assert app.invoke(["verify", str(path), *arguments, "--layers"]) == 0


def quantized(moved: bool) -> onnx.ModelProto:
    """Return a sum of int8 frames over time; `moved`: the state is reshaped before it is dequantized."""
    reshaped = (
        "flat = Reshape(h, row)  hf = DequantizeLinear(flat, s, z)" if moved else "hf = DequantizeLinear(h, s, z)"
    )
    shape = "[4]" if moved else "[1, 4]"
    proto = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 17]>
        level (int8[1, 4] x, int8{shape} h) => (int8[1, 4] y, int8{shape} next)
        <float s = {{0.1}}, int8 z = {{-20}}, float t = {{0.3}}, int8 u = {{7}},
         int64[2] row = {{1, 4}}, int64[1] all = {{-1}}>
        {{
            {reshaped}
            xf = DequantizeLinear(x, s, z)
            yf = Add(hf, xf)
            y = QuantizeLinear(yf, t, u)
            sum = QuantizeLinear(yf, s, z)
            next = {"Reshape(sum, all)" if moved else "Identity(sum)"}
        }}
    """)
    onnx.checker.check_model(proto, full_check=True)
    return proto


@pytest.mark.parametrize("moved", [False, True])
def test_a_quantized_state_begins_at_its_zero_point(moved: bool, tmp_path: Path) -> None:
    """Which is what 0 is: the first sum is the first frame."""
    onnx.save(quantized(moved), path := tmp_path / "model.onnx")
    options = commands.Options(states=[("next", "h")])
    project = tmp_path / "project"
    report = mtool.verify(path, board="host", options=options, samples=6, deployment=mtool.Deployment(project))
    report.check()
    frame = np.array([[-128, -20, 0, 40]], np.int8)
    alone = np.clip(np.round((frame + 20.0) * 0.1 / 0.3) + 7, -128, 127).astype(np.int8)
    with mtool.open(project) as device:
        assert np.array_equal(device.run({"x": frame})["y"], alone)
        device.run({"x": frame})
        device.reset_state()
        assert np.array_equal(device.run({"x": frame})["y"], alone)


@pytest.mark.slow
def test_a_state_begins_with_the_given_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(quantized(False), "model.onnx")
    first = np.array([[1, 2, 3, 4]], np.int8)
    np.save("first.npy", first)
    frame = np.array([[5, 6, 7, 8]], np.int8)
    for value, begun in (("first.npy", first), ("[[1,2,3,4]]", first), ("9", np.full((1, 4), 9, np.int8))):
        arguments = ["model.onnx", "--state", f"next:h={value}", "-d", "project"]
        assert app.invoke(["verify", *arguments, "--samples", "4"]) == 0
        with mtool.open(Path("project")) as device:
            found = device.run({"x": frame})["y"]
        sums = (begun.astype(int) + frame + 40) * np.float32(0.1)
        assert np.abs(found - (np.round(sums / 0.3) + 7)).max() == 0


@pytest.mark.parametrize("value", [200, 0.5, [1, 2]])
def test_a_first_value_that_does_not_go_into_the_state(value: Any, tmp_path: Path) -> None:
    onnx.save(quantized(False), path := tmp_path / "model.onnx")
    options = frontend.ModelOptions(states=[("next", "h")], state_values={"h": np.asarray(value)})
    with pytest.raises(UsageError, match="does not fit that input") as refused:
        frontend.load(path, options)
    assert refused.value.details[0] == "expected  int8[1,4], from -128 to 127, or one number"
    options = frontend.ModelOptions(states=[("next", "h")], state_values={"x": np.asarray(1)})
    with pytest.raises(UsageError, match="an initial value is given for it"):
        frontend.load(path, options)
