"""Malformed and hostile models compile, or end with one of mtool's errors; never otherwise."""

import random
import resource
import time
from collections.abc import Callable
from pathlib import Path

import amount
import numpy as np
import onnx
import pytest
from graphs import HOST, model
from onnx import TensorProto, helper, numpy_helper

from mtool.base.errors import MtoolError
from mtool.compiler import codegen, frontend, passes
from mtool.compiler.plan import make_plan

pytestmark = pytest.mark.long

COUNT = amount.of(2000, 250)
SECONDS = 10.0
BYTES = 2 << 30
F = np.float32


def _cnn() -> onnx.ModelProto:
    constants = {
        "w": np.ones((4, 2, 3, 3), F), "b": np.ones(4, F), "shape": np.array([1, -1], np.int64),
        "m": np.ones((64, 5), F), "lo": F(0), "hi": F(6),
    }  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Clip", ["c", "lo", "hi"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2]),
        helper.make_node("Transpose", ["r"], ["t"], perm=[0, 2, 3, 1]),
        helper.make_node("Reshape", ["t", "shape"], ["f"]),
        helper.make_node("MatMul", ["f", "m"], ["d"]),
        helper.make_node("Softmax", ["d"], ["y"], axis=-1),
    ]
    return model(nodes, {"x": (F, (1, 2, 8, 8))}, ["y", "p"], constants)


def _qdq() -> onnx.ModelProto:
    constants = {
        "s": F(0.1), "z": np.int8(3), "w": np.ones((6, 4), np.int8), "ws": np.full(4, 0.02, F),
        "wz": np.zeros(4, np.int8), "b": np.ones(4, np.int32), "bs": np.full(4, 0.002, F),
        "bz": np.zeros(4, np.int32), "axes": np.array([1], np.int64),
    }  # fmt: skip
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["xf"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wf"], axis=1),
        helper.make_node("DequantizeLinear", ["b", "bs", "bz"], ["bf"], axis=0),
        helper.make_node("Gemm", ["xf", "wf", "bf"], ["g"]),
        helper.make_node("Relu", ["g"], ["r"]),
        helper.make_node("QuantizeLinear", ["r", "s", "z"], ["q"]),
        helper.make_node("Unsqueeze", ["q", "axes"], ["y"]),
    ]
    return model(nodes, {"x": (np.int8, (2, 6))}, ["y"], constants)


Edit = Callable[[onnx.ModelProto, random.Random], None]
NUMBERS = [0, 1, -1, 2, -2, 3, 7, 255, -128, 2**15, 2**31 - 1, -(2**31), 2**31, 2**40, 2**62, 2**63 - 1, -(2**63)]
FLOATS = [0.0, -0.0, 1.0, -1.0, 1e-45, 3e38, float("nan"), float("inf"), float("-inf")]


def _a_node(proto: onnx.ModelProto, chance: random.Random) -> onnx.NodeProto:
    return chance.choice(list(proto.graph.node))


def _names(proto: onnx.ModelProto) -> list[str]:
    values = [*(i.name for i in proto.graph.input), *(i.name for i in proto.graph.initializer)]
    return [*values, *(o for n in proto.graph.node for o in n.output), "", "nowhere"]


def _rewire(proto: onnx.ModelProto, chance: random.Random) -> None:
    """Cycles, missing values, wrong operands."""
    node = _a_node(proto, chance)
    if node.input:
        node.input[chance.randrange(len(node.input))] = chance.choice(_names(proto))


def _rename_output(proto: onnx.ModelProto, chance: random.Random) -> None:
    """Duplicate and dangling names."""
    node = _a_node(proto, chance)
    node.output[chance.randrange(len(node.output))] = chance.choice(_names(proto))


OPERATORS = """
    Conv Relu Concat Gather Slice Pad LSTM If Loop Softmax Resize Split TopK Add ReduceMean BatchNormalization
    QuantizeLinear QLinearConv Where Nonsense Identity Flatten
""".split()  # noqa: SIM905


def _other_operator(proto: onnx.ModelProto, chance: random.Random) -> None:
    _a_node(proto, chance).op_type = chance.choice([*OPERATORS, ""])


def _attribute(proto: onnx.ModelProto, chance: random.Random) -> None:
    node = _a_node(proto, chance)
    name = chance.choice(
        ["pads", "strides", "kernel_shape", "dilations", "group", "axis", "perm", "auto_pad", "to", "alpha"]
    )
    value = chance.choice(
        [
            chance.choice(NUMBERS),
            [chance.choice(NUMBERS) for _ in range(chance.randrange(6))],
            chance.choice(FLOATS),
            "SAME_UPPER",
        ]
    )
    kept = [attr for attr in node.attribute if attr.name != name]
    del node.attribute[:]
    node.attribute.extend(kept)
    if value != []:
        node.attribute.append(helper.make_attribute(name, value))


