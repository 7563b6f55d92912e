"""Run-time sizes at the interface: the formulas of its tensors' shapes, and the checks of the caller's sizes."""

from collections.abc import Iterable, Sequence

from mtool.base.errors import ModelError
from mtool.base.escaping import argument
from mtool.base.formulas import Formula, fitted
from mtool.compiler.codegen.c_text import Part, declaration, variable
from mtool.compiler.codegen.model import CModel
from mtool.compiler.ir import DType, Graph, TensorType
from mtool.compiler.ir.node import View
from mtool.manifest import Tensor

# Tensors in C: their bytes, and their types for packed functions (DLPack's code and bits, and a name).


def parts_of(graph: Graph, value: str) -> tuple[str, ...]:
    """Return the values whose bytes a view consists of; empty: it is not a view."""

    def all_views() -> dict[str, tuple[str, ...]]:
        views: dict[str, tuple[str, ...]] = {}
        for node in graph.nodes:
            if isinstance(node.attrs, View):
                parts = (part for source in node.inputs for part in views.get(source, (source,)))
                views[node.outputs[0]] = tuple(dict.fromkeys(parts))
        return views

    return graph.once("parts", all_views).get(value, ())


_CODES = {"int": "kDLInt", "uint": "kDLUInt", "float": "kDLFloat", "bool": "kDLBool"}


def tensor_bytes(model: object, tensor: Tensor) -> str:
    """Return the bytes of an input or output in C, from the macro of its element count; "0": it has no elements."""
    dtype, count = DType.of(tensor.dtype), f"{model}_{tensor.c_name}_COUNT".upper()
    return "0" if not tensor.bytes else count if dtype.size == 1 else f"{count} * sizeof({dtype.c})"


def type_name(model: object, kind: TensorType) -> str:
    """Return the C name of a tensor type of a model: kws_int8_1x12, kws_float32_scalar."""
    return f"{model}_{kind.dtype.label}_{'x'.join(map(str, kind.shape)) or 'scalar'}"


def declarations(model: object, kinds: Iterable[TensorType]) -> list[Part]:
    """Return the declarations for a header, without blank lines between them."""
    return [declaration(f"extern const struct mt_tensor_type {type_name(model, kind)}") for kind in kinds]


def definitions(model: object, kinds: Iterable[TensorType]) -> list[str]:
    """Return the definitions; types with the same shape share its array."""
    kinds = list(kinds)
    shapes = {}
    for kind in kinds:
        name = f"shape_{'x'.join(map(str, kind.shape)) or 'scalar'}"
        shapes[kind.shape] = name
    lines: list[str] = [
        variable(f"static const int64_t {name}[]", f" = {{{', '.join(map(str, shape)) or 1}}}")
        for shape, name in shapes.items()
    ]
    lines.append("")
    for kind in kinds:
        code = "kDLBfloat" if kind.dtype.label == "bfloat16" else _CODES[kind.dtype.kind]
        values = f"{shapes[kind.shape]}, {len(kind.shape)}, {code}, {kind.dtype.size * 8}"
        lines.append(variable(f"const struct mt_tensor_type {type_name(model, kind)}", f" = {{{values}}}"))
    return [*lines, ""]


def formula_of(graph: Graph, values: Sequence[int]) -> Formula:
    """Return the formula of a number with these `values` at the graph's samples.

    Raises:
        ModelError: no formula fits, or several do.
    """
    points = [point for point, _ in graph.samples]
    formula = fitted([size.symbol for size in graph.sizes], points, values)
    if formula is None:
        raise ModelError(
            "a shape is not a formula of the run-time sizes",
            details=[f"{list(point)}: {value}" for point, value in zip(points[:5], values, strict=False)],
            hint="give such a dimension a fixed size: "
            + " ".join(f"--dim {argument(size.name)}=N" for size in graph.sizes),
        )
    return formula


def dims_of(graph: Graph, value: str) -> tuple[str, ...] | None:
    """Return the formulas of a value's dimensions; None: they are always the same."""
    if not graph.samples or value not in graph.samples[0][1].types:
        return None
    shapes = [sample.types[value].shape for _, sample in graph.samples]
    if len(set(shapes)) == 1:
        return None
    return tuple(str(formula_of(graph, sizes)) for sizes in zip(*shapes, strict=True))


def reshapes_of(graph: Graph, value: str) -> tuple[tuple[str, ...], ...] | None:
    """Return the formulas of the shapes that a value's source is reshaped to; None: they are always the same."""
    sources = [sample.sources[value] for _, sample in graph.samples if value in sample.sources]
    columns = [[numbers for kind, numbers in source.moves if kind == "reshape"] for source in sources]
    if not sources or all(column == columns[0] for column in columns):
        return None
    return tuple(
        tuple(str(formula_of(graph, sizes)) for sizes in zip(*shapes, strict=True))
        for shapes in zip(*columns, strict=True)
    )


def bytes_in_c(model: CModel, value: str, tensor: Tensor) -> str:
    """Return the bytes of an input or output as C, with the sizes in `inputs`; "0": it has no elements."""
    graph = model.graph
    if dims_of(graph, value) is None:
        return tensor_bytes(model, tensor)
    text = _bytes(graph, value)
    for size in graph.sizes:
        text = text.replace(f"\0{size.symbol}", f"*inputs->{field_of(model, size.value)}")
    return f"(size_t){text}" if text.startswith("(") else f"(size_t)({text})"


def _bytes(graph: Graph, value: str) -> str:
    """Return the bytes of a value as C, "\\0" before the names of sizes: a formula, or the product of several."""
    kinds = [sample.types[value] for _, sample in graph.samples]
    names, points = [size.symbol for size in graph.sizes], [point for point, _ in graph.samples]
    formula = fitted(names, points, [kind.bytes for kind in kinds])
    if formula is not None:
        return formula.c("\0")
    dims = [formula_of(graph, sizes).c("\0") for sizes in zip(*(kind.shape for kind in kinds), strict=True)]
    return f"({' * '.join([*dims, str(kinds[0].dtype.size)])})"


def field_of(model: CModel, value: str) -> str:
    """Return the field of the inputs' structure with a size."""
    return model.interface.inputs[model.graph.caller_inputs.index(value)].c_name


def range_test(model: CModel) -> list[str]:
    """Return the C that refuses sizes out of range."""
    lines = []
    for size in model.graph.sizes:
        field = f"*inputs->{field_of(model, size.value)}"
        lines += [f"    if ({field} < {size.least} || {field} > {size.most})", "        return MT_BAD_SIZE;"]
    return lines
