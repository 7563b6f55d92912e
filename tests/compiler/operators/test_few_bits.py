"""Weights of 2 and 4 bits, with a scale per tensor, channel or block, against onnxruntime."""

from pathlib import Path
from typing import Any

import interpreter
import ml_dtypes
import numpy as np
import onnx
import pytest
from graphs import compiled, lowered, model, reference, run_c
from onnx import helper, numpy_helper

import mtool
from mtool.base.errors import ModelError
from mtool.commands import Deployment

F = np.float32
# the shape of the weights, the dimension of the channels and that of the blocks, the shape of the input, attributes
PRODUCTS: dict[str, tuple[tuple[int, ...], int, int, tuple[int, ...], dict[str, int]]] = {
    "MatMul": ((40, 6), 1, 0, (3, 40), {}),
    "Gemm": ((6, 40), 0, 1, (3, 40), {"transB": 1}),
    "Conv": ((6, 8, 3, 3), 0, 1, (1, 8, 5, 5), {}),
}
OPSETS = {"int4": (21, 10), "uint4": (23, 11), "int2": (25, 12), "uint2": (25, 12)}


def integers(kind: str, shape: Any, rng: np.random.Generator) -> Any:
    dtype = np.dtype(getattr(ml_dtypes, kind))
    ends = ml_dtypes.iinfo(dtype)
    return rng.integers(int(ends.min), int(ends.max) + 1, shape).astype(dtype)


