"""`mtool run` of a project folder, with input patterns and with a dump of every tensor; `mtool generate`."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from mtool.cli import app

Captured = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a model whose names are paths, and its project, without a build."""
    folder = tmp_path_factory.mktemp("forms")
    nodes = [
        helper.make_node("Conv", ["../x", "w"], ["a/b:0"], kernel_shape=[3, 3], pads=[1] * 4),
        helper.make_node("Relu", ["a/b:0"], ["A_b_0"]),
        helper.make_node("MaxPool", ["A_b_0"], ["pooled"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["pooled"], ["flat"]),
        helper.make_node("Gemm", ["flat", "v"], ["y"]),
    ]
    random = np.random.default_rng(0)
    weights = {"w": random.standard_normal((4, 3, 3, 3)), "v": random.standard_normal((64, 5))}
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("../x", TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 5])],
        [onnx.numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / "net.onnx")
    assert app.invoke(["-q", "generate", str(folder / "net.onnx"), "-d", str(folder / "net")]) == 0
    assert not (folder / "net" / "build").exists()
    return folder


def run(project: Path, *arguments: str) -> int:
    return app.invoke(["-q", "run", str(project / "net"), *arguments])


@pytest.mark.slow
def test_a_project_is_built_and_run_and_every_tensor_dumped(project: Path, tmp_path: Path) -> None:
    x = np.random.default_rng(1).standard_normal((1, 3, 8, 8)).astype(np.float32)
    np.savez(tmp_path / "x.npz", x=x)
    arguments = ["-i", str(tmp_path / "x.npz"), "--dump", str(tmp_path / "dump")]
    assert run(project, *arguments, "--output", str(tmp_path / "y.npz")) == 0
    assert run(project, *arguments) == 0  # a dump is written over a dump
    index: dict[str, Any] = json.loads((tmp_path / "dump" / "index.json").read_text())
    model = onnx.load(project / "net.onnx")
    names = [name for node in model.graph.node for name in node.output]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names[:-1])
    known = dict(
        zip(
            ["y", *names[:-1]],
            onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"../x": x}),
            strict=True,
        )
    )
    known["../x"] = x
    found = {row["tensor"]: row for row in index["tensors"]}
    assert {"../x", "A_b_0", "pooled", "y"} <= found.keys()
    for name, row in found.items():
        array = np.load(tmp_path / "dump" / row["file"])
        if not row.get("moves"):
            np.testing.assert_allclose(array, known[name], rtol=1e-5, atol=1e-5)
        assert "/" not in row["file"] and array.shape == tuple(row["shape"])
    assert not found["A_b_0"]["moves"] and len({row["file"].lower() for row in found.values()}) == len(found)
    np.testing.assert_array_equal(np.load(tmp_path / "y.npz")["y"], np.load(tmp_path / "dump" / found["y"]["file"]))


@pytest.mark.slow
def test_what_the_inputs_are_filled_with(project: Path, tmp_path: Path, capsys: Captured) -> None:
    session = onnxruntime.InferenceSession(project / "net.onnx")
    own = np.linspace(-1, 1, 192, dtype=np.float32).reshape(1, 3, 8, 8)
    (tmp_path / "own.bin").write_bytes(own.astype("<f4").tobytes())
    for fill, x in (("zeros", np.zeros_like(own)), ("ones", np.ones_like(own)), (str(tmp_path / "own.bin"), own)):
        assert run(project, "--fill", fill, "--output", str(tmp_path / "y.npz")) == 0
        expected = session.run(None, {"../x": x})[0]
        np.testing.assert_allclose(np.load(tmp_path / "y.npz")["y"], expected, rtol=1e-5, atol=1e-5)
    (tmp_path / "own.bin").write_bytes(b"123")
    assert run(project, "--fill", str(tmp_path / "own.bin")) == 2
    assert "the file has 3 B, the inputs need 768 B" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--fill", "zeroes"], "did you mean zeros?"),
        (["--fill", "ones", "-i", "x.npz"], "--input and --fill can't be combined"),
        (["--board", "mps2_an386"], "is a project for host, not for mps2_an386"),
        (["--io", "external"], "is run as it is"),
        (["--dump", "{project}/net"], "contains something other than a dump"),
    ],
)
def test_what_does_not_go_with_a_project(project: Path, arguments: list[str], says: str, capsys: Captured) -> None:
    assert run(project, *(text.format(project=project) for text in arguments)) == 2
    assert says in capsys.readouterr().err


def test_a_folder_that_is_not_a_project(tmp_path: Path, capsys: Captured) -> None:
    assert app.invoke(["run", str(tmp_path)]) == 2
    assert "is not an mtool project" in capsys.readouterr().err


def test_host_is_a_board_like_others(project: Path, capsys: Captured) -> None:
    folder = str(project / "emulated")
    assert app.invoke(["-q", "generate", str(project / "net.onnx"), "-b", "mps2_an386", "-d", folder]) == 0
    assert app.invoke(["-q", "run", folder, "--board", "host"]) == 2
    assert "is a project for mps2_an386, not for host" in capsys.readouterr().err
