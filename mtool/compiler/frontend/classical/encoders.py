"""Encoders: operators of ai.onnx.ml that prepare features and map labels.

LabelEncoder 4, OneHotEncoder, Imputer, FeatureVectorizer, ArrayFeatureExtractor, ZipMap 1.
"""

from typing import Any

import numpy as np
from onnx import numpy_helper

from mtool.compiler.frontend.classical.decomposition import Classical, Decomposition
from mtool.compiler.frontend.problems import Unsupported
from mtool.compiler.ir import TensorType
from mtool.compiler.ir.types import Array, DType

STRINGS = "strings are not supported"


def _table(write: Decomposition, side: str) -> Array:
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


def _label_encoder(write: Decomposition) -> None:
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
    x, output = write.proto.input[0], write.proto.output[0]
    keys = keys.astype(write.dtype(x))
    _, first = np.unique(keys, return_index=True)  # the first of equal keys counts, each stands once
    kept = np.sort(first)
    state = write.state
    state.types[output] = TensorType(DType.of(values.dtype), write.kind(x).shape)
    tables = [write.constant(keys[kept], keys.dtype)]
    tables.append(write.constant([*values[kept], default], values.dtype))
    state.emit("LabelEncoder", write.origin, [x, *tables], [output])


def _one_hot(write: Decomposition) -> None:
    """OneHotEncoder: 1 where a category is equal; a value that is none of them gives zeros."""
    categories = list(write.attrs.get("cats_int64s") or ())
    if not categories:
        raise Unsupported(STRINGS)
    x = write.proto.input[0]
    raised = write("Unsqueeze", x, write.constant([-1], np.int64))
    write.give(write("Cast", write("Equal", raised, write.constant(categories, write.dtype(x))), to=1))


def _imputer(write: Decomposition) -> None:
    """Imputer: another number for each that is missing, which NaN or a given number marks."""
    x, attrs = write.proto.input[0], write.attrs
    dtype = write.dtype(x)
    values: list[Any] = list(attrs.get("imputed_value_floats") or attrs.get("imputed_value_int64s") or ())
    key = "replaced_value_float" if attrs.get("imputed_value_floats") else "replaced_value_int64"
    marked = attrs.get(key, 0)
    if len(values) not in (1, write.kind(x).shape[-1]):
        raise Unsupported(f"it has {len(values)} values for {write.kind(x).shape[-1]} features")
    missing = write("IsNaN", x) if np.isnan(marked) else write("Equal", x, write.constant(marked, dtype))
    write.give(write("Where", missing, write.constant(values, dtype), x))


def _feature_vectorizer(write: Decomposition) -> None:
    """FeatureVectorizer: the inputs' columns side by side, each input cut or filled up to its width."""
    widths = list(write.attrs.get("inputdimensions") or ())
    parts = []
    for index, name in enumerate(write.proto.input):
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


def _array_feature_extractor(write: Decomposition) -> None:
    """ArrayFeatureExtractor: columns of the last axis, by number; of a vector, a row of one example."""
    x, indices = write.proto.input
    if len(write.kind(x).shape) == 1:
        x = write("Unsqueeze", x, write.constant([0], np.int64))
    flat = write("Reshape", indices, write.constant([-1], np.int64))
    write.give(write("Gather", x, flat, axis=-1))


def _zip_map(write: Decomposition) -> None:
    """ZipMap: C has no maps; the tensor [examples, classes] of their values, in the order of the labels."""
    write.give(write.proto.input[0])


ENCODERS: dict[str, Classical] = {
    "LabelEncoder": _label_encoder,
    "OneHotEncoder": _one_hot,
    "Imputer": _imputer,
    "FeatureVectorizer": _feature_vectorizer,
    "ArrayFeatureExtractor": _array_feature_extractor,
    "ZipMap": _zip_map,
}
