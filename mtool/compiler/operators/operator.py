"""The record of an operator: all that mtool knows of it, from the file's node to internal operators."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field

import onnx

from mtool.compiler.ir import Attributes, TensorType
from mtool.compiler.ir.types import Array
from mtool.compiler.operators.bounds import Carry
from mtool.compiler.operators.cases import Cases, by_schema
from mtool.compiler.operators.folding import SLOW, Folding
from mtool.compiler.operators.index_ranges import IndexRanges
from mtool.compiler.operators.lowering import Lower
from mtool.compiler.operators.onnx_node import Canonical, OnnxNode

Infer = Callable[[Attributes, Sequence[TensorType]], Sequence[TensorType]]
"""The types of the outputs, from the attributes and the types of the inputs that are given."""

Bound = Callable[[OnnxNode, int | None], Sequence[tuple[TensorType, int | None]]]
"""The types of outputs whose size depends on data, with the most elements that there may be in its place.

Arguments are the node, and that number if it is stated; otherwise it is what the shapes of the inputs allow. Beside
each type stands the dimension whose size it is, or None.
"""


@dataclass(frozen=True, slots=True)
class TfliteBuiltin:
    """A TFLite builtin that is an operator without more.

    inputs: how many it has.
    is_stored: it computes with the elements as they are stored, not with the real numbers that they stand for.
    """

    name: str
    inputs: int = 1
    is_stored: bool = False


INSIDE = (0, -1)
BEHIND = (0, 0)


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator.

    name, domain: as in a model, "" being ONNX's own domain.
    attributes: the class of its canonical node's attributes, whose fields are called as in the model.
    canonical: the canonical form, which emits canonical nodes; None: the node as it is, if it has a lowering.
    expand: the ONNX nodes that it is made of, where it is nothing but those; it has no other form then.
    rewrite: the one ONNX node that it is the same as, if there is one, before anything is inferred.
    words: the words that an attribute may be.
    axis_ends: what the attribute `axis` may be: from the first less the input's rank, to the second plus the rank;
        None: it is not always an axis of the first input.
    check: checks of attributes against the shapes of the inputs; it raises `Unsupported`.
    check_constants: a check of the values of the inputs, where all are constants; it raises `Unsupported`.
    check_shapes: whether the shapes of inputs and outputs go together, which onnx's inference may not look at;
        shapes_from: the opset from which on it holds.
    index_ranges: the range that constant indices among the inputs have to lie in.
    sizes: inputs whose values say what shape the outputs have; most_sizes: how many elements they may have.
    keeps_empty: what it makes of nothing has no elements, whatever those inputs say.
    is_declared: the shape of the output may be declared by the model though those inputs are constants.
    bound: the largest outputs, where their size depends on data.
    carry: where a dimension of such a size is in the output.
    infer: the types of the outputs, where onnx does not say them.
    zero_point: the number of the input that is the zero point of an input of integers; None: it has none.
    moves: it only moves elements: constants that are quantized stay integers.
    folding: how it is computed when its inputs are constants.
    tflite: the TFLite builtins that are this operator without more.
    cases: random valid nodes, from which tests and fuzzers draw; None: its results are random or no tensors, or
        neither onnxruntime nor onnx computes it. mtool's own operators (`OWN`) are not drawn: no file contains them.
    lower: its canonical node as internal operators; None: none is left.
    package: the entry point that it is from, as an installed package names it; mtool fills it in.
    """

    name: str
    _: KW_ONLY
    domain: str = ""
    attributes: type[Attributes] = Attributes
    canonical: Canonical | None = None
    expand: Canonical | None = None
    rewrite: Callable[[OnnxNode], onnx.NodeProto | None] | None = None
    words: Mapping[str, Sequence[str]] = field(default_factory=dict)
    axis_ends: tuple[int, int] | None = INSIDE
    check: Callable[[OnnxNode], None] | None = None
    check_constants: Callable[[Sequence[Array]], None] | None = None
    check_shapes: Callable[[OnnxNode], bool] | None = None
    shapes_from: int = 1
    index_ranges: IndexRanges | None = None
    sizes: tuple[int, ...] = ()
    most_sizes: int = 1024
    keeps_empty: bool = False
    is_declared: bool = False
    bound: Bound | None = None
    carry: Carry | None = None
    infer: Infer | None = None
    zero_point: Callable[[int], int | None] | None = None
    moves: bool = False
    folding: Folding = SLOW
    tflite: tuple[TfliteBuiltin, ...] = ()
    cases: Cases | None = by_schema
    lower: Lower | None = None
    package: str = ""
