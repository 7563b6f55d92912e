"""STABLEHLO_COMPOSITE is decomposed; operators compiled for other machines are reported as such."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flatbuffers import flexbuffers
from tflite_cases import compute
from tflite_models import Array, Graph, Op, T, litert, model

from mtool.base.errors import ModelError
from mtool.compiler.frontend import ModelOptions, load
from mtool.compiler.kernels.target import Target

R = np.random.default_rng(2)
SHAPE = [2, 3]


def composite(body: int, inputs: list[str], outputs: list[str]) -> Op:
    attributes = bytes(flexbuffers.Dumps({}))
    options = {"Name": "odml.norm", "DecompositionSubgraphIndex": body, "CompositeAttributes": attributes}
    return Op("STABLEHLO_COMPOSITE", inputs, outputs, "StableHLOCompositeOptions", options)


def t(*names: str) -> list[T]:
    return [T(name, SHAPE) for name in names]


SQUARES = Graph(
    [*t("x", "two", "y"), T("c", [], data=np.array(2.0))],
    [Op("MUL", ["x", "x"], ["two"], "MulOptions"), Op("ADD", ["two", "c"], ["y"], "AddOptions")],
    ["x"],
    ["y"],
)


def check(data: bytes, folder: Path) -> None:
    feeds: dict[str, Array] = {"x": R.standard_normal(SHAPE).astype(np.float32)}
    found = compute(data, feeds, folder, "onnx", Target("host", frozenset()))
    for mine, theirs in zip(found, litert(data, feeds, reference=True), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6)


def test_a_composite_is_its_decomposition(tmp_path: Path) -> None:
    """Twice, the tensors of the body having the names of the model's own."""
    ops = [composite(1, ["x"], ["a"]), Op("NEG", ["a"], ["b"]), composite(1, ["b"], ["y"])]
    check(model(t("x", "a", "b", "y"), ops, ["x"], ["y"], SQUARES), tmp_path)


def test_composites_inside_one_another(tmp_path: Path) -> None:
    outer = Graph(t("x", "m", "y"), [composite(1, ["x"], ["m"]), Op("NEG", ["m"], ["y"])], ["x"], ["y"])
    check(model(t("x", "y"), [composite(2, ["x"], ["y"])], ["x"], ["y"], SQUARES, outer), tmp_path)


def test_outputs_that_the_body_does_not_make(tmp_path: Path) -> None:
    """One is its input, one a constant."""
    tensors = [*t("x", "m"), T("c", SHAPE, data=np.ones(SHAPE))]
    body = Graph(tensors, [Op("NEG", ["x"], ["m"])], ["x"], ["x", "c", "m"])
    ops = [composite(1, ["x"], ["a", "b", "c"]), Op("ADD_N", ["a", "a", "b", "c"], ["y"])]
    check(model(t("x", "a", "b", "c", "y"), ops, ["x"], ["y"], body), tmp_path)


def test_an_output_that_is_made_once_and_given_twice(tmp_path: Path) -> None:
    body = Graph(t("x", "m"), [Op("NEG", ["x"], ["m"])], ["x"], ["m", "m"])
    data = model(t("x", "a", "b"), [composite(1, ["x"], ["a", "b"])], ["x"], ["a", "b"], body)
    x = R.standard_normal(SHAPE).astype(np.float32)
    for made in compute(data, {"x": x}, tmp_path, "onnx", Target("host", frozenset())):
        np.testing.assert_array_equal(made, -x)


@pytest.mark.parametrize(("number", "inputs"), [(0, ["x"]), (2, ["x"]), (-1, ["x"]), (1, ["x", "x"])])
def test_a_composite_whose_body_is_not_there_or_does_not_fit(number: int, inputs: list[str], tmp_path: Path) -> None:
    data = model(t("x", "y"), [composite(number, inputs, ["y"])], ["x"], ["y"], SQUARES)
    (tmp_path / "m.tflite").write_bytes(data)
    with pytest.raises(ModelError, match="its decomposition"):
        load(tmp_path / "m.tflite")


def refused(data: bytes, folder: Path, words: str) -> None:
    (folder / "m.tflite").write_bytes(data)
    start = time.process_time()
    with pytest.raises(ModelError, match=words):
        load(folder / "m.tflite", ModelOptions())
    assert time.process_time() - start < 10


def test_a_composite_of_itself(tmp_path: Path) -> None:
    body = Graph(t("x", "y"), [composite(1, ["x"], ["y"])], ["x"], ["y"])
    refused(model(t("x", "y"), [composite(1, ["x"], ["y"])], ["x"], ["y"], body), tmp_path, "limit 'depth'")


def test_composites_that_double_at_every_level(tmp_path: Path) -> None:
    bodies = [SQUARES]
    for number in range(1, 40):
        both = [composite(number, ["x"], ["m"]), composite(number, ["m"], ["y"])]
        bodies.append(Graph(t("x", "m", "y"), both, ["x"], ["y"]))
    data = model(t("x", "y"), [composite(40, ["x"], ["y"])], ["x"], ["y"], *bodies)
    refused(data, tmp_path, "limit '(nodes|work)'")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("edgetpu-custom-op", "it runs only on a Coral Edge TPU; give the model from before edgetpu_compiler"),
        ("ethos-u", "it runs only on an Arm Ethos-U; give the model from before Vela"),
        ("FlexErf", "it is a TensorFlow operator"),
        ("MyThing", "it is an unknown custom operator"),
    ],
)
def test_operators_for_other_machines_say_so(name: str, words: str, tmp_path: Path) -> None:
    """Be its inputs there or not: Vela's has tensors that nothing makes."""
    tensors: list[Any] = [*t("x", "y"), T("scratch", [64], np.uint8)]
    (tmp_path / "m.tflite").write_bytes(model(tensors, [Op(f"CUSTOM {name}", ["x", "scratch"], ["y"])], ["x"], ["y"]))
    with pytest.raises(ModelError) as caught:
        load(tmp_path / "m.tflite")
    assert f"CUSTOM {name}" in caught.value.details[0] and words in caught.value.details[0]


def test_a_variable_that_an_unknown_operator_keeps_is_not_a_wrong_order(tmp_path: Path) -> None:
    tensors = [*t("x", "y"), T("kept", [1, 8], variable=True)]
    (tmp_path / "m.tflite").write_bytes(model(tensors, [Op("LSH_PROJECTION", ["x", "kept"], ["y"])], ["x"], ["y"]))
    with pytest.raises(ModelError, match=r"LSH_PROJECTION 0.*not supported"):
        load(tmp_path / "m.tflite")
