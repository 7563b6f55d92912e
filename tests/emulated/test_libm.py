"""The math library of the boards sim_*: each function that generated C calls is there, as accurate as NumPy's."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

pytest.importorskip("unicorn", reason="needs the package unicorn")
pytest.importorskip("ziglang", reason="needs the package ziglang")

from mtool import commands
from mtool.device import session

BETWEEN = np.linspace(-0.95, 0.95, 41)
FUNCTIONS: dict[str, tuple[Any, Any]] = {  # by the operator: NumPy's function, and what it is tried on
    "Exp": (np.exp, BETWEEN * 20),
    "Log": (np.log, BETWEEN + 1.5),
    "Sqrt": (np.sqrt, BETWEEN + 1),
    "Tanh": (np.tanh, BETWEEN * 6),
    "Sin": (np.sin, BETWEEN * 50),
    "Cos": (np.cos, BETWEEN * 50),
    "Tan": (np.tan, BETWEEN * 1.5),
    "Floor": (np.floor, BETWEEN * 9),
    "Ceil": (np.ceil, BETWEEN * 9),
    "Round": (np.rint, BETWEEN * 10),
    "Asin": (np.arcsin, BETWEEN),
    "Acos": (np.arccos, BETWEEN),
    "Atan": (np.arctan, BETWEEN * 9),
    "Sinh": (np.sinh, BETWEEN * 5),
    "Cosh": (np.cosh, BETWEEN * 5),
    "Asinh": (np.arcsinh, BETWEEN * 9),
    "Acosh": (np.arccosh, BETWEEN + 2.5),
    "Atanh": (np.arctanh, BETWEEN),
    "Softplus": (lambda x: np.log1p(np.exp(x)), BETWEEN * 9),
    "Elu": (lambda x: np.where(x < 0, np.expm1(x), x), BETWEEN * 4),
}


def of_all(dtype: int, numpy_type: Any) -> tuple[onnx.ModelProto, dict[str, Any], dict[str, Any]]:
    """Return a model with an operator for each function, its inputs, and the outputs that NumPy has."""
    nodes = [helper.make_node(name, [f"x{name}"], [f"y{name}"]) for name in FUNCTIONS]
    nodes.append(helper.make_node("Pow", ["xLog", "xSinh"], ["yPow"]))
    nodes.append(helper.make_node("Mod", ["xSin", "xLog"], ["yMod"], fmod=1))
    inputs = {f"x{name}": values.astype(numpy_type) for name, (_, values) in FUNCTIONS.items()}
    expected = {f"y{name}": function(inputs[f"x{name}"]) for name, (function, _) in FUNCTIONS.items()}
    expected["yPow"] = np.power(inputs["xLog"], inputs["xSinh"])
    expected["yMod"] = np.fmod(inputs["xSin"], inputs["xLog"])
    if dtype == TensorProto.FLOAT:
        nodes.append(helper.make_node("Erf", ["xTanh"], ["yErf"]))
        import math

        expected["yErf"] = np.array([math.erf(x) for x in inputs["xTanh"].tolist()])
    tensors = {name: helper.make_tensor_value_info(name, dtype, [41]) for name in (*inputs, *expected)}
    graph = helper.make_graph(nodes, "all", [tensors[x] for x in inputs], [tensors[y] for y in expected])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10), inputs, expected


@pytest.mark.slow
@pytest.mark.parametrize(
    ("board", "dtype"),
    [("sim_m0", "float32"), ("sim_m4", "float32"), ("sim_rv32", "float32"), ("sim_m4", "float64")],
)
def test_every_function_is_there_and_right(board: str, dtype: str, tmp_path: Path) -> None:
    model, inputs, expected = of_all(getattr(TensorProto, {"float32": "FLOAT"}.get(dtype, "DOUBLE")), np.dtype(dtype))
    onnx.save(model, tmp_path / "all.onnx")
    prepared = commands.prepare(tmp_path / "all.onnx", board=board, folder=tmp_path / "p")
    with session.open(prepared.folder) as device:
        found = device.run(inputs)
    steps = 8 * np.finfo(dtype).eps
    for name, wanted in expected.items():
        np.testing.assert_allclose(found[name], wanted, rtol=steps, atol=steps, err_msg=name)
