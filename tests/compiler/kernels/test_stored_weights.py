"""Float activations with float16 or int8 weights, which kernels for a Cortex-M's FPU widen as they read them."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from graphs import compiled, model, reference, run_c
from onnx import TensorProto, helper

from mtool.compiler import codegen, frontend, passes
from mtool.compiler.frontend import ModelOptions
from mtool.compiler.kernels.f32 import as_words
from mtool.compiler.kernels.target import Target
from mtool.compiler.plan import make_plan

F = np.float32
CORES = ["cortex-m4", "cortex-m7"]  # products are rounded before they are added, or fused
SHAPES: dict[str, tuple[int, ...]] = {
    "patches": (12, 5, 3, 3),
    "pixels": (12, 5, 1, 1),
    "few": (8, 5, 5, 6),
    "rows": (16, 210),
}


def network(dtype: Any, scales: str = "") -> onnx.ModelProto:
    """Return convolutions and a dense layer behind Cast of float16 weights, or DequantizeLinear of int8 ones."""
    rng = np.random.default_rng(8)
    constants: dict[str, Any] = {"flat": np.array([1, -1], np.int64)}
    nodes = [helper.make_node("Reshape", ["x", "flat"], ["rows.x"])]
    for name, shape in SHAPES.items():
        drawn = rng.standard_normal(shape) if dtype is np.float16 else rng.integers(-127, 128, shape)
        constants[f"{name}.w"] = drawn.astype(dtype)
        constants[f"{name}.b"] = rng.standard_normal(shape[0]).astype(F)
        if dtype is np.float16:
            constants[f"{name}.w"].reshape(-1)[:4] = (6e-8, -6e-8, 65504, 0)  # subnormal ones, the largest
            nodes.append(helper.make_node("Cast", [f"{name}.w"], [f"{name}.f"], to=TensorProto.FLOAT))
        else:
            count = (shape[0],) if scales == "channels" else ()
            constants |= {f"{name}.s": rng.uniform(0.001, 0.02, count).astype(F), f"{name}.z": np.zeros(count, np.int8)}
            at = {"axis": 0} if count else {}
            nodes.append(helper.make_node("DequantizeLinear", [f"{name}.{k}" for k in "wsz"], [f"{name}.f"], **at))
        operands = [f"{name}.f", f"{name}.b"]
        if name == "rows":
            nodes.append(helper.make_node("Gemm", ["rows.x", *operands], [f"{name}.c"], transB=1))
        else:
            nodes.append(helper.make_node("Conv", ["x", *operands], [f"{name}.c"], pads=[int(shape[-1] > 1)] * 4))
        nodes.append(helper.make_node("Relu", [f"{name}.c"], [f"{name}.y"]))
    return model(nodes, {"x": (F, (1, 5, 7, 6))}, [f"{name}.y" for name in SHAPES], constants)


def plan_of(proto: onnx.ModelProto, folder: Path, core: str, **options: Any) -> Any:
    path = folder / "test.onnx"
    target = Target(core, frozenset({"fpu", "dsp", "mve"} if core == "cortex-m55" else {"fpu", "dsp"}))
    onnx.save(proto, path)
    return make_plan(passes.run(frontend.load(path, ModelOptions(**options)), target), target)


def feed() -> dict[str, Any]:
    return {"x": np.random.default_rng(2).standard_normal((1, 5, 7, 6)).astype(F)}


@pytest.mark.slow
@pytest.mark.product(3)
@pytest.mark.parametrize("core", [*CORES, "cortex-m55"])
def test_float16_weights_give_the_bits_of_widened_ones_in_half_the_flash(core: str, tmp_path: Path) -> None:
    sizes, outputs = [], []
    for hybrid in ("auto", "float32"):
        plan = plan_of(network(np.float16), tmp_path, core, hybrid=hybrid)
        names = {step.schedule.name for step in plan.steps}
        of = "mve_" if core == "cortex-m55" else ""
        assert {f"{of}f32_rows", f"{of}f32_columns"} <= names
        sizes.append(codegen.generate(plan, "test.onnx", "0" * 64)[1].constant_bytes)
        outputs.append(run_c(plan, feed(), tmp_path))
    for one, other in zip(*outputs, strict=True):
        np.testing.assert_array_equal(one, other)
        assert one.any()
    weights = sum(int(np.prod(shape)) for shape in SHAPES.values())
    assert sizes[1] - sizes[0] >= 2 * weights


@pytest.mark.product(2)
@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("scales", ["", "channels"])
def test_int8_weights_give_the_numbers_of_dequantized_ones(core: str, scales: str, tmp_path: Path) -> None:
    proto = network(np.int8, scales)
    plan = plan_of(proto, tmp_path, core)
    assert sum(step.schedule.name in ("f32_rows", "f32_columns") for step in plan.steps) == len(SHAPES)
    for mine, theirs in zip(run_c(plan, feed(), tmp_path), reference(proto, feed()), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5 * np.abs(theirs).max())
    weights = sum(int(np.prod(shape)) for shape in SHAPES.values())
    assert codegen.generate(plan, "test.onnx", "0" * 64)[1].constant_bytes < 1.6 * weights


def test_a_byte_of_minus_128_has_no_sign_and_magnitude(tmp_path: Path) -> None:
    proto = network(np.int8)
    for tensor in proto.graph.initializer:
        if tensor.name == "rows.w":
            data = onnx.numpy_helper.to_array(tensor).copy()
            data[0, 0] = -128
            tensor.CopyFrom(onnx.numpy_helper.from_array(data, "rows.w"))
    plan = plan_of(proto, tmp_path, "cortex-m4")
    assert {step.schedule.name for step in plan.steps if step.node.op == "dense"} == {"c99_rows"}
    found = run_c(plan, feed(), tmp_path)[-1]
    np.testing.assert_allclose(found, reference(proto, feed())[-1], rtol=1e-5, atol=1e-4)


def test_weights_that_happen_to_be_float16_stay_floats() -> None:
    """What a file has as float32 is stored so: the kernels are faster."""
    rows = np.ones((8, 8), F)
    proto = model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": (F, (1, 8))}, ["y"], {"w": rows})
    _, manifest = codegen.generate(compiled(proto, Target("cortex-m4", frozenset({"fpu"}))), "test.onnx", "0" * 64)
    assert manifest.constant_bytes >= rows.nbytes


def test_the_places_of_four_bytes_are_those_that_a_mask_and_a_rotation_find() -> None:
    """Two float16 of `word & mask`, two of the word rotated by 8: each a sign and 2^-24 times a magnitude."""
    weights = np.arange(-126, 126, dtype=np.int8).reshape(1, -1)
    words = as_words(weights, "bytes")[0].astype(np.uint64)
    mask = np.uint64(0x807F807F)
    turned = (words >> np.uint64(8) | words << np.uint64(24)) & np.uint64(0xFFFFFFFF)
    pairs = [np.asarray(part & mask, np.uint32).view(np.float16).reshape(-1, 2) for part in (words, turned)]
    found = np.concatenate(pairs, axis=1).astype(np.float64) * 2**24
    np.testing.assert_array_equal(found.reshape(-1), weights[0])
