"""Every executor and calling convention gives onnxruntime's bytes; functions can be called by name."""

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import models
import numpy as np
import onnx
import pytest
from graphs import model
from onnx import helper

from mtool import commands
from mtool.base.errors import DeviceError, UsageError
from mtool.base.option_values import Io
from mtool.compiler.codegen import Conventions, conventions
from mtool.device import session
from mtool.device.rpc.protocol import ARENA, Placed
from mtool.device.session import Device, GraphExecutor
from mtool.stages.samples import Sample, seeded
from mtool.verification import reference

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits_int8.onnx"

needs_arm = pytest.mark.skipif(
    any(shutil.which(program) is None for program in ("arm-none-eabi-gcc", "qemu-system-arm", "cmake", "ninja")),
    reason="the Arm toolchain or QEMU is not installed",
)

CHOICES = {
    "aot": conventions(),
    "pointers": conventions("c", "pointers"),
    "values": conventions("c", "values"),
    "packed": conventions("packed", "packed"),
    "packed, typed operators": conventions("packed", "typed"),
    "step": conventions("step"),
    "step, packed": conventions("step", "packed"),
    "graph": conventions(executor="graph"),
    "graph, packed": conventions("packed", executor="graph"),
    "graph-host": conventions(executor="graph-host"),
}


def several() -> onnx.ModelProto:
    """Return a model of two inputs and three outputs, with equal operators, views, a split and integers."""
    rng = np.random.default_rng(2)
    constants = {
        "w": rng.standard_normal((6, 6)).astype(np.float32),
        "flat": np.array([1, 12], np.int64),
        "square": np.array([2, 6], np.int64),
        "halves": np.array([2, 4], np.int64),
        "one": np.array([1], np.int64),
    }
    nodes = [
        helper.make_node("MatMul", ["a", "w"], ["m"], name="first"),
        helper.make_node("Relu", ["m"], ["r"]),
        helper.make_node("MatMul", ["r", "w"], ["n"], name="second"),
        helper.make_node("Reshape", ["n", "flat"], ["line"]),
        helper.make_node("Softmax", ["line"], ["soft"], name="soft"),
        helper.make_node("Reshape", ["soft", "square"], ["back"]),
        helper.make_node("Split", ["back", "halves"], ["left", "right"], axis=1),
        helper.make_node("TopK", ["right", "one"], ["top", "where"], axis=1, name="top"),
        helper.make_node("Add", ["b", "where"], ["sum"], name="add"),
    ]
    inputs = {"a": (np.float32, (2, 6)), "b": (np.int64, (2, 1))}
    return model(nodes, inputs, ["left", "sum", "top"], constants)  # type: ignore[arg-type]


def scalar() -> onnx.ModelProto:
    """Return a model of scalars: tensors without a dimension."""
    nodes = [helper.make_node("Mul", ["a", "b"], ["c"]), helper.make_node("Relu", ["c"], ["d"])]
    return model(nodes, {"a": (np.float32, ()), "b": (np.float32, ())}, ["c", "d"])


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    paths = {"digits": DIGITS}
    for name, make in (("several", several), ("scalar", scalar)):
        paths[name] = folder / f"{name}.onnx"
        onnx.save(make(), paths[name])
    return paths


def check(path: Path, board: str, folder: Path, chosen: Conventions, io: Io = "arena") -> None:
    options = commands.Options(io=io, conventions=chosen)
    samples = seeded(commands.compile(path, board=board, options=options).manifest.inputs, count=3, seed=1)
    ran = commands.run(path, board=board, inputs=samples, deployment=commands.Deployment(folder), options=options)
    same(ran.outputs, reference.outputs(path, samples))
    with session.open(ran.prepared.folder) as device:  # both ways to run it, of firmware that is as it is
        same([device.run(sample, in_steps=False) for sample in samples], ran.outputs, exact=True)
        same([device.run(sample, in_steps=True) for sample in samples], ran.outputs, exact=True)


def same(found: Sequence[Sample], expected: Sequence[Sample], *, exact: bool = False) -> None:
    for one, other in zip(found, expected, strict=True):
        assert list(one) == list(other)
        for name in one:
            if one[name].dtype.kind == "f" and not exact:
                np.testing.assert_allclose(one[name], other[name], rtol=1e-5, atol=1e-6)
            else:
                np.testing.assert_array_equal(one[name], other[name])


PLACES: list[tuple[str, Io, Sequence[str]]] = [
    ("several", "arena", [*CHOICES]),
    ("several", "external", ["packed", "step", "graph", "graph-host"]),
    ("scalar", "arena", ["packed", "graph", "graph-host"]),
]


@pytest.mark.parametrize(
    ("name", "io", "choice"), [(name, io, choice) for name, io, choices in PLACES for choice in choices]
)
@pytest.mark.product
def test_all_are_equal_on_the_host(name: str, io: Io, choice: str, saved: dict[str, Path], tmp_path: Path) -> None:
    check(saved[name], "host", tmp_path / "project", CHOICES[choice], io)


