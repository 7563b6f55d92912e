"""Operators of custom domains from installed packages; docs/add-an-operator.md has an example.

A package lists its tuple of records as an entry point of the group "mtool.operators".
"""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, replace
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from mtool.base import plural
from mtool.base.errors import ModelError, MtoolError, UsageError
from mtool.base.spelling import did_you_mean
from mtool.compiler import added_operators
from mtool.compiler.ir import Attributes, DType, Node, TensorType
from mtool.compiler.kernels.registry import SPECIFICATIONS
from mtool.compiler.operators.lowering import Lowering
from mtool.compiler.operators.operator import Operator
from mtool.compiler.operators.problems import Unsupported


@functools.cache
def custom_operators() -> Mapping[tuple[str, str], Operator]:
    """Return the operators of installed packages, by domain and name.

    Raises:
        UsageError: a package's operators can't be loaded.
    """
    records: dict[tuple[str, str], Operator] = {}
    for entry in added_operators.entries():
        try:
            records |= {(op.domain, op.name): replace(op, package=entry.value) for op in _checked(entry.load())}
        except (Exception, SystemExit) as failed:  # in the package's code
            raise UsageError(
                f"the operators of {entry.value} can't be loaded",
                details=[f"{type(failed).__name__}: {failed}"],
                hint="fix that package, or uninstall it",
            ) from failed
    return records


def _checked(operators: Any) -> Sequence[Operator]:
    """Check a package's records and return them.

    Raises:
        TypeError: they are not valid.
    """
    for op in operators:
        if not (isinstance(op, Operator) and type(op.name) is str and type(op.domain) is str and op.domain):
            raise TypeError(f"{op!r} is not an Operator with a name and a domain")
        if not (callable(op.lower) and callable(op.infer)):
            raise TypeError(f"{op.name} has no lowering, or no function that infers the types of its outputs")
        if not (isinstance(op.attributes, type) and issubclass(op.attributes, Attributes)):
            raise TypeError(f"the attributes of {op.name} are not a subclass of mtool.compiler.ir.Attributes")
    return tuple(operators)


def custom_kind(domain: str, name: str) -> str:
    """Return the kind of an operator's nodes in a graph."""
    return f"{domain}.{name}"


def custom_operator(kind: str) -> Operator | None:
    """Return the package's operator with this kind of nodes, or None; ONNX's kinds do not load any package."""
    if "." not in kind:
        return None
    domain, _, name = kind.rpartition(".")
    return custom_operators().get((domain, name))


_WORDS = {int: "an integer", float: "a finite float", str: "a string"}


def custom_attributes(operator: Operator, attrs: Mapping[str, Any]) -> Attributes:
    """Return a node's attributes as those of a package's operator.

    Raises:
        Unsupported: one is missing, unknown or has the wrong type.
    """
    valid = {field.name: field for field in fields(operator.attributes)}
    for name in attrs:
        if name not in valid:
            raise Unsupported(f"unknown attribute {name!r}: {did_you_mean(name, valid, 'it has ' + ', '.join(valid))}")
    for name, kind in get_type_hints(operator.attributes).items():
        if name not in attrs:
            if valid[name].default is valid[name].default_factory is MISSING:
                raise Unsupported(f"missing attribute {name!r}")
            continue
        is_list = get_origin(kind) is tuple
        expected = get_args(kind)[0] if is_list else kind
        values = attrs[name] if is_list and isinstance(attrs[name], tuple) else (attrs[name],)
        is_right = all(type(v) is expected and (expected is not float or math.isfinite(v)) for v in values)
        if expected in _WORDS and not (is_right and isinstance(attrs[name], tuple) == is_list):
            words = f"a list, each {_WORDS[expected]}" if is_list else _WORDS[expected]
            raise Unsupported(f"attribute {name!r} is {attrs[name]!r}; expected {words}")
    return operator.attributes(**attrs)


T = TypeVar("T")

_MAX_BYTES = 2**31 - 1  # the largest value, as for other operators


