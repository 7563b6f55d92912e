"""Operations as TFLite models: LiteRT computes mtool's results, except for rounding."""

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import amount
import networks
import numpy as np
import onnx
import pytest
from graphs import model
from onnx import helper

sys.path.insert(0, str(Path(__file__).parent))

import mirror

from mtool.compiler.backends import Backend, Context, Product, Region
from mtool.compiler.backends.chosen import Chosen
from mtool.compiler.backends.ethos_u import PATTERNS, tflite_of
from mtool.compiler.backends.partition import partition
from mtool.verification.oracles import litert


def operations(proto: onnx.ModelProto) -> list[Region]:
    """Return the operations of a network that are for the NPU, each as a region."""
    found: list[Region] = []

    class Recorder(Backend):
        name, layout, patterns, whole_regions = "ethos_u", "NHWC", PATTERNS, False

        def compile(self, region: Region, folder: Path) -> Product:
            found.append(region)
            return Product("    ;")

    graph = networks.imported(proto)
    partition(graph, graph, [Chosen(Recorder({}))], Context(mirror.HOST, tolerance=1))
    return found


def kinds_that_agree(proto: onnx.ModelProto, seed: int) -> Counter[str]:
    """Return how many operations of each kind LiteRT computes as mtool does; it is an error if one is not so."""
    kinds: Counter[str] = Counter()
    for region in operations(proto):
        assert region.body is not None
        feeds = networks.feeds_of(region.body, seed)[0]
        expected = mirror.run(region.body, feeds, {})
        sample = {one.tensor: feeds[one.value] for one in region.inputs}
        (got,) = litert.outputs(tflite_of(region), [sample], title="region", exact=True)
        for wanted, output in zip(expected, region.outputs, strict=True):
            apart = np.abs(wanted.astype(int) - got[output.tensor].astype(int))
            assert wanted.shape == got[output.tensor].shape and apart.max() <= 1, str(region.operations[0])
        kinds[region.operations[0].kind] += 1
    return kinds


def test_random_networks() -> None:
    kinds: Counter[str] = Counter()
    for seed in range(amount.of(200, 8)):
        dtype = np.int8 if seed % 2 else np.uint8
        kinds += kinds_that_agree(networks.integers(seed, dtype=dtype), seed)
    assert kinds["Conv"] >= 5 and kinds["Add"] >= 2


class Quantized:
    """A network whose tensors stand on one grid, but for those that a step names."""

    def __init__(self, dtype: type) -> None:
        self.dtype, self.nodes = dtype, list[onnx.NodeProto]()
        self.constants: dict[str, Any] = {}
        self.rng = np.random.default_rng(3)

    def grid(self, scale: float, zero: int) -> list[str]:
        names = [f"scale{len(self.constants)}", f"zero{len(self.constants)}"]
        self.constants |= {names[0]: np.float32(scale), names[1]: self.dtype(zero)}
        return names

    def real(self, value: str, scale: float = 0.05, zero: int = 5) -> str:
        self.nodes.append(
            helper.make_node("DequantizeLinear", [value, *self.grid(scale, zero)], [f"real{len(self.nodes)}"])
        )
        return str(self.nodes[-1].output[0])

    def step(self, op: str, inputs: Sequence[str], scale: float = 0.05, zero: int = 5, **attrs: Any) -> str:
        real, out = f"{op}_real{len(self.nodes)}", f"{op}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [real], **attrs))
        self.nodes.append(helper.make_node("QuantizeLinear", [real, *self.grid(scale, zero)], [out]))
        return out


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_every_kind(dtype: type) -> None:
    net = Quantized(dtype)
    low = int(np.iinfo(dtype).min)
    top = net.step("MaxPool", [net.real("x")], kernel_shape=[3, 3], strides=[2, 2], pads=[0, 0, 1, 1])
    mean = net.step("AveragePool", [net.real("x")], kernel_shape=[2, 2], strides=[2, 2])
    both = net.step("Concat", [net.real(top), net.real(mean)], axis=1)
    net.constants |= {
        "filters": net.rng.integers(low, low + 256, (4, 8, 3, 3)).astype(dtype),
        "rows": net.rng.integers(low, low + 256, (16, 6)).astype(dtype),
        "flat": np.array([1, 16]),
    }
    zero = 0 if dtype is np.int8 else 120
    weights = net.real("filters", 0.01, zero)
    image = net.step("Conv", [net.real(both), weights], 0.2, 9, strides=[2, 2], pads=[1, 1, 1, 1])
    square = net.step("Mul", [net.real(image, 0.2, 9), net.real(image, 0.2, 9)], 0.9, low)
    total = net.step("Add", [net.real(square, 0.9, low), net.real(image, 0.2, 9)], 1.1, 3)
    flat = f"flat{len(net.nodes)}"
    net.nodes.append(helper.make_node("Reshape", [total, "flat"], [flat]))
    dense = net.step("MatMul", [net.real(flat, 1.1, 3), net.real("rows", 0.02, zero)], 2.0, 1)
    shares = net.step("Softmax", [net.real(dense, 2.0, 1)], 1 / 256, low)
    proto = model(net.nodes, {"x": (dtype, (1, 4, 8, 8))}, [shares], net.constants)
    kinds = kinds_that_agree(proto, 1)
    assert {*kinds} >= {"Pool", "Concat", "Conv", "Mul", "Add", "MatMul", "Softmax", "Reshape"}, kinds
    assert kinds["Pool"] == 2
