"""The commands on real models: run, verify, bench, compile, build, demo, on the host and on an emulated Cortex-M4."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import mtool
from mtool import commands
from mtool.base.errors import MismatchError
from mtool.cli import app
from mtool.verification.oracles import process

EXAMPLE = Path(__file__).parents[2] / "examples" / "digits"
DIGITS = EXAMPLE / "digits_int8.onnx"
TEST_DATA = EXAMPLE / "test_data.npz"

Captured = pytest.CaptureFixture[str]

needs_arm = pytest.mark.skipif(
    any(shutil.which(program) is None for program in ("arm-none-eabi-gcc", "qemu-system-arm", "cmake", "ninja")),
    reason="the Arm toolchain or QEMU is not installed",
)
BOARDS = ["host", pytest.param("mps2_an386", marks=needs_arm)]


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def as_json(arguments: list[str], capsys: Captured, code: int = 0) -> dict[str, Any]:
    assert app.invoke([*arguments, "--json"]) == code, capsys.readouterr().err
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert document["schema_version"] == 1
    return document


@pytest.mark.parametrize("board", BOARDS)
def test_run_gives_the_outputs_and_the_cost(board: str, tmp_path: Path, capsys: Captured) -> None:
    document = as_json(["run", str(DIGITS), "-b", board, "-i", str(TEST_DATA), "--output", "y.npz"], capsys)
    with np.load(TEST_DATA) as data, np.load(tmp_path / "y.npz") as written:
        scores = written["scores"]
        assert scores.shape == (len(data["y"]), 1, 10) and scores.dtype == np.int8
        np.testing.assert_array_equal(np.array(document["outputs"]["scores"]), scores)
        assert np.mean(scores[:, 0].argmax(axis=1) == data["y"]) > 0.97
    assert document["cost"]["macs"] == 230720
    assert (tmp_path / document["folder"] / "mtool.json").is_file()


@pytest.mark.slow
def test_outputs_whose_size_depends_on_data(capsys: Captured) -> None:
    found = helper.make_tensor_value_info("found", TensorProto.INT64, [2, "n"])
    given = helper.make_tensor_value_info("x", TensorProto.BOOL, [3, 4])
    graph = helper.make_graph([helper.make_node("NonZero", ["x"], ["found"])], "g", [given], [found])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "places.onnx")
    np.savez("x.npz", x=np.eye(3, 4, dtype=bool))
    assert app.invoke(["run", "places.onnx"]) == 3
    assert "give --max found=N" in capsys.readouterr().err
    assert app.invoke(["run", "places.onnx", "--max", "found=12", "-i", "x.npz"]) == 0
    assert "[ 0 1 2 0 1 2 ]   argmax 2   3 of at most 12" in capsys.readouterr().out
    document = as_json(["run", "places.onnx", "--max", "n=12", "-i", "x.npz"], capsys)
    assert document["outputs"]["found_count"] == 3 and np.shape(document["outputs"]["found"]) == (2, 12)
    assert app.invoke(["verify", "places.onnx", "--max", "found=12"]) == 0


@pytest.mark.product(3)
@pytest.mark.parametrize("kind", ["INT2", "UINT2", "INT4", "UINT4", "BFLOAT16", "FLOAT8E4M3FN", "FLOAT8E5M2"])
def test_types_that_numpy_does_not_have(kind: str, tmp_path: Path, capsys: Captured) -> None:
    elements = TensorProto.DataType.Value(kind)
    given = helper.make_tensor_value_info("x", elements, [2, 50])
    made = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 50]), given]
    graph = helper.make_graph([helper.make_node("Cast", ["x"], ["y"], to=1)], "g", [given], made)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=11), "small.onnx")
    document = as_json(["run", "small.onnx"], capsys)
    assert document["outputs"]["y"] == document["outputs"]["x"] and np.unique(document["outputs"]["y"]).size > 2


def test_run_shows_the_output_and_its_largest_element(capsys: Captured) -> None:
    assert app.invoke(["run", str(DIGITS)]) == 0
    captured = capsys.readouterr()
    assert "scores    [ " in captured.out and "argmax" in captured.out and "flash" in captured.out
    stages = [line.split()[0] for line in captured.err.splitlines()]
    assert stages == ["digits_int8", "compile", "build", "run"]


def test_a_second_run_builds_nothing(capsys: Captured) -> None:
    assert app.invoke(["build", str(DIGITS)]) == 0
    capsys.readouterr()
    assert as_json(["build", str(DIGITS)], capsys)["up_to_date"]


@pytest.mark.parametrize("board", BOARDS)
def test_verify_against_onnxruntime(board: str, capsys: Captured) -> None:
    pytest.importorskip("onnxruntime")
    document = as_json(["verify", str(DIGITS), "-b", board, "--samples", "8"], capsys)
    assert document["ok"] and document["samples"] == 8 and document["reference"] == "onnxruntime"
    assert document["outputs"][0]["differing"] == 0


@pytest.mark.slow
def test_verify_without_onnxruntime_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    (tmp_path / "onnxruntime.py").write_text("raise ImportError")
    monkeypatch.syspath_prepend(tmp_path)
    process.of_process.cache_clear()  # one of before has loaded it
    assert app.invoke(["verify", str(DIGITS)]) == 5
    process.of_process.cache_clear()
    assert "pip install 'mtool-mcu[verify]'" in capsys.readouterr().err


def test_verify_on_a_plain_project_names_the_other_way(tmp_path: Path, capsys: Captured) -> None:
    commands.write_project(mtool.compile(DIGITS, board="host"), tmp_path / "project")
    assert app.invoke(["verify", str(DIGITS), "--on", str(tmp_path / "project")]) == 2
    said = capsys.readouterr().err
    assert "--on is for a model that mtool load put on a device" in said
    assert f"-d {tmp_path / 'project'} --keep" in said


def test_a_mismatch_ends_with_9_and_a_histogram(tmp_path: Path, capsys: Captured) -> None:
    with np.load(TEST_DATA) as data:
        x = data["x"][:2]
    ran = mtool.run(DIGITS, board="host", inputs=[{"image": image[np.newaxis]} for image in x])
    y = np.stack([output["scores"] for output in ran.outputs])
    golden = tmp_path / "golden.npz"
    np.savez(golden, x0=x, y0=y)
    assert as_json(["verify", str(DIGITS), "--golden", str(golden)], capsys)["ok"]
    y[1, 0, 3] += 2
    np.savez(golden, x0=x, y0=y)
    document = as_json(["verify", str(DIGITS), "--golden", str(golden)], capsys, code=9)
    assert not document["ok"]
    assert document["outputs"][0]["histogram"] == [["equal", 19], ["2 LSB", 1]]
    assert app.invoke(["verify", str(DIGITS), "--golden", str(golden)]) == 9
    captured = capsys.readouterr()
    assert "1 of 20 elements differ" in captured.out and "2 LSB" in captured.out
    assert "sample 1, element [0,3]" in captured.err and captured.err.endswith("exit 9\n")
    assert app.invoke(["verify", str(DIGITS), "--golden", str(golden), "--lsb", "2"]) == 0
    report = mtool.verify(DIGITS, board="host", golden=golden)
    with pytest.raises(MismatchError):
        report.check()
    # every operator is right; the outputs are compared all the same
    capsys.readouterr()
    document = as_json(["verify", str(DIGITS), "--layers", "--golden", str(golden)], capsys, code=9)
    assert not document["ok"] and document["outputs"]["outputs"][0]["differing"] == 1
    assert app.invoke(["verify", str(DIGITS), "--layers", "--golden", str(golden)]) == 9
    captured = capsys.readouterr()
    assert "1 of 20 elements differ" in captured.out and "sample 1, element [0,3]" in captured.err
    assert "every operator matches onnxruntime: the golden file is of another model" in captured.err


@pytest.mark.parametrize("board", BOARDS)
def test_bench_has_all_figures(board: str, capsys: Captured) -> None:
    document = as_json(["bench", str(DIGITS), "--board", board], capsys)
    assert document["macs"] == 230720
    assert 0 < document["arena_bound_bytes"] <= document["arena_bytes"] < 16384
    assert 0 < document["flash_code_bytes"] < 64 << 10
    assert 14000 < document["flash_const_bytes"] < 60000
    assert document["ram_static_bytes"] >= 0
    if board == "host":
        assert document["instructions"] is None and document["time_ns"] > 0
    else:
        assert document["time_ns"] is None and 0 < document["instructions"] < 4_000_000
        assert document["instructions"] == as_json(["bench", str(DIGITS), "--board", board], capsys)["instructions"]
        assert 0 < document["stack_bytes"] <= 512


def test_compile_writes_c_that_builds_by_itself(tmp_path: Path, capsys: Captured) -> None:
    document = as_json(["compile", str(DIGITS), "--output-dir", "c"], capsys)
    written = sorted(path.name for path in (tmp_path / "c").iterdir() if path.is_file())
    assert written == document["files"]
    assert {"digits_int8.c", "digits_int8.h", "mtool.json"} <= set(written) and "digits_int8_rpc.c" not in written
    flags = ["-std=c99", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror", "-c"]
    sources = [name for name in written if name.endswith(".c")]
    subprocess.run(["cc", *flags, *sources], cwd=tmp_path / "c", check=True)


def test_the_python_twin_opens_a_device() -> None:
    model = mtool.compile(DIGITS, board="host")
    with np.load(TEST_DATA) as data, mtool.open(model) as device:
        scores = device.run({"image": data["x"][:1]})["scores"]
    assert scores.shape == (1, 10)


def test_the_demo_reads_digits(capsys: Captured) -> None:
    document = as_json(["demo", "--board", "host"], capsys)
    assert document["images"] == 450
    assert document["boards"]["host"]["accuracy"] > 0.97
    assert app.invoke(["demo", "--board", "host", "-q"]) == 0
    shown = capsys.readouterr().out
    assert "██" in shown and "98.9% of 450 images" in shown


def test_a_demo_that_reads_badly_ends_with_9(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.setattr("mtool.cli.demo.LEAST_ACCURACY", 0.999)
    assert app.invoke(["demo", "--board", "host", "-q"]) == 9
    assert "host: 98.9%" in capsys.readouterr().err


@pytest.mark.slow
def test_a_dry_build_prints_its_commands_and_writes_nothing(capsys: Captured) -> None:
    assert app.invoke(["build", str(DIGITS), "--board", "mps2_an386", "--dry-run"]) == 0
    first, *commands = capsys.readouterr().out.splitlines()
    assert first.startswith("# compile digits_int8.onnx, write the project build/digits_int8-mps2_an386")
    assert commands == [
        "cd build/digits_int8-mps2_an386",
        "cmake -G Ninja -S . -B build",
        "cmake --build build --target host_driven standalone",
    ]
    assert not list(Path().iterdir())


def test_an_input_that_shapes_the_code_becomes_a_constant(capsys: Captured) -> None:
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3]),
        helper.make_tensor_value_info("axes", TensorProto.INT64, [1]),
    ]
    node = helper.make_node("ReduceMean", ["x", "axes"], ["y"], keepdims=0)
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])
    graph = helper.make_graph([node], "g", inputs, [output])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), "mean.onnx")
    assert app.invoke(["verify", "mean.onnx"]) == 3
    assert "--const axes=..." in capsys.readouterr().err
    assert app.invoke(["verify", "mean.onnx", "--const", "axes=[1]"]) == 0
    assert app.invoke(["verify", "mean.onnx", "--const", "axes=no"]) == 2


def test_rows_at_a_time_can_be_requested(capsys: Captured, tmp_path: Path) -> None:
    arenas = {}
    for partial in ("never", "always"):
        folder = tmp_path / partial
        assert app.invoke(["compile", str(DIGITS), "--partial", partial, "-d", str(folder), "--verify-plan"]) == 0
        assert re.search(r"memory plan checked: \d+ operators", capsys.readouterr().out)
        arenas[partial] = json.loads((folder / "mtool.json").read_text())["models"][0]["arena_bytes"]
    assert arenas["always"] < arenas["never"]
    capsys.readouterr()
    assert app.invoke(["compile", str(DIGITS), "--partial", "always", "--executor", "graph"]) == 2
    assert "--partial always computes operators a few rows at a time" in capsys.readouterr().err
    assert app.invoke(["compile", str(DIGITS), "--partial", "often"]) == 2
