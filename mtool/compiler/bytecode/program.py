"""Expressions as programs of the kernel `map`: crt/include/mt_bytecode_map.h lists the steps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from mtool.compiler.bytecode.call import Address, Call, Constant, NoKernel, Operand, Scratch, Value, padded, word_of
from mtool.compiler.ir import DType, Expr, Graph, Node
from mtool.compiler.ir.expr import Reduction, const, first_of
from mtool.compiler.ir.ranges import Affine, affine
from mtool.compiler.ir.scalar import NearTie, Requantize, RescalePair, Shifted
from mtool.compiler.kernels.packing import round_up

STEPS: Final = {
    name: number
    for number, name in enumerate(
        (
            "load", "integer", "real", "axis", "look_up", "store", "add_i", "sub_i", "mul_i", "min_i", "max_i",
            "less_i", "equal_i", "div_i", "mod_i", "where_i", "where_f", "wrap", "to_f", "to_i", "add_f", "sub_f",
            "mul_f", "div_f", "min_f", "max_f", "less_f", "equal_f", "abs_f", "sqrt_f", "exp_f", "log_f", "tanh_f",
            "sigmoid_f", "floor_f", "requantize", "quantize", "rescale_pair", "bit_and", "bit_or", "add_to", "mul_to",
            "min_to", "max_to",
        )
    )
}  # fmt: skip
"""Their codes; a test compares the list with the C header's."""

AXES: Final = 5
MOST: Final = 64
"""Values of an element."""

_TYPES: Final = {
    DType.INT8: 0, DType.UINT8: 1, DType.BOOL: 1, DType.INT16: 2, DType.UINT16: 3, DType.INT32: 4, DType.FLOAT32: 5,
}  # fmt: skip
_BOTH: Final = {"add": "add", "sub": "sub", "mul": "mul", "minimum": "min", "maximum": "max"}
_ENDS: Final = {"add": "add", "multiply": "mul", "minimum": "min", "maximum": "max"}
_FLOATS: Final = {"sqrt": "sqrt_f", "exp": "exp_f", "log": "log_f", "tanh": "tanh_f", "sigmoid": "sigmoid_f",
                  "floor": "floor_f", "div": "div_f", "abs": "abs_f"}  # fmt: skip
_INTEGERS: Final = {"floordiv": "div_i", "mod": "mod_i"}
_ORDERS: Final = {"less": (False, False), "greater": (True, False), "less_equal": (False, True),
                  "greater_equal": (True, True)}  # fmt: skip


def flat_affine(load: Expr, shape: Sequence[int]) -> Affine | None:
    """Return a loaded element's row-major index as a sum of axes; None: it is not affine, or has a negative step."""
    total = Affine(0, {})
    for index, size in zip(load.args, shape, strict=True):
        total = Affine(0, {}).plus(total, size)
        if size == 1:
            continue
        part = affine(index)
        if part is None:
            return None
        total = total.plus(part)
    return total if total.first >= 0 and min(total.steps.values(), default=0) >= 0 else None


def _type(dtype: DType) -> int:
    if dtype not in _TYPES:
        raise NoKernel(f"elements of {dtype.label}")
    return _TYPES[dtype]


