"""Small ONNX models for tests, and the host as a place to run their C."""

import ctypes
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import amount
import numpy as np
import onnx
import sanitized
from onnx import helper, numpy_helper

from mtool.base import resources
from mtool.base.errors import MtoolError
from mtool.compiler import codegen, passes
from mtool.compiler.frontend.onnx_file import import_graph
from mtool.compiler.ir import Graph
from mtool.compiler.kernels.target import Target
from mtool.compiler.plan import Plan, make_plan
from mtool.verification.oracles import ort

HOST = Target("host", frozenset({"fpu"}))
NO_FPU = Target("cortex-m3", frozenset())
FLAGS = ["-std=c99", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror", "-ffp-contract=off"]

Array = np.ndarray[Any, Any]


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, tuple[type, Sequence[int]]],
    outputs: Sequence[str],
    constants: Mapping[str, Array] | None = None,
    opset: int = 17,
) -> onnx.ModelProto:
    """Return a model; output types are left to shape inference."""
    values = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), list(shape))
        for name, (dtype, shape) in inputs.items()
    ]
    made = [helper.make_tensor_value_info(name, 1, None) for name in outputs]
    initialisers = [numpy_helper.from_array(np.asarray(data), name) for name, data in (constants or {}).items()]
    graph = helper.make_graph(list(nodes), "test", values, made, initialisers)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return _typed(helper.make_model(graph, opset_imports=opsets, ir_version=8))


def _typed(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Give the outputs the types that mtool's importer infers for them."""
    try:
        types = import_graph(proto, "test").types
    except MtoolError:
        types = {}
    for value in proto.graph.output:
        if value.name in types:
            dtype = helper.np_dtype_to_tensor_dtype(types[value.name].dtype.numpy)
            value.CopyFrom(helper.make_tensor_value_info(value.name, dtype, types[value.name].shape))
        else:
            value.CopyFrom(helper.make_tensor_value_info(value.name, 1, [1]))
    return proto


def compiled(proto: onnx.ModelProto, target: Target = HOST, name: str = "test") -> Plan:
    """Return the plan of a model."""
    return make_plan(passes.run(import_graph(proto, name), target), target)


def run_c(plan: Plan, feeds: Mapping[str, Array], folder: Path) -> list[Array]:
    """Compile a plan's C with every warning an error and the undefined-behaviour sanitizer, and run it once."""
    files, manifest = codegen.generate(plan, "test.onnx", "0" * 64)
    for name in files:
        (folder / name).write_bytes(files[name])
    name = manifest.model
    code = ctypes.CDLL(str(sanitized.library(folder, name, FLAGS)))
    if amount.takes(files[f"{name}.c"]):
        include = resources.path("crt") / "include"
        sanitized.check_by_clang([folder / f"{name}.c"], [*FLAGS, f"-I{include}"])
    arena = (ctypes.c_uint8 * manifest.arena_bytes).in_dll(code, f"{name}_arena")
    for tensor in manifest.inputs:
        data = np.ascontiguousarray(feeds[tensor.name]).tobytes()
        assert len(data) == tensor.bytes and tensor.arena_offset is not None
        ctypes.memmove(ctypes.byref(arena, tensor.arena_offset), data, len(data))
    places = [ctypes.c_void_p.in_dll(code, f"{name}_arena_{kind}") for kind in ("inputs", "outputs")]
    assert getattr(code, f"{name}_run")(*(ctypes.byref(place) for place in places)) == 0
    results = []
    for tensor in manifest.outputs:
        assert tensor.arena_offset is not None
        raw = bytes(arena)[tensor.arena_offset : tensor.arena_offset + tensor.bytes]
        results.append(np.frombuffer(raw, tensor.dtype).reshape(tensor.shape))
    return results


def reference(proto: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    """Return onnxruntime's outputs, without its graph optimisations, and with integer products that never saturate."""
    import onnxruntime

    if ort.has_products(proto):
        proto = ort.exact(proto)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, {name: np.asarray(data) for name, data in feeds.items()}))


def lowered(proto: onnx.ModelProto, target: Target = HOST) -> Graph:
    """Return a model's graph after all passes."""
    return passes.run(import_graph(proto, "test"), target)