def product(
    op: str, kind: str, scales: str, *, activations: bool = False, turned: bool = False, one_row: bool = False
) -> onnx.ModelProto:
    """Return a product with dequantized weights; `turned`: they are transposed after their dequantization."""
    rng = np.random.default_rng(5)
    shape, channels, along, x, attrs = PRODUCTS[op]
    x = (1, *x[1:]) if one_row else x
    block = {40: 16, 8: 4}[shape[along]]  # the last one of 40 is shorter
    sizes = {"tensor": (), "channel": (shape[channels],)}.get(scales)
    if sizes is None:
        sizes = tuple(-(-size // block) if dim == along else size for dim, size in enumerate(shape))
    constants: dict[str, Any] = {
        "w": integers(kind, shape, rng), "s": rng.uniform(0.01, 0.1, sizes).astype(F), "z": integers(kind, sizes, rng),
    }  # fmt: skip
    where = {"axis": along, "block_size": block} if scales == "block" else {"axis": channels}
    if turned:
        constants = {name: np.transpose(data) if data.ndim > 1 else data for name, data in constants.items()}
        where["axis"] = 1 - where["axis"]
    nodes = [helper.make_node("DequantizeLinear", ["w", "s", "z"], ["f"], **where)]
    nodes += [helper.make_node("Transpose", ["f"], ["t"], perm=[1, 0])] if turned else []
    source = "x"
    if activations:
        constants |= {"xs": F(0.05), "xz": np.int8(3)}
        nodes.append(helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["q"]))
        nodes.append(helper.make_node("DequantizeLinear", ["q", "xs", "xz"], ["r"]))
        source = "r"
    nodes.append(helper.make_node(op, [source, "t" if turned else "f"], ["y"], **attrs))
    opset, version = OPSETS[kind]
    proto = model(nodes, {"x": (F, x)}, ["y"], constants, opset)
    proto.ir_version = version
    return proto


def image(proto: onnx.ModelProto) -> dict[str, Any]:
    dims = [dim.dim_value for dim in proto.graph.input[0].type.tensor_type.shape.dim]
    return {"x": np.random.default_rng(6).normal(0, 1, dims).astype(F)}


@pytest.mark.parametrize("activations", [False, True])
@pytest.mark.parametrize("scales", ["tensor", "channel", "block"])
@pytest.mark.parametrize(("op", "turned"), [(op, turned) for op in PRODUCTS for turned in (False, op != "Conv")][:-1])
@pytest.mark.parametrize("kind", OPSETS)
def test_products(kind: str, op: str, scales: str, activations: bool, turned: bool) -> None:
    proto = product(op, kind, scales, activations=activations, turned=turned)
    feeds = image(proto)
    graph = lowered(proto)
    kernels = [node for node in graph.nodes if node.op in ("dense", "conv2d")]
    assert len(kernels) == (3 if scales == "block" and op != "Conv" else 1)  # a kernel for each group of inputs
    if scales != "block" or op != "Conv":
        values = [value for kernel in kernels for value in kernel.inputs[not activations : 2]]
        assert all(graph.types[value].dtype.size == 1 for value in values)
    ((found,),) = interpreter.run(graph, [feeds])
    np.testing.assert_allclose(found, reference(proto, feeds)[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["uint4", "int2"])
def test_products_in_c(kind: str, tmp_path: Path) -> None:
    proto = product("MatMul", kind, "block", turned=True)
    feeds = image(proto)
    (found,) = run_c(compiled(proto), feeds, tmp_path)
    np.testing.assert_allclose(found, reference(proto, feeds)[0], rtol=1e-5, atol=1e-5)


def test_groups_of_qonnx() -> None:
    """Brevitas quantizes weights by groups as [channels, groups, inputs of a group], and reshapes them."""
    rng = np.random.default_rng(7)
    weights, scales = rng.normal(0, 0.3, (6, 4, 10)).astype(F), rng.uniform(0.05, 0.2, (6, 4, 1)).astype(F)
    constants = {"w": weights, "s": scales, "z": F(0), "b": F(3), "shape": np.array([6, 40])}
    how = {"domain": "qonnx.custom_op.general", "signed": 1, "narrow": 0, "rounding_mode": "ROUND"}
    nodes = [helper.make_node("Quant", ["w", "s", "z", "b"], ["q"], **how)]
    nodes.append(helper.make_node("Reshape", ["q", "shape"], ["r"]))
    nodes.append(helper.make_node("Gemm", ["x", "r"], ["y"], transB=1))
    proto, x = model(nodes, {"x": (F, (1, 40))}, ["y"], constants), rng.normal(0, 1, (1, 40)).astype(F)
    graph = lowered(proto)
    assert [graph.types[node.inputs[1]].dtype.label for node in graph.nodes if node.op == "dense"] == ["int8"] * 4
    ((found,),) = interpreter.run(graph, [{"x": x}])
    real = np.rint(np.clip(weights / scales, -4, 3)) * scales
    np.testing.assert_allclose(found, x @ real.reshape(6, 40).T, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("one_row", [False, True])
@pytest.mark.parametrize("activations", [False, True])
@pytest.mark.parametrize("board", ["mps2_an386", "mps2_an385", "mps2_an383", "mps3_an547", "qemu_riscv32"])
def test_groups_on_boards(board: str, activations: bool, one_row: bool, tmp_path: Path) -> None:
    """With scales that are powers of two no sum is rounded: the results of int8 activations are equal."""
    proto = product("MatMul", "uint4", "block", activations=activations, one_row=one_row)
    for tensor in proto.graph.initializer:
        if tensor.name in ("s", "xs"):
            data = numpy_helper.to_array(tensor)
            tensor.CopyFrom(numpy_helper.from_array(np.exp2(np.rint(np.log2(data))).astype(F), tensor.name))
    path, feeds = tmp_path / "groups.onnx", image(proto)
    onnx.save(proto, path)
    (found,) = mtool.run(path, board=board, inputs=[feeds], deployment=Deployment(tmp_path / "project")).outputs
    expected = reference(proto, feeds)[0]
    np.testing.assert_allclose(found["y"], expected, rtol=0, atol=0 if activations else 1e-5)


@pytest.mark.parametrize(("size", "axis", "found"), [(7, 0, "expected [6, 6]"), (16, 1, "expected [40, 1]")])
def test_scales_that_do_not_fit_the_blocks(size: int, axis: int, found: str) -> None:
    proto = product("MatMul", "int4", "block")
    del proto.graph.node[0].attribute[:]
    proto.graph.node[0].attribute.extend(
        [helper.make_attribute("axis", axis), helper.make_attribute("block_size", size)]
    )
    with pytest.raises(ModelError) as refused:
        lowered(proto)
    assert any(found in line for line in refused.value.details), refused.value.details