@dataclass(slots=True)
class Program:
    """The steps of an expression for each element of a tensor, or for each element of a reduction.

    Attributes:
        node: whose inputs it loads.
        graph: the graph.
        shape: of the tensor.
        acc: the address of the kernel's results, in the tensor's order; None: there are none.
        sums: the addresses of reductions in the expression, in the tensor's order.
        more: the reduced axes and their sizes.
    """

    node: Node
    graph: Graph
    shape: tuple[int, ...]
    acc: Address | None = None
    sums: Mapping[Expr, Address] = field(default_factory=dict)
    more: tuple[tuple[int, int], ...] = ()
    words: list[Operand] = field(default_factory=list)
    numbers: dict[tuple[Operand, ...], int] = field(default_factory=dict)

    def call(self, expr: Expr, to: Address, dtype: DType, end: str = "store") -> Call:
        """Return the call that stores an expression as a type, in the tensor's order.

        `end`: its last step, which may also combine it with the stored value.

        Raises:
            NoKernel: the expression has something that the kernel's steps do not have.
        """
        axes = self._axes()
        if len(axes) > AXES:
            raise NoKernel(f"an expression of {len(axes)} dimensions")
        result = expr.fold(self._step, ("load", "reduce"))
        self._add(end, _type(dtype), result)
        if len(self.numbers) > MOST:
            raise NoKernel(f"an expression of {len(self.numbers)} steps")
        strides = self._strides()
        steps = [dtype.size * strides.get(axis, 0) for axis in axes]
        sizes = padded([*axes.values()], AXES)
        return Call("map", (*sizes, to, *[0] * (AXES - len(steps)), *steps, *self.words))

    def _axes(self) -> dict[int, int]:
        """Return the size of each axis that has more than one element."""
        return {axis: size for axis, size in (*enumerate(self.shape), *self.more) if size != 1}

    def _strides(self) -> dict[int, int]:
        """Return the elements from one to the next along each of the tensor's axes."""
        return {axis: int(np.prod(self.shape[axis + 1 :], dtype=np.int64)) for axis in range(len(self.shape))}

    def _add(self, name: str, a: int = 0, b: int = 0, c: int = 0, *more: Operand) -> int:
        """Add a step unless it exists already; return its number."""
        step = (STEPS[name] | a << 8 | b << 16 | c << 24, *more)
        key = step[:1] + tuple(id(operand) if isinstance(operand, Constant) else operand for operand in more)
        if key not in self.numbers:
            self.numbers[key] = len(self.numbers)
            self.words += step
        return self.numbers[key]

    def _number(self, value: int) -> int:
        return self._add("integer", 0, 0, 0, word_of(value))

    def _step(self, part: Expr, args: Sequence[int]) -> int:
        op, dtype = part.op, part.dtype
        if op == "const":
            number = float(part.value) if dtype.is_float else int(part.value)
            _type(dtype)
            return self._add("real" if dtype.is_float else "integer", 0, 0, 0, word_of(number))
        if op == "axis":
            axes = [*self._axes()]
            if part.value not in axes:
                return self._number(0)
            return self._add("axis", axes.index(part.value) + AXES - len(axes))
        if op == "acc":
            assert self.acc is not None
            return self._load(self.acc, dtype, self._strides())
        if op == "reduce":
            stored = DType.FLOAT32 if dtype.is_float else DType.INT32
            return self._wrapped(dtype, self._load(self.sums[part], stored, self._strides()))
        if op == "load":
            return self._loaded(part)
        if op == "cast":
            return self._cast(part.args[0].dtype, dtype, args[0])
        if op in ("requantize", "quantize", "rescale_pair"):
            return self._quantized(part, args)
        if op == "factor":
            return args[0]
        if op in ("shifted", "shifted_tie", "is_near_tie", "high_product"):
            return self._shifted(part, args)
        of = part.args[-1].dtype if part.args else dtype
        if op in _ORDERS or op == "equal":
            return self._compared(op, of, args)
        return self._computed(op, dtype, args)

    def _computed(self, op: str, dtype: DType, args: Sequence[int]) -> int:
        _type(dtype)
        if op in _BOTH:
            suffix = "f" if dtype.is_float else "i"
            return self._wrapped(dtype, self._add(f"{_BOTH[op]}_{suffix}", *args))
        if op == "where":
            return self._add("where_f" if dtype.is_float else "where_i", *args)
        if dtype.is_float and op in _FLOATS:
            return self._add(_FLOATS[op], *args)
        if dtype.is_float and op == "neg":
            return self._add("sub_f", self._add("real", 0, 0, 0, word_of(-0.0)), args[0])
        if dtype is DType.INT32 and op in _INTEGERS:
            return self._add(_INTEGERS[op], *args)
        if dtype is DType.BOOL and op in ("and", "or"):
            return self._add(f"bit_{op}", *args)
        if dtype is DType.BOOL and op == "not":
            return self._add("equal_i", args[0], self._number(0))
        raise NoKernel(f"{op} of {dtype.label}")

    def _compared(self, op: str, of: DType, args: Sequence[int]) -> int:
        _type(of)
        suffix = "f" if of.is_float else "i"
        if op == "equal":
            return self._add(f"equal_{suffix}", *args)
        turned, or_equal = _ORDERS[op]
        less = self._add(f"less_{suffix}", *(args[::-1] if turned else args))
        return self._add("bit_or", less, self._add(f"equal_{suffix}", *args)) if or_equal else less

    def _wrapped(self, dtype: DType, number: int) -> int:
        if dtype.is_float or dtype is DType.INT32:
            return number
        return self._add("wrap", _type(dtype), number)

    def _cast(self, before: DType, dtype: DType, number: int) -> int:
        _type(before), _type(dtype)
        if dtype is DType.BOOL:
            zero = self._add("real", 0, 0, 0, 0) if before.is_float else self._number(0)
            is_zero = self._add("equal_f" if before.is_float else "equal_i", number, zero)
            return self._add("equal_i", is_zero, self._number(0))
        if dtype.is_float:
            return number if before.is_float else self._add("to_f", number)
        whole = self._add("to_i", number) if before.is_float else number
        (low, high), (least, most) = dtype.limits, before.limits if before is not DType.BOOL else (0, 1)
        is_held = not before.is_float and low <= least and most <= high
        return whole if is_held else self._wrapped(dtype, whole)

    def _quantized(self, part: Expr, args: Sequence[int]) -> int:
        if part.op == "requantize" and part.args[0].dtype is DType.INT32:
            how: Requantize = part.value
            return self._add("requantize", args[0], args[1], 0, *map(word_of, (how.zero_point, how.low, how.high)))
        if part.op == "quantize" and part.args[2].op == "const":
            low, high = part.value
            return self._add("quantize", args[0], args[1], 0, *map(word_of, (part.args[2].value, low, high)))
        if part.op == "rescale_pair" and all(arg.dtype is DType.INT8 for arg in part.args):
            pair: RescalePair = part.value
            numbers = (pair.left, pair.right, pair.offset, pair.shift, int(pair.even), pair.zero_point, pair.low,
                       pair.high)  # fmt: skip
            return self._add("rescale_pair", args[0], args[1], 0, *map(word_of, numbers))
        raise NoKernel(f"{part.op} of {part.args[0].dtype.label}")

    def _shifted(self, part: Expr, args: Sequence[int]) -> int:
        if part.op == "high_product":
            high, low = divmod(part.args[1].value, 2**15)
            rest = self._divided(self._add("mul_i", args[0], self._number(low)), 15)
            return self._divided(self._add("add_i", self._add("mul_i", args[0], self._number(high)), rest), 17)
        how: Shifted | NearTie = part.value
        total, size = args[0], self._number(1 << how.shift)
        step = self._divided(total, how.shift)
        if isinstance(how, NearTie):
            near = self._add("less_i", self._add("mod_i", total, size), self._number(how.window))
            if part.op == "is_near_tie":
                low, high = self._number(how.low), self._number(how.high + 1)
                inside = self._add("bit_and", self._add("less_i", low, step), self._add("less_i", step, high))
                return self._add("bit_and", near, inside)
            step = self._add("sub_i", step, self._add("bit_and", near, args[1]))
        elif how.even:
            odd = self._add("mod_i", step, self._number(2))
            half = self._add("add_i", total, self._number((1 << how.shift - 1) - 1))
            step = self._divided(self._add("add_i", half, odd), how.shift)
            step = self._add("add_i", step, self._number(how.zero_point))
        if how.low is None or how.high is None:
            return step
        return self._add("min_i", self._add("max_i", step, self._number(how.low)), self._number(how.high))

    def _divided(self, number: int, shift: int) -> int:
        """Return a number / 2^shift, rounded down."""
        return self._add("div_i", number, self._number(1 << shift))

    def _load(self, address: Address, dtype: DType, steps: Mapping[int, int]) -> int:
        along = [dtype.size * steps.get(axis, 0) for axis in self._axes()]
        return self._add("load", _type(dtype), 0, 0, address, *[0] * (AXES - len(along)), *along)

    def _loaded(self, load: Expr) -> int:
        value = self.node.inputs[load.value]
        kind, data = self.graph.types[value], self.graph.constants.get(value)
        if kind.dtype is DType.BOOL and data is not None:
            data = data.astype(np.uint8)
        index = flat_affine(load, kind.shape)
        first = 0 if index is None else index.first * kind.dtype.size
        at: Address = Value(value, first) if data is None else Constant(data, first)
        if index is not None:
            return self._load(at, kind.dtype, index.steps)
        total = self._number(0)
        for part, size in zip(load.args, kind.shape, strict=True):
            if size == 1:
                continue
            scaled = self._add("mul_i", total, self._number(size))
            total = self._add("add_i", scaled, part.fold(self._step, ("load", "reduce")))
        at = Value(value) if data is None else Constant(data)
        return self._add("look_up", _type(kind.dtype), total, 0, at, kind.count)


