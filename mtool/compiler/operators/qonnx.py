"""QONNX: floats on a grid of few bits (Quant, BipolarQuant, Trunc), as Brevitas exports them.

Each maps floats to floats: `(round(clamp(x / scale + zero_point)) - zero_point) * scale`. With constant parameters, one
scale (for constants also one per channel) and at most 16 bits, this becomes an integer and a DequantizeLinear, so that
kernels compute with the integers. The floats are the same.

Source: the package qonnx 1.0, qonnx.custom_op.general (intquant.py, bipolar_quant.py, trunc.py).
"""

import math
from collections.abc import Callable, Mapping

import numpy as np
from onnx import helper

from mtool.base import plural
from mtool.base.frozen import frozen
from mtool.compiler.ir.types import Array
from mtool.compiler.operators.onnx_node import Canonical, OnnxNode
from mtool.compiler.operators.operator import Operator
from mtool.compiler.operators.problems import Unsupported

DOMAINS = ("qonnx.custom_op.general", "onnx.brevitas", "finn.custom_op.general")
"""QONNX's domain, and those that older versions of Brevitas and FINN write."""

Rounding = Callable[[OnnxNode, str], str]


def _by(op: str) -> Rounding:
    return lambda write, x: write(op, x)


def _of_magnitudes(rounded: Rounding) -> Rounding:
    return lambda write, x: write("Mul", write("Sign", x), rounded(write, write("Abs", x)))


NEAREST = _by("Round")
ROUNDINGS: Mapping[str, Rounding] = {
    "ROUND": NEAREST,
    "HALF_EVEN": NEAREST,
    "CEIL": _by("Ceil"),
    "FLOOR": _by("Floor"),
    "UP": _of_magnitudes(_by("Ceil")),
    "DOWN": _of_magnitudes(_by("Floor")),
    "HALF_UP": _of_magnitudes(lambda write, x: write("Floor", write("Add", x, 0.5))),
    "HALF_DOWN": _of_magnitudes(lambda write, x: write("Ceil", write("Sub", x, 0.5))),
}
"""The modes of `rounding_mode` as ONNX nodes."""


def _quant(write: OnnxNode) -> None:
    """Quant, IntQuant (x, scale, zero_point, bit_width)."""
    x, scale, point, width = _inputs(write, 4)
    signed, narrow = (_flag(write, name) for name in ("signed", "narrow"))
    rounding, bits = _rounding(write, "ROUND"), _bits(write, width, "bit_width")
    if signed and bits == 1:
        _set_output(write, _signs(write, _steps(write, x, scale, point)), scale, point, (-1, 1))
        return
    ends = _ends(bits, signed=signed, narrow=narrow)
    grid = None if x in write.state.constants else _Grid.of(write, x, scale, point, ends)
    if grid is None or rounding is not NEAREST or grid.point.any():
        steps = write("Clip", _steps(write, x, scale, point), *(np.float32(end) for end in ends))
        _set_output(write, rounding(write, steps), scale, point, ends)
        return
    if ends != grid.limits:
        x = write("Clip", x, *(np.float32(end) * grid.scale for end in ends))
    grid.set_output(write, write("QuantizeLinear", x, grid.scale, grid.point))


def _bipolar(write: OnnxNode) -> None:
    """BipolarQuant (x, scale): the signs, that of 0 is positive."""
    x, scale = _inputs(write, 2)
    _set_output(write, _signs(write, x), scale, write.constant(0), (-1, 1))


def _trunc(write: OnnxNode) -> None:
    """Trunc: drop the low bits of numbers on a grid.

    Version 1 (x, scale, zero_point, input_bit_width, output_bit_width) keeps the scale and does not clamp. Version 2
    has the input output_scale before the last.
    """
    rounding = _rounding(write, "FLOOR")
    x, scale, point, width, *others = _inputs(write, 6 if len(write.inputs) > 5 else 5)
    numbers = write("Round", _steps(write, x, scale, point))
    bits = _bits(write, others[-1], "output_bit_width")
    if len(others) == 1:
        divisor = np.float32(2.0 ** (_bits(write, width, "input_bit_width") - bits))
        _set_output(write, rounding(write, write("Div", numbers, divisor)), scale, point, None)
        return
    ends = _ends(bits, signed=_flag(write, "signed", 1), narrow=_flag(write, "narrow", 0))
    old, new = (_positive(write, name, role) for name, role in ((scale, "scale"), (others[0], "output_scale")))
    divisors = np.exp2(np.round(np.log2(new / old)))
    numbers = write("Clip", write("Div", numbers, divisors), *(np.float32(end) for end in ends))
    _set_output(write, rounding(write, numbers), others[0], write("Div", point, divisors), ends)