def types_of(
    operator: Operator, attrs: Attributes, inputs: Sequence[TensorType], count: int, where: str
) -> list[TensorType]:
    """Return the types of the `count` outputs of the node `where`.

    Raises:
        ModelError: the package fails, or returns too few types or something else.
    """
    infer = operator.infer
    assert infer is not None
    kinds = _called(operator, where, lambda: list(infer(attrs, inputs)))
    for number, kind in enumerate(kinds):
        if not (isinstance(kind, TensorType) and isinstance(kind.dtype, DType) and _is_shape(kind.shape)):
            raise _wrong(operator, where, f"the type of output {number} is {kind!r}")
        if kind.bytes > _MAX_BYTES:
            raise _wrong(operator, where, f"output {number} has {kind.bytes:,} bytes; expected at most {_MAX_BYTES:,}")
    if len(kinds) < count:
        raise _wrong(
            operator,
            where,
            f"it has {plural.count(count, 'output')} in the model, "
            f"but the package returns {plural.count(len(kinds), 'type')}",
        )
    return kinds


def lower(operator: Operator, ctx: Lowering, node: Node) -> None:
    """Lower a node, and check the result.

    Raises:
        ModelError: the package fails, or its result is not a valid graph: an output is missing or has the wrong type,
            a value is read before it is written, or an operand of a kernel is wrong.
    """
    start, where = len(ctx.nodes), f"{node.op} {node.name}"
    lowering = operator.lower
    assert lowering is not None
    _called(operator, where, lambda: lowering(ctx, node))
    kernels = ctx.nodes[start:]
    written = [value for kernel in kernels for value in kernel.outputs if value]
    for value in written:
        if written.count(value) > 1 or (value in ctx.graph.types and value not in node.outputs):
            raise _wrong(operator, where, f"it writes {value!r}, which is written already")
    defined = {*node.inputs, *ctx.constants, ""}
    for kernel in kernels:
        for value in kernel.inputs:
            if value not in defined and not _is_made(value, ctx, start):
                raise _wrong(operator, where, f"{kernel.op} reads {value!r} before it is written")
        defined.update(kernel.outputs)
    for value in filter(None, node.outputs):
        if value not in written:
            raise _wrong(operator, where, f"its lowering does not write the output {value!r}")
        if ctx.types[value] != ctx.graph.types[value]:
            raise _wrong(operator, where, f"{value!r} is {ctx.types[value]}; expected {ctx.graph.types[value]}")
    graph = replace(ctx.graph, nodes=tuple(kernels), types=ctx.types, constants=ctx.constants)
    for kernel in kernels:
        if kernel.op not in SPECIFICATIONS:
            raise _wrong(operator, where, f"its lowering appends a node of the unknown kind {kernel.op}")
        try:
            SPECIFICATIONS[kernel.op].check(kernel, graph)
        except (AssertionError, KeyError, IndexError, TypeError) as error:
            raise _wrong(operator, where, f"{type(error).__name__}: {error}") from error


def _is_made(value: str, ctx: Lowering, count: int) -> bool:
    """Return whether a value is an input of the graph, or an output of its first `count` nodes."""
    return value in ctx.graph.inputs or any(value in node.outputs for node in ctx.nodes[:count])


def _called(operator: Operator, where: str, call: Callable[[], T]) -> T:
    try:
        return call()
    except MtoolError:
        raise
    except (Exception, SystemExit) as failed:  # in the package's code
        raise _wrong(operator, where, f"{type(failed).__name__}: {failed}") from failed


def _wrong(operator: Operator, where: str, problem: str) -> ModelError:
    return ModelError(
        f"the package of {where} can't compile it",
        details=[f"package  {operator.package}", f"found    {problem}"],
        hint="fix that package, or uninstall it (docs/add-an-operator.md)",
    )


def _is_shape(shape: object) -> bool:
    return isinstance(shape, tuple) and all(type(size) is int and size >= 0 for size in shape)
