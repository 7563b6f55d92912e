"""Models with run-time sizes, in C on the host: one library, called with many sizes."""

import ctypes
import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import sanitized
from graphs import FLAGS, HOST, Array, reference
from onnx import helper, numpy_helper

from mtool.base.option_values import Io
from mtool.compiler import codegen, frontend, run_time_sizes
from mtool.compiler.frontend.options import ModelOptions
from mtool.compiler.kernels.target import Target
from mtool.compiler.plan import Plan, make_plan
from mtool.device.session.tensors import bytes_at, required_inputs, shape_at
from mtool.manifest import Manifest, Tensor

BEYOND = 64  # bytes behind each output that no inference may touch
RNG = np.random.default_rng(5)
Shape = tuple[int | str, ...]


def floats(*shape: int, scale: float = 0.3) -> Any:
    return (RNG.standard_normal(shape) * scale).astype(np.float32)


def build(
    nodes: list[Any], inputs: dict[str, Shape], outputs: dict[str, Shape], constants: dict[str, Any], **types: int
) -> onnx.ModelProto:
    """Return a model; all is float unless `types` says so."""

    def value(name: str, shape: Shape) -> Any:
        return helper.make_tensor_value_info(name, types.get(name, onnx.TensorProto.FLOAT), list(shape))

    initialisers = [numpy_helper.from_array(np.asarray(data), name) for name, data in constants.items()]
    graph = helper.make_graph(
        nodes, "g", [value(*one) for one in inputs.items()], [value(*one) for one in outputs.items()], initialisers
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(made)
    return made


def node(op: str, inputs: str, outputs: str, **attrs: Any) -> Any:
    """Return a node; names are separated by blanks, "-" is none."""
    ins, outs = ([name if name != "-" else "" for name in names.split()] for names in (inputs, outputs))
    return helper.make_node(op, ins, outs, name=outs[0], **attrs)


def mlp() -> onnx.ModelProto:
    nodes = [node("Gemm", "x w b", "a"), node("Relu", "a", "r"), node("Gemm", "r v", "y")]
    constants = {"w": floats(6, 10), "b": floats(10), "v": floats(10, 3)}
    return build(nodes, {"x": ("batch", 6)}, {"y": ("batch", 3)}, constants)


def planned(path: Path, maxima: Mapping[str, int], target: Target = HOST, io: Io = "arena", **options: object) -> Plan:
    """Return the plan of a model file whose dimensions `maxima` are known at run time."""
    asked = ModelOptions(maxima=maxima, **options)  # type: ignore[arg-type]
    _, graph = run_time_sizes.lowered(path, target, asked, frontend.run_time_sizes(path, asked))
    return make_plan(graph, target, io, "never")


class Library:
    """A model's C as a shared library, every warning an error, under the undefined-behaviour sanitizer."""

    def __init__(self, plan: Plan, folder: Path, conventions: codegen.Conventions | None = None) -> None:
        folder.mkdir(exist_ok=True)
        files, self.manifest = codegen.generate(plan, "test.onnx", "0" * 64, conventions)
        for name in files:
            (folder / name).write_bytes(files[name])
        self.name = self.manifest.model
        self.code = ctypes.CDLL(str(sanitized.library(folder, self.name, FLAGS)))

    def call(self, feeds: Mapping[str, Array], sizes: Mapping[str, int]) -> tuple[int, dict[str, Array]]:
        """Run the model on arrays of these sizes, in the caller's buffers of exactly that size; return its status and
        outputs."""
        given = {
            **feeds,
            **{t.name: np.asarray(sizes[t.range.symbol], np.int32) for t in self.manifest.sizes if t.range},
        }
        inputs = [np.ascontiguousarray(given[tensor.name]) for tensor in self.manifest.inputs]
        lengths = [bytes_at(tensor, sizes) for tensor in self.manifest.outputs]
        outputs = [np.full(length + BEYOND, 0xA5, np.uint8) for length in lengths]
        structures = [(ctypes.c_void_p * len(some))(*(one.ctypes.data for one in some)) for some in (inputs, outputs)]
        status = self.run(*map(ctypes.byref, structures))
        assert all((data[length:] == 0xA5).all() for data, length in zip(outputs, lengths, strict=True))
        found = {
            tensor.name: data[:length].view(tensor.dtype).reshape(shape_at(tensor, sizes)) if not status else data
            for tensor, data, length in zip(self.manifest.outputs, outputs, lengths, strict=True)
        }
        return status, found

    def run(self, inputs: object, outputs: object) -> int:
        """Call the entry point, or each step of it."""
        if self.manifest.interface_api != "step":
            return int(getattr(self.code, f"{self.name}_run")(inputs, outputs))
        status = int(getattr(self.code, f"{self.name}_begin")(inputs, outputs))
        while not status and not getattr(self.code, f"{self.name}_done")():
            status = int(getattr(self.code, f"{self.name}_step")())
        return status


def points(manifest: Manifest) -> Iterator[dict[str, int]]:
    """Yield all run-time sizes that a model takes."""
    ranges = {t.range.symbol: range(t.range.least, t.range.most + 1) for t in manifest.sizes if t.range is not None}
    for values in itertools.product(*ranges.values()):
        yield dict(zip(ranges, values, strict=True))


def drawn(tensor: Tensor, sizes: Mapping[str, int], random: np.random.Generator) -> Array:
    """Return an input at some sizes."""
    dtype = np.dtype(tensor.dtype)
    if dtype.kind == "f":
        return random.standard_normal(shape_at(tensor, sizes)).astype(dtype)
    return random.integers(0 if dtype.kind == "u" else -100, 100, shape_at(tensor, sizes)).astype(dtype)


def check(
    proto: onnx.ModelProto, maxima: Mapping[str, int], folder: Path, target: Target = HOST, *, tolerance: float = 1e-5,
    conventions: codegen.Conventions | None = None, io: Io = "arena",
) -> Library:  # fmt: skip
    """Compare a model's C with onnxruntime at all sizes."""
    path = folder / "test.onnx"
    onnx.save(proto, path)
    library = Library(planned(path, maxima, target, io), folder / "c", conventions)
    random = np.random.default_rng(2)
    for sizes in points(library.manifest):
        feeds = {t.name: drawn(t, sizes, random) for t in required_inputs(library.manifest.inputs)}
        status, found = library.call(feeds, sizes)
        assert status == 0
        for value, expected in zip(proto.graph.output, reference(proto, feeds), strict=True):
            mine = found[value.name]
            assert mine.shape == expected.shape, (value.name, sizes)
            if expected.dtype.kind == "f":
                most = max(1.0, float(np.abs(expected).max(initial=0)))
                np.testing.assert_allclose(mine, expected, rtol=tolerance, atol=tolerance * most, err_msg=str(sizes))
            else:
                np.testing.assert_array_equal(mine, expected, err_msg=str(sizes))
        for tensor in library.manifest.outputs:
            if tensor.count is not None and tensor.count_axis is not None:
                assert found[tensor.count] == found[tensor.name].shape[tensor.count_axis]
    return library
