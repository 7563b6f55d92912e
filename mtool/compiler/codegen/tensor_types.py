"""Tensors in C: their bytes, and their types as packed functions know them, DLPack's code and bits and a name."""

from collections.abc import Iterable

from mtool.compiler.ir import DType, TensorType
from mtool.manifest import Tensor

_CODES = {"int": "kDLInt", "uint": "kDLUInt", "float": "kDLFloat", "bool": "kDLBool"}


def dlpack_code(dtype: DType) -> str:
    """Return DLPack's name for the kind of an element type."""
    return "kDLBfloat" if dtype.label == "bfloat16" else _CODES[dtype.kind]


def tensor_bytes(model: str, tensor: Tensor) -> str:
    """Return the bytes of an input or output in C, by the macro of its elements' number; "0": it has none."""
    dtype, count = DType.of(tensor.dtype), f"{model}_{tensor.c_name}_COUNT".upper()
    return "0" if not tensor.bytes else count if dtype.size == 1 else f"{count} * sizeof({dtype.c})"


def type_name(model: str, kind: TensorType) -> str:
    """Return the C name of a tensor type of a model: kws_int8_1x12, kws_float32_scalar."""
    return f"{model}_{kind.dtype.label}_{'x'.join(map(str, kind.shape)) or 'scalar'}"


def declarations(model: str, kinds: Iterable[TensorType]) -> list[str]:
    """Return the declarations of a header, without a blank line between them."""
    return [f"extern const struct mt_tensor_type {type_name(model, kind)};" for kind in kinds]


def definitions(model: str, kinds: Iterable[TensorType]) -> list[str]:
    """Return the definitions; types of one shape share its numbers."""
    kinds = list(kinds)
    shapes = {}
    for kind in kinds:
        name = f"shape_{'x'.join(map(str, kind.shape)) or 'scalar'}"
        shapes[kind.shape] = name
    lines = [
        f"static const int64_t {name}[] = {{{', '.join(map(str, shape)) or 1}}};" for shape, name in shapes.items()
    ]
    lines.append("")
    for kind in kinds:
        values = f"{shapes[kind.shape]}, {len(kind.shape)}, {dlpack_code(kind.dtype)}, {kind.dtype.size * 8}"
        lines.append(f"const struct mt_tensor_type {type_name(model, kind)} = {{{values}}};")
    return [*lines, ""]
