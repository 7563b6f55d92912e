"""Constant folding, by onnx's reference evaluator; what it will cost is reckoned before."""

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from mtool.compiler.frontend.budget import Budget
from mtool.compiler.frontend.image_headers import elements_of
from mtool.compiler.frontend.problems import NotComputed, Unsupported
from mtool.compiler.ir import TensorType
from mtool.compiler.ir.types import Array

_VECTORISED = set(
    """
    Abs Acos Acosh Add And ArgMax ArgMin Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor
    Cast CastLike Ceil Celu Clip Compress Concat ConstantOfShape Cos Cosh CumProd CumSum DepthToSpace
    DequantizeLinear Div Dropout Elu Equal Exp Expand EyeLike Flatten Floor Gather Greater GreaterOrEqual
    HardSigmoid HardSwish Hardmax Identity InstanceNormalization IsInf IsNaN LRN LayerNormalization LeakyRelu Less
    LessOrEqual Log LogSoftmax LpNormalization Max Mean Min Mish Mod Mul Neg NonZero Not OneHot Or PRelu Pad Pow
    QuantizeLinear Range Reciprocal Relu Reshape ReverseSequence Round Selu Shape Shrink Sigmoid Sign Sin Sinh Size
    Slice Softmax Softplus Softsign SpaceToDepth Split Sqrt Squeeze Sub Sum Swish Tan Tanh ThresholdedRelu Tile TopK
    Transpose Trilu Unique Unsqueeze Where Xor ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean
    ReduceMin ReduceProd ReduceSum ReduceSumSquare
    """.split()  # noqa: SIM905
)
"""Operators whose reference is a few NumPy calls: a few nanoseconds an element."""

_BY_ELEMENT = {"Erf", "GatherElements", "GatherND", "Gelu", "Scatter", "ScatterElements", "ScatterND"}
_PRODUCTS = {"MatMul", "Gemm", "MatMulInteger", "QLinearMatMul", "Einsum"}
_CONVOLUTIONS = {"Conv", "ConvInteger"}
_WINDOWS = {"ConvTranspose", "MaxPool", "AveragePool", "LpPool"}
_LOSSES = {"NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"}
_GROWING = {
    "AffineGrid", "BlackmanWindow", "CenterCropPad", "Col2Im", "ConstantOfShape", "DFT", "Expand", "HammingWindow",
    "HannWindow", "MaxUnpool", "MelWeightMatrix", "OneHot", "Pad", "Range", "Resize", "STFT", "Tile", "Upsample",
}  # fmt: skip
"""Operators an input of which says that the output is larger than the inputs together."""

_REPEATING = ("sampling_ratio", "max_skip_count", "max_gram_length")  # attributes of RoiAlign and TfIdfVectorizer

_WRONG = {"GlobalMaxPool"}
"""Operators that onnx's reference computes wrongly: this one of other than two spatial dimensions."""

_PYTHON = 1000  # elements of NumPy that take as long as one that Python computes

Types = Mapping[str, TensorType]


def cost(proto: onnx.NodeProto, constants: Mapping[str, Array], kinds: Types) -> int:
    """Return what folding a node costs, in elements that NumPy computes at once.

    Args:
        proto: the node.
        constants: its inputs.
        kinds: the types of its outputs; empty: inference can't tell them.

    Raises:
        Unsupported: an input says how large the output is, and how large can't be told.
        NotComputed: it is an image that can't be decoded.
    """
    shapes = [constants[name].shape for name in proto.input if name]
    counts = [math.prod(shape) for shape in shapes]
    if proto.op_type == "ImageDecoder":
        return 8 * (sum(counts) + elements_of(constants[proto.input[0]]))
    made = sum(kind.count for kind in kinds.values()) if kinds else _unknown(proto, constants)
    every = sum(counts) + made
    if proto.op_type in _VECTORISED:
        return every
    if proto.op_type in _BY_ELEMENT:
        return 32 * every
    if proto.op_type in _PRODUCTS:
        return every + _products(proto, shapes, made)
    if proto.op_type in _CONVOLUTIONS:
        return 16 * every + made * math.prod(shapes[1][1:])
    if proto.op_type in _LOSSES:
        return every * _PYTHON
    if proto.op_type in _WINDOWS:
        attrs = {attr.name: [int(size) for size in attr.ints] for attr in proto.attribute}
        window = attrs.get("kernel_shape") or shapes[1 if len(shapes) > 1 else 0][2:]
        return every * (_PYTHON + math.prod(max(size, 1) for size in window))
    repeated = max([1, *(abs(int(attr.i)) for attr in proto.attribute if attr.name in _REPEATING)])
    return max(every * _PYTHON, every * every) * repeated**2