def calls_of(
    expr: Expr, node: Node, graph: Graph, acc: Address | None = None, first: int = 0
) -> tuple[tuple[Call, ...], int]:
    """Return the calls that compute a node's output from an expression, and the scratch bytes including the `first`.

    Its reductions are computed first, one after the other, in scratch.

    Raises:
        NoKernel: it has something that no kernel computes.
    """
    out = graph.types[node.outputs[0]]
    calls: list[Call] = []
    sums: dict[Expr, Address] = {}
    for part in expr.parts(("reduce",)):
        if part.op != "reduce" or part in sums:
            continue
        (body,) = part.args
        how: Reduction = part.value
        if any(inner.op in ("reduce", "acc") for inner in body.walk()):
            raise NoKernel("a reduction in a reduction")
        dtype = DType.FLOAT32 if part.dtype.is_float else DType.INT32
        if part.dtype.is_float and part.dtype is not dtype:
            raise NoKernel(f"a reduction of {part.dtype.label}")
        at = Scratch(round_up(first, 4))
        begin = const(first_of(how.kind, part.dtype), dtype)
        calls.append(Program(node, graph, out.shape).call(begin, at, dtype))
        program = Program(node, graph, out.shape, more=how.axes)
        calls.append(program.call(body, at, dtype, f"{_ENDS[how.kind]}_to"))
        sums[part], first = at, at.offset + dtype.size * out.count
    calls.append(Program(node, graph, out.shape, acc, sums).call(expr, Value(node.outputs[0]), out.dtype))
    return tuple(calls), first