def _input_shape(proto: onnx.ModelProto, chance: random.Random) -> None:
    value = chance.choice([*proto.graph.input, *proto.graph.output])
    dims = value.type.tensor_type.shape.dim
    if dims:
        dim = chance.choice(list(dims))
        dim.dim_value = chance.choice(NUMBERS)
    if chance.random() < 0.3:
        value.type.tensor_type.elem_type = chance.randrange(25)


def _initialiser(proto: onnx.ModelProto, chance: random.Random) -> None:
    tensor = chance.choice(list(proto.graph.initializer))
    what = chance.randrange(5)
    if what == 0:
        proto.graph.initializer.remove(tensor)
    elif what == 1:
        try:
            data = numpy_helper.to_array(tensor).copy().reshape(-1)
        except Exception:
            return  # an earlier edit has left nothing that can be read
        with np.errstate(all="ignore"):
            choices = (
                FLOATS
                if data.dtype.kind == "f"
                else [n for n in NUMBERS if np.iinfo(data.dtype).min <= n <= np.iinfo(data.dtype).max]
            )
            data[chance.randrange(data.size)] = chance.choice(choices)
        tensor.CopyFrom(numpy_helper.from_array(data.reshape(tuple(tensor.dims)), tensor.name))
    elif what == 2:
        del tensor.dims[:]
        tensor.dims.extend(chance.choice(NUMBERS) for _ in range(chance.randrange(4)))
    elif what == 3:
        tensor.data_type = chance.choice([0, 1, 2, 3, 6, 7, 8, 9, 10, 11, 16, 21, 99])
    else:
        tensor.raw_data = tensor.raw_data[: chance.randrange(len(tensor.raw_data) + 1)]


def _bytes(proto: onnx.ModelProto, chance: random.Random) -> None:
    """Flip bytes of the serialised file, as far as it still parses."""
    data = bytearray(proto.SerializeToString())
    for _ in range(chance.randrange(1, 4)):
        data[chance.randrange(len(data))] = chance.randrange(256)
    changed = onnx.ModelProto()
    try:
        changed.ParseFromString(bytes(data))
    except Exception:
        return
    proto.CopyFrom(changed)


def _nest(proto: onnx.ModelProto, chance: random.Random) -> None:
    """Subgraphs within subgraphs."""
    graph = helper.make_graph([], "g", [], [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])])
    for _ in range(chance.choice([1, 3, 40])):
        node = helper.make_node("If", ["x"], ["y"], then_branch=graph, else_branch=graph)
        if node.ByteSize() > 1 << 16:
            break
        graph = helper.make_graph([node], "g", [], [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])])
    proto.graph.node.extend(graph.node)


def _more(proto: onnx.ModelProto, chance: random.Random) -> None:
    """Repeat a node, drop a node, turn the order around."""
    nodes = list(proto.graph.node)
    what = chance.randrange(3)
    if what == 0:
        nodes.append(chance.choice(nodes))
    elif what == 1:
        nodes.pop(chance.randrange(len(nodes)))
    else:
        chance.shuffle(nodes)
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)


def _opset(proto: onnx.ModelProto, chance: random.Random) -> None:
    proto.opset_import[0].version = chance.choice([0, 1, 6, 7, 9, 11, 13, 21, 25, 99, 2**31])


EDITS: list[Edit] = [
    _rewire, _rename_output, _other_operator, _attribute, _attribute, _input_shape, _initialiser, _initialiser,
    _bytes, _bytes, _nest, _more, _opset,
]  # fmt: skip


def _attempt(path: Path) -> None:
    graph = frontend.load(path)
    plan = make_plan(passes.run(graph, HOST), HOST)
    codegen.generate(plan, path.name, "0" * 64)


@pytest.mark.parametrize("part", range(8))
@pytest.mark.product(2)
def test_random_edits_of_valid_models(part: int, tmp_path: Path) -> None:
    """Also within 10 s and 2 GB each."""
    originals = [_cnn(), _qdq()]
    path = tmp_path / "hostile.onnx"
    compiled = 0
    for number in range(part, COUNT, 8):
        chance = random.Random(number)
        proto = onnx.ModelProto()
        proto.CopyFrom(chance.choice(originals))
        for _ in range(chance.randrange(1, 4)):
            if proto.graph.node and proto.graph.initializer and proto.graph.input and proto.opset_import:
                chance.choice(EDITS)(proto, chance)
        path.write_bytes(proto.SerializeToString())
        start = time.monotonic()
        try:
            _attempt(path)
            compiled += 1
        except MtoolError as error:
            assert error.exit_code in (3, 4), f"model {number}: {error}"
        except Exception as error:
            path.rename(tmp_path / f"hostile-{number}.onnx")
            raise AssertionError(f"model {number} ends in {type(error).__name__}: {error}") from error
        assert time.monotonic() - start < SECONDS, f"model {number} takes {time.monotonic() - start:.1f} s"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 < BYTES
    assert compiled > COUNT // 8 // 20
