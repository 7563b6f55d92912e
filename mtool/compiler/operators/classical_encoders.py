"""Encoders: operators of ai.onnx.ml that prepare features and map labels.

LabelEncoder 4, OneHotEncoder, Imputer, FeatureVectorizer, ArrayFeatureExtractor, ZipMap 1.
"""

from typing import Any

import numpy as np
from onnx import numpy_helper

from mtool.compiler.ir import DType, Expr, Node, TensorType
from mtool.compiler.ir.expr import Reduction, axis, call, identity, load
from mtool.compiler.ir.index import choose, number
from mtool.compiler.ir.types import Array
from mtool.compiler.operators.classical_node import ClassicalNode, classical
from mtool.compiler.operators.lowering import Lowering
from mtool.compiler.operators.problems import Unsupported

STRINGS = "strings are not supported"


def _table(write: ClassicalNode, side: str) -> Array:
    """Return the keys or the values of a label encoder.

    Raises:
        Unsupported: they are strings.
    """
    attrs = write.attrs
    if f"{side}_tensor" in attrs:
        data = numpy_helper.to_array(attrs[f"{side}_tensor"])
        if data.dtype.kind not in "biuf":
            raise Unsupported(STRINGS)
        return np.asarray(data).reshape(-1)
    for key, dtype in ((f"{side}_int64s", np.int64), (f"{side}_floats", np.float32)):
        if attrs.get(key):
            return np.asarray(attrs[key], dtype)
    raise Unsupported(STRINGS)


def _label_encoder(write: ClassicalNode) -> None:
    """LabelEncoder: the value of the first key that is equal, NaN to NaN; else the default."""
    if {"classes_strings", "keys_strings", "values_strings"} & write.attrs.keys():
        raise Unsupported(STRINGS)
    keys, values = _table(write, "keys"), _table(write, "values")
    if len(keys) != len(values):
        raise Unsupported(f"it has {len(keys)} keys and {len(values)} values")
    if "default_tensor" in write.attrs:
        default = numpy_helper.to_array(write.attrs["default_tensor"]).reshape(-1)[0]
    elif values.dtype.kind == "f":
        default = write.attrs.get("default_float", 0.0)
    else:
        default = write.attrs.get("default_int64", -1)
    x, output = write.inputs[0], write.outputs[0]
    keys = keys.astype(write.dtype(x))
    _, first = np.unique(keys, return_index=True)  # the first of equal keys counts, each stands once
    kept = np.sort(first)
    state = write.state
    state.types[output] = TensorType(DType.of(values.dtype), write.kind(x).shape)
    tables = [write.constant(keys[kept], keys.dtype)]
    tables.append(write.constant([*values[kept], default], values.dtype))
    state.emit("LabelEncoder", write.origin, [x, *tables], [output])


def _one_hot(write: ClassicalNode) -> None:
    """OneHotEncoder: 1 where a category is equal; a value that is none of them gives zeros."""
    categories = list(write.attrs.get("cats_int64s") or ())
    if not categories:
        raise Unsupported(STRINGS)
    x = write.inputs[0]
    raised = write("Unsqueeze", x, write.constant([-1], np.int64))
    write.give(write("Cast", write("Equal", raised, write.constant(categories, write.dtype(x))), to=1))


def _imputer(write: ClassicalNode) -> None:
    """Imputer: another number for each that is missing, which NaN or a given number marks."""
    x, attrs = write.inputs[0], write.attrs
    dtype = write.dtype(x)
    values: list[Any] = list(attrs.get("imputed_value_floats") or attrs.get("imputed_value_int64s") or ())
    key = "replaced_value_float" if attrs.get("imputed_value_floats") else "replaced_value_int64"
    marked = attrs.get(key, 0)
    if len(values) not in (1, write.kind(x).shape[-1]):
        raise Unsupported(f"it has {len(values)} values for {write.kind(x).shape[-1]} features")
    missing = write("IsNaN", x) if np.isnan(marked) else write("Equal", x, write.constant(marked, dtype))
    write.give(write("Where", missing, write.constant(values, dtype), x))


def _feature_vectorizer(write: ClassicalNode) -> None:
    """FeatureVectorizer: the inputs' columns side by side, each input cut or filled up to its width."""
    widths = list(write.attrs.get("inputdimensions") or ())
    parts = []
    for index, name in enumerate(write.inputs):
        value = name if write.dtype(name) == np.float32 else write("Cast", name, to=1)
        shape = write.kind(value).shape
        if len(shape) == 1:
            value = write("Unsqueeze", value, write.constant([1], np.int64))
        elif len(shape) != 2:
            raise Unsupported(f"an input has {len(shape)} dimensions; expected: 1 or 2")
        found = write.kind(value).shape[1]
        width = widths[index] if index < len(widths) else found
        ends = [write.constant([n], np.int64) for n in (0, width, 1)]
        if width < found:
            value = write("Slice", value, *ends)
        elif width > found:
            value = write("Pad", value, write.constant([0, 0, 0, width - found], np.int64))
        parts.append(value)
    write.give(write("Concat", *parts, axis=1))


def _array_feature_extractor(write: ClassicalNode) -> None:
    """ArrayFeatureExtractor: columns of the last axis, by number; of a vector, a row of one example."""
    x, indices = write.inputs
    if len(write.kind(x).shape) == 1:
        x = write("Unsqueeze", x, write.constant([0], np.int64))
    flat = write("Reshape", indices, write.constant([-1], np.int64))
    write.give(write("Gather", x, flat, axis=-1))


def _zip_map(write: ClassicalNode) -> None:
    """ZipMap: C has no maps; the tensor [examples, classes] of their values, in the order of the labels."""
    write.give(write.inputs[0])


def _look_up(ctx: Lowering, node: Node) -> None:
    """LabelEncoder: the index of the key that is equal, or one behind the last, into the table of values."""
    x, keys, values = node.inputs
    kind, count = ctx.types[x], ctx.types[keys].count
    rank = len(kind.shape)
    element, key = load(0, kind.dtype, identity(rank)), load(1, kind.dtype, (axis(rank),))
    equal = call("equal", element, key, dtype=DType.BOOL)
    if kind.dtype.is_float:
        both = call("and", *(call("isnan", side, dtype=DType.BOOL) for side in (element, key)))
        equal = call("or", equal, both)
    index = choose(equal, axis(rank), number(count))
    found = Expr("reduce", DType.INT32, (index,), Reduction("minimum", ((rank, count),)))
    at = ctx.value(f"{node.outputs[0]}.place", DType.INT32, kind.shape)
    ctx.loop(node, found, [x, keys], at)
    chosen = load(1, ctx.types[values].dtype, (load(0, DType.INT32, identity(rank)),))
    ctx.loop(node, chosen, [at, values])


OPERATORS = (
    classical("LabelEncoder", _label_encoder, _look_up),
    classical("OneHotEncoder", _one_hot),
    classical("Imputer", _imputer),
    classical("FeatureVectorizer", _feature_vectorizer),
    classical("ArrayFeatureExtractor", _array_feature_extractor),
    classical("ZipMap", _zip_map),
)