@pytest.mark.slow
@needs_arm
@pytest.mark.parametrize("choice", ["aot", "packed", "step", "graph", "graph-host"])
@pytest.mark.product
def test_all_are_equal_on_a_board(choice: str, saved: dict[str, Path], tmp_path: Path) -> None:
    check(saved["digits"], "mps2_an386", tmp_path / "project", CHOICES[choice])


@pytest.mark.slow
@needs_arm
@models.needed
@pytest.mark.parametrize("choice", ["packed", "graph", "graph-host"])
def test_kws_has_its_golden_outputs(choice: str, tmp_path: Path) -> None:
    name = "kws/kws_int8_qdq"
    report = commands.verify(
        models.path(name),
        board="mps2_an386",
        golden=models.golden(name),
        deployment=commands.Deployment(tmp_path / "project"),
        options=commands.Options(conventions=CHOICES[choice]),
    )
    assert report.ok


@pytest.fixture(scope="module")
def project(saved: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    options = commands.Options(conventions=conventions("c", "packed"))
    folder = tmp_path_factory.mktemp("several") / "project"
    return commands.prepare(saved["several"], board="host", folder=folder, options=options).folder


@pytest.fixture
def device(project: Path) -> Iterator[Device]:
    with session.open(project) as opened:
        yield opened


A = np.linspace(-1, 1, 12, dtype=np.float32).reshape(2, 6)
B = np.array([[7], [-9]], np.int64)


@pytest.mark.slow
def test_the_model_and_each_operator_by_name(device: Device, saved: dict[str, Path]) -> None:
    (expected,) = reference.outputs(saved["several"], [{"a": A, "b": B}])
    found = device.call("several_run", A, B)
    assert isinstance(found, tuple)
    same([dict(zip(expected, found, strict=True))], [expected])
    values = {"a": A, "b": B}
    for operator in device.manifest.operators:
        arguments = [values[operand.value].reshape(operand.shape) for operand in operator.reads]
        results = device.call(f"several_{operator.name}", *arguments)
        for operand, result in zip(operator.writes, results if isinstance(results, tuple) else [results], strict=True):
            assert result.shape == operand.shape and result.dtype == np.dtype(operand.dtype)
            values[operand.value] = result
        for view, source in _views(device, values):
            values.setdefault(view, values[source])
    assert device.functions()[-1] == "several_run" and len(device.functions()) == len(device.manifest.operators) + 1


def _views(device: Device, values: dict[str, np.ndarray]) -> list[tuple[str, str]]:
    """Return the values with the same place and size as another: reshapes are not operators."""
    operands = [one for operator in device.manifest.operators for one in (*operator.reads, *operator.writes)]
    return [
        (one.value, other.value)
        for one in operands
        for other in operands
        if one.value not in values and other.value in values and (one.offset, one.bytes) == (other.offset, other.bytes)
    ]


def test_a_name_that_is_wrong(device: Device) -> None:
    with pytest.raises(UsageError, match="several has no function 'several_rum'") as error:
        device.call("several_rum", A, B)
    assert "similar: several_run" in error.value.details[0]
    with pytest.raises(UsageError) as error:
        device.call("?")
    assert "available: " in error.value.details[0]


def test_arguments_that_are_wrong(device: Device) -> None:
    with pytest.raises(UsageError, match="takes 2 arrays"):
        device.call("several_run", A)
    with pytest.raises(UsageError, match="wrong shape"):
        device.call("several_run", A.T, B)
    with pytest.raises(UsageError, match="wrong type"):
        device.call("several_run", A.astype(np.float64), B)


def test_what_does_not_fit_the_arena(device: Device) -> None:
    number = device.client.lookup("several_run")
    beyond = Placed("float32", (2, 6), ARENA, 0, device.manifest.arena_bytes - 4)
    with pytest.raises(DeviceError, match="MT_BAD_RANGE"):
        device.client.invoke(number, [beyond], work_s=5)


def test_a_firmware_without_functions(tmp_path: Path) -> None:
    prepared = commands.prepare(DIGITS, board="host", folder=tmp_path / "project")
    with session.open(prepared.folder) as plain:
        assert plain.functions() == ()
        with pytest.raises(UsageError, match="no functions") as error:
            plain.call("digits_int8_run")
        assert "--operators-api packed" in error.value.hint
        with pytest.raises(UsageError, match="has no graph"):
            plain.graph_executor(prepared.folder)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"nodes"', '"knots"'),
        ("[[0,0,0]]", "[[99,0,0]]"),
        ('"list_shape"', '"list_form"'),
        ('"heads":[', '"heads":[[0,7,0],'),
        ("[[2,6]", "[[6,2]"),
        ("}", "]"),
    ],
)
def test_a_graph_that_is_wrong(before: str, after: str, device: Device, project: Path) -> None:
    text = (project / "model" / "several.json").read_text()
    assert before in text
    with pytest.raises(UsageError, match="the graph"):
        GraphExecutor(device.client, device.manifest, text.replace(before, after, 1), work_s=5)


def test_what_does_not_go_together() -> None:
    for executor in ("graph", "graph-host"):
        with pytest.raises(UsageError, match="packed functions"):
            conventions("c", "typed", executor)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="step"):
        conventions("step", None, "graph")