@frozen
class _Grid:
    """A grid whose numbers are stored as integers of the zero points' type; several scales lie along `axis`.

    block: the size of `axis` if it is the only dimension along which the scales do not differ (weights by groups).
    """

    scale: Array
    point: Array
    axis: int | None
    block: int = 0

    @classmethod
    def of(cls, write: OnnxNode, value: str, scale: str, point: str, ends: tuple[int, int] | None) -> "_Grid | None":
        """Return the grid of a value of numbers in a range; None: it is not of such integers."""
        constants, shape = write.state.constants, write.kind(value).shape
        if scale not in constants or point not in constants or ends is None:
            return None
        scales, points = constants[scale], constants[point]
        types = (np.int8, np.uint8, np.int16, np.uint16)
        fitting = [dtype for dtype in types if np.iinfo(dtype).min <= ends[0] and ends[1] <= np.iinfo(dtype).max]
        along = [len(shape) - scales.ndim + dim for dim, size in enumerate(scales.shape) if size > 1]
        is_vector = len(along) == 1 and along[0] >= 0 and scales.size == shape[along[0]]
        shared = [dim for dim, size in enumerate(shape) if dim not in along]
        by_groups = len(along) > 1 and len(shared) == 1 and scales.size * shape[shared[0]] == math.prod(shape)
        fits = scales.size == 1 or ((is_vector or by_groups) and value in constants)
        if not fitting or scales.dtype != np.float32 or not fits:
            return None
        stored = points.astype(fitting[0])
        if (points.size > 1 and points.shape != scales.shape) or (stored != points).any():
            return None
        if scales.size == 1:
            return cls(scales.reshape(()), stored.reshape(()), None)
        if by_groups:
            return cls(scales, np.broadcast_to(stored, scales.shape).copy(), shared[0], shape[shared[0]])
        return cls(scales.reshape(-1), np.broadcast_to(stored.reshape(-1), scales.size).copy(), along[0])

    @property
    def limits(self) -> tuple[int, int]:
        """The range of the stored type."""
        limits = np.iinfo(self.point.dtype)
        return int(limits.min), int(limits.max)

    def set_output(self, write: OnnxNode, integers: str) -> None:
        """Set the output to integers, as real numbers."""
        parameters = (write.constant(data, data.dtype) for data in (self.scale, self.point))
        blocks = {"block_size": self.block} if self.block else {}
        write.write("DequantizeLinear", [integers, *parameters], write.outputs, axis=self.axis, **blocks)


def _set_output(write: OnnxNode, numbers: str, scale: str, point: str, ends: tuple[int, int] | None) -> None:
    """Set the output to whole numbers in a range, less the zero point and times the scale."""
    grid = _Grid.of(write, write.inputs[0], scale, point, ends)
    if grid is not None:
        code = helper.np_dtype_to_tensor_dtype(grid.point.dtype)
        grid.set_output(write, write("Cast", numbers, to=code))
        return
    write.set_output(write("Mul", write("Sub", numbers, point), scale))


def _steps(write: OnnxNode, x: str, scale: str, point: str) -> str:
    """Return x / scale + point."""
    steps, zero = write("Div", x, scale), write.state.constants.get(point)
    return steps if zero is not None and not zero.any() and zero.size == 1 else write("Add", steps, point)


def _signs(write: OnnxNode, x: str) -> str:
    return write("Where", write("GreaterOrEqual", x, 0), np.float32(1), np.float32(-1))


def _inputs(write: OnnxNode, count: int) -> list[str]:
    """Return the inputs, constant integers as floats; the scale, input 1, is checked if it is a constant."""
    if len(write.inputs) != count or not all(write.inputs):
        raise Unsupported(f"it has {plural.count(sum(map(bool, write.inputs)), 'input')}; expected {count}")
    if write.inputs[1] in write.state.constants:
        _positive(write, write.inputs[1], "scale")
    constants = write.state.constants
    whole = {name for name in write.inputs if name in constants and constants[name].dtype.kind in "iu"}
    return [write.constant(constants[name]) if name in whole else name for name in write.inputs]


def _positive(write: OnnxNode, name: str, role: str) -> Array:
    data = write.state.value_of(name, role)
    if not (np.isfinite(data) & (data > 0)).all():
        raise Unsupported(f"its {role} has numbers that are not positive")
    return data


def _bits(write: OnnxNode, name: str, role: str) -> int:
    """Return a bit width."""
    width = write.state.value_of(name, role)
    if width.size != 1 or not 1 <= width.item() <= 32 or width.item() != np.rint(width.item()):
        text = f"{width.item():g}" if width.size == 1 else f"of shape {list(width.shape)}"
        raise Unsupported(f"its {role} is {text}; expected one whole number from 1 to 32")
    return int(width.item())


def _ends(bits: int, *, signed: bool, narrow: bool) -> tuple[int, int]:
    """Return the lowest and the highest integer of a bit width; a narrow range has one less."""
    if signed:
        return int(narrow) - (1 << (bits - 1)), (1 << (bits - 1)) - 1
    return 0, (1 << bits) - 1 - int(narrow)


def _flag(write: OnnxNode, name: str, default: int | None = None) -> bool:
    """Return an attribute; without a default, the node has to have it."""
    value = write.attrs.get(name, default)
    if value not in (0, 1):
        raise Unsupported(f"its attribute {name} is {value!r}; expected 0 or 1")
    return bool(value)


def _rounding(write: OnnxNode, default: str) -> Rounding:
    mode = write.word("rounding_mode", default).upper()
    if mode not in ROUNDINGS:
        raise Unsupported(f"its rounding_mode is {mode!r}; expected one of {', '.join(ROUNDINGS)}")
    return ROUNDINGS[mode]


_EXPANDED: Mapping[str, Canonical] = {"Quant": _quant, "IntQuant": _quant, "BipolarQuant": _bipolar, "Trunc": _trunc}
OPERATORS = tuple(
    Operator(name, domain=domain, cases=None, expand=expand) for domain in DOMAINS for name, expand in _EXPANDED.items()
)