def _unknown(proto: onnx.NodeProto, constants: Mapping[str, Array]) -> int:
    """Return the most elements that a node can make whose outputs' types inference can't tell."""
    shapes = [constants[name].shape for name in proto.input if name]
    if proto.op_type == "Range" and all(constants[name].size == 1 for name in proto.input):
        start, limit, delta = (float(constants[name].item()) for name in proto.input)
        rounds = (limit - start) / delta if delta else math.inf
        return max(math.ceil(rounds), 0) if math.isfinite(rounds) else 1 << 62
    if proto.op_type in _GROWING:
        raise Unsupported("how large its output is can't be told")
    try:
        together = math.prod(np.broadcast_shapes(*shapes))
    except ValueError:
        together = 0
    return max(together, max((math.prod(shape) * max(len(shape), 1) for shape in shapes), default=0), 1)


def _products(proto: onnx.NodeProto, shapes: Sequence[tuple[int, ...]], made: int) -> int:
    """Return the multiplications of a matrix product, or of an Einsum, which has a letter for each dimension."""
    if proto.op_type != "Einsum":
        return made * max(shapes[0], default=1)
    equation = next((attr.s.decode(errors="replace") for attr in proto.attribute if attr.name == "equation"), "")
    sizes: dict[str, int] = {}
    for term, shape in zip(equation.replace(" ", "").partition("->")[0].split(","), shapes, strict=False):
        if len(term) != len(shape) or "." in term:
            return math.prod(max(size, 1) for other in shapes for size in other)
        sizes |= {letter: max(size, sizes.get(letter, 1)) for letter, size in zip(term, shape, strict=True)}
    return math.prod(sizes.values())


def fold(
    proto: onnx.NodeProto, domain: str, version: int, constants: Mapping[str, Array], kinds: Types, budget: Budget
) -> dict[str, Array]:
    """Return a node's outputs, computed from constants.

    Args:
        proto: the node, all of whose inputs are constants.
        domain: its domain.
        version: its opset.
        constants: the values of its inputs.
        kinds: the types of its outputs; empty: inference can't tell them.
        budget: what may be computed.

    Raises:
        NotComputed: the reference evaluator can't.
        Unsupported: its value is of another size than inference told.
        ModelError: it exceeds the budget.
    """
    from onnx.reference import ReferenceEvaluator  # builds its tables of operators when it is imported

    if proto.op_type in _WRONG:
        raise NotComputed("onnx's reference is not relied on for it")
    where = f"{proto.op_type} {proto.name or next(iter(proto.output), '')}"
    budget.spend("work", cost(proto, constants, kinds), where)
    budget.afford("constants", sum(kind.bytes for kind in kinds.values()), where)
    inputs = [helper.make_tensor_value_info(name, 1, None) for name in dict.fromkeys(proto.input) if name]
    outputs = [helper.make_tensor_value_info(name, 1, None) for name in proto.output if name]
    graph = helper.make_graph([proto], "fold", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid(domain, version)])
    feeds = {name: constants[name] for name in proto.input if name}
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            values: list[Any] = ReferenceEvaluator(model).run(None, feeds)
    except Exception as failed:
        raise NotComputed(f"its constant inputs can't be computed with: {failed}") from None
    result = {}
    for info, value in zip(outputs, values, strict=True):
        kind = kinds.get(info.name)
        if kind is None:  # inference could not tell; the value does
            result[info.name] = np.asarray(value)
            continue
        data = np.asarray(value, kind.dtype.numpy)
        if data.size != kind.count:
            raise Unsupported(f"its output is {list(data.shape)} where {list(kind.shape)} was inferred")
        result[info.name] = data.reshape(kind.shape)
    return result
