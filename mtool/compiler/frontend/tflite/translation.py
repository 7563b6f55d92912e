"""The ONNX graph under construction: tensors by their TFLite names, each operator as a few ONNX nodes.

A quantized operator becomes DequantizeLinear, the float operator, QuantizeLinear, as ONNX quantizers write it; the
passes turn that into integer arithmetic. Images are NHWC in the file and NCHW in ONNX: each image operator gets a
transposition before and behind it, which `simplify_layout` removes.
"""

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import numpy as np
import onnx
import tflite
from onnx import helper, numpy_helper

from mtool.base import plural
from mtool.base.frozen import frozen
from mtool.compiler.frontend.options import Pairs
from mtool.compiler.frontend.tflite.schema import Model, Operator, Tensor
from mtool.compiler.ir.types import Array
from mtool.compiler.operators.budget import Budget
from mtool.compiler.operators.epilogue import real_numbers
from mtool.compiler.operators.onnx_node import Names
from mtool.compiler.operators.problems import OWN, Unsupported, ValueNeeded

Key = Hashable
"""Identifies a variable."""

Operand = str | int | float | Sequence[int] | Array | np.generic


@frozen
class Variable:
    """A variable that outlives a call.

    input: its value from the last call, as an input of the network.
    tensor: its type.
    last: the last value written.
    first: its initial value; None: the model has none.
    key: its identity.
    is_written: whether an operator writes it.
    """

    input: str
    tensor: Tensor
    last: str
    first: Array | None
    key: Key
    is_written: bool = True


class Variables:
    """The variables of one model, in the order of their first reads."""

    def __init__(self) -> None:
        self._first: dict[Key, Array] = {}
        self._by_key: dict[Key, Variable] = {}  # without an input if they are written before they are read

    def begin(self, key: Key, value: Array) -> None:
        """Set a variable's initial value.

        Raises:
            Unsupported: it has been read or written already.
        """
        if key in self._by_key:
            raise Unsupported("it initializes a variable that has been used before")
        self._first[key] = value

    def read(self, key: Key, kind: Tensor, name: Callable[[], str]) -> str:
        """Return a variable's current value; `name` makes a name for the input with the last call's value.

        Raises:
            Unsupported: the variable is of another type or shape.
        """
        if key not in self._by_key:
            first = self._first.get(key)
            if first is not None and (first.dtype != kind.dtype or first.shape != kind.shape):
                declared = f"{kind.dtype}{list(kind.shape)}"
                raise Unsupported(f"its variable is {declared}, its initial value {first.dtype}{list(first.shape)}")
            source = name()
            self._by_key[key] = Variable(source, kind, source, first, key, is_written=False)
        _check_like(self._by_key[key].tensor, kind)
        return self._by_key[key].last

    def write(self, key: Key, kind: Tensor, value: str) -> None:
        """Set a variable's value.

        Raises:
            Unsupported: the variable is of another type or shape.
        """
        variable = self._by_key.get(key)
        if variable is None or not variable.input:
            variable = Variable("", kind, value, self._first.get(key), key)
        _check_like(variable.tensor, kind)
        self._by_key[key] = replace(variable, last=value, is_written=True)

    def close(self, afford: Callable[[int], None]) -> tuple[list[Variable], dict[str, Array]]:
        """Return the variables that are states, and by input the values of those that no operator writes.

        `afford` checks the number of bytes of each new constant.
        """
        states, fixed = [], {}
        for variable in self._by_key.values():
            if variable.input and variable.is_written:
                states.append(variable)
            elif variable.input and variable.first is not None:
                fixed[variable.input] = variable.first
            elif variable.input:
                afford(variable.tensor.dtype.itemsize * math.prod(variable.tensor.shape))
                fixed[variable.input] = np.full(variable.tensor.shape, variable.tensor.zero, variable.tensor.dtype)
        return states, fixed

    def crossing(self, name: Callable[[str], str]) -> list[Variable]:
        """Return all variables of a subgraph, which enclosing subgraphs read and write, too; `name` makes names."""
        variables = sorted(self._by_key.values(), key=lambda variable: not variable.input)
        return [variable if variable.input else replace(variable, input=name("variable")) for variable in variables]


def _check_like(tensor: Tensor, kind: Tensor) -> None:
    if (tensor.dtype, tensor.shape) != (kind.dtype, kind.shape):
        raise Unsupported(
            f"its variable has two types: {tensor.dtype}{list(tensor.shape)} and {kind.dtype}{list(kind.shape)}"
        )


OPSET = 21
NHWC_OF_NCHW = [0, 2, 3, 1]
NCHW_OF_NHWC = [0, 3, 1, 2]
GRIDS = ("int8", "uint8", "int16")  # the types of quantized activations


@frozen
class Network:
    """A model as ONNX: its tensors by name, its own states, and the states' initial values.

    crossing: a subgraph's variables that it shares with those around it; they are its last inputs and outputs.
    """

    proto: onnx.ModelProto
    tensors: Mapping[str, Tensor]
    states: Pairs = ()
    initial: Mapping[str, Array] = field(default_factory=dict)
    crossing: tuple[Variable, ...] = ()


def _none(number: int, _operands: Sequence[Tensor]) -> Network:
    raise Unsupported(f"it refers to subgraph {number}, but there are none")


class Translation(Names):
    """The nodes and constants of one model; `op` is the current operator.

    `at_once`: recurrent integer operators are one node each (ModelOptions).
    `tensors` are the model's; values and shapes that are determined later replace those in the file.
    """

    def __init__(self, model: Model, budget: Budget, *, is_body: bool = False, at_once: bool = False) -> None:
        super().__init__()
        self.model, self.budget, self.is_body, self.at_once = model, budget, is_body, at_once
        self.tensors = list(model.tensors)
        self.variables = Variables()
        self.handles: dict[int, Key] = {}  # resource variables, by the number of the tensor
        self.complex: dict[int, tuple[str, str]] = {}  # real and imaginary parts, by the number of the tensor
        self.dequantized: dict[int, int] = {}  # outputs of DEQUANTIZE to its constant inputs
        self._made_bytes = 0
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, Array] = {}
        self.infos: list[onnx.ValueInfoProto] = []
        self.op = model.operators[0] if model.operators else Operator("", "", (), (), {})
        self.subgraph: Callable[[int, Sequence[Tensor]], Network] = _none  # as ONNX, by number and operands
        self.names = [self.unique(tensor.name) for tensor in model.tensors]
        self._stored = frozenset(self.names)
        for name, tensor in zip(self.names, model.tensors, strict=True):
            if tensor.data is not None:
                self.constants[name] = tensor.data

    def other(self, number: int) -> Model:
        """Return a further subgraph of the file.

        Raises:
            Unsupported: there is no such subgraph.
        """
        if not 1 <= number <= len(self.model.others):
            raise Unsupported(f"it refers to subgraph {number}, but there are {1 + len(self.model.others)}")
        return self.model.others[number - 1]

    # The current operator's inputs.

    def has(self, index: int) -> bool:
        """Whether input `index` is given."""
        return index < len(self.op.inputs) and self.op.inputs[index] >= 0

    def tensor(self, index: int) -> Tensor:
        """Return input `index`.

        Raises:
            Unsupported: it is not given, or not supported.
        """
        if not self.has(index):
            raise Unsupported(f"its input {index} is not given")
        return self._usable(self.op.inputs[index], "input")

    def result(self, index: int = 0) -> Tensor:
        """Return output `index`.

        Raises:
            Unsupported: it does not exist, or is not supported.
        """
        if index >= len(self.op.outputs):
            raise Unsupported(f"it has no output {index}")
        return self._usable(self.op.outputs[index], "output")

    def _usable(self, number: int, role: str) -> Tensor:
        """Return a supported tensor; if it has at most 16 bits, its zero points fit its type."""
        tensor = self.tensors[number]
        if tensor.problem:
            raise Unsupported(f"its {role} {tensor.name!r} has {tensor.problem}")
        if tensor.block and self.op.kind != "FULLY_CONNECTED":
            raise Unsupported(f"its {role} {tensor.name!r} has scales per block")
        if tensor.is_quantized and tensor.dtype.name in GRIDS:
            limits = np.iinfo(tensor.dtype)
            if (tensor.zero_point < limits.min).any() or (tensor.zero_point > limits.max).any():
                point = int(tensor.zero_point.reshape(-1)[0])
                raise Unsupported(f"the zero point {point} is out of range for {tensor.dtype}")
        return tensor

    def check_types(self, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        """Check the types of all inputs and outputs.

        Raises:
            Unsupported: one is different.
        """
        self.check_counts(len(inputs), len(outputs))
        for role, tensors, dtypes in (
            ("input", [self.tensor(index) for index in range(len(inputs))], inputs),
            ("output", [self.result(index) for index in range(len(outputs))], outputs),
        ):
            for index, (tensor, dtype) in enumerate(zip(tensors, dtypes, strict=True)):
                if tensor.dtype.name != dtype:
                    raise Unsupported(f"its {role} {index} is {tensor.dtype}; expected {dtype}")

    def check_counts(self, inputs: int, outputs: int) -> None:
        """Check the numbers of inputs and outputs.

        Raises:
            Unsupported: they are different.
        """
        if len(self.op.inputs) != inputs or len(self.op.outputs) != outputs:
            counts = f"{plural.count(len(self.op.inputs), 'input')} and {plural.count(len(self.op.outputs), 'output')}"
            raise Unsupported(f"it has {counts}; expected {inputs} and {outputs}")

    def shape(self, index: int, rank: int | None = None) -> tuple[int, ...]:
        """Return the shape of input `index`.

        Raises:
            Unsupported: it does not have `rank` dimensions.
        """
        shape = self.tensor(index).shape
        if rank is not None and len(shape) != rank:
            raise Unsupported(f"its input {index} has {plural.count(len(shape), 'dimension')}; expected {rank}")
        return shape

    def data(self, index: int, role: str) -> Array:
        """Return the stored value of a constant input.

        Raises:
            ValueNeeded: it is not a constant.
        """
        self.tensor(index)
        data = self.value(self.op.inputs[index])
        if data is None:
            raise ValueNeeded(
                self.names[self.op.inputs[index]], role, text=f"its input {index} ({role}) is not a constant"
            )
        return data

    def value(self, number: int) -> Array | None:
        """Return the value of a constant tensor, or one dequantized from a constant; None: it is not a constant."""
        if number not in self.dequantized:
            return self.tensors[number].data
        source = self.tensors[self.dequantized[number]]
        assert source.data is not None
        self.afford(4 * source.data.size)
        return real_numbers(source.data, source.scale, source.zero_point, source.axis, source.block)

    def weights(self, index: int) -> Tensor:
        """Return a constant input: if a DEQUANTIZE made it, the integers before that."""
        tensor = self.tensor(index)
        number = self.dequantized.get(self.op.inputs[index])
        return tensor if number is None else self.tensors[number]

    def numbers(self, index: int, role: str) -> list[int]:
        """Return a constant input as a list of integers."""
        return [int(number) for number in np.reshape(self.data(index, role), -1)]

    def stored(self, index: int) -> str:
        """Return input `index` as stored."""
        self.tensor(index)
        return self.names[self.op.inputs[index]]

    def real(self, index: int) -> str:
        """Return input `index` as real numbers: dequantized, and float16 as float32.

        Raises:
            Unsupported: it has a quantized type, but no scale; LiteRT's kernels then compute with a scale of 0.
        """
        tensor, name = self.tensor(index), self.stored(index)
        if tensor.dtype in (np.int8, np.uint8, np.int16) and not tensor.is_quantized:
            raise Unsupported(f"its input {index} is {tensor.dtype} without a scale")
        if tensor.is_quantized:
            return self.dequantize(name, tensor.dtype, tensor.scale, tensor.zero_point, tensor.axis)
        if tensor.dtype == np.float16 and self.result().dtype == np.float32:
            return self.cast(name, np.float32)
        return name

    def image(self, index: int) -> str:
        """Return input `index`, an image, as NCHW real numbers."""
        self.shape(index, 4)
        return self("Transpose", self.real(index), perm=NCHW_OF_NHWC)

    def fix(self, number: int, data: Array) -> None:
        """Replace a tensor by a constant."""
        tensor = self.tensors[number]
        shape = data.shape if tensor.allows(data.shape) else tensor.shape
        self.tensors[number] = replace(tensor, data=data, shape=shape)
        self.constants[self.names[number]] = data
        self._made_bytes += data.nbytes
        self.afford(0)

    # Its outputs.

    def constant(self, stem: str, data: Any, dtype: Any = None) -> str:
        """Add a constant and return its name."""
        name = self.unique(f"{self.names[self.op.outputs[0]]}/{stem}")
        self.constants[name] = np.asarray(data, dtype)
        self._made_bytes += self.constants[name].nbytes
        self.afford(0)
        return name

    def afford(self, count: int) -> None:
        """Check the number of bytes of a new constant against the budget.

        Raises:
            ModelError: it exceeds the budget.
        """
        self.budget.afford("constants", self._made_bytes + count, self.op.name)

    def whole(self, stem: str, numbers: Iterable[int]) -> str:
        """Add a constant int64 vector and return its name."""
        return self.constant(stem, list(numbers), np.int64)

    def __call__(self, kind: str, *operands: Operand, **attrs: Any) -> str:
        """Append a node with one output and return that; otherwise as `several`."""
        return self.several(kind, 1, *operands, **attrs)[0]

    def several(self, kind: str, count: int, *operands: Operand, **attrs: Any) -> list[str]:
        """Append a node of ONNX or of mtool's own domain with `count` outputs, and return them.

        An operand is a value's name or a constant: an int becomes int32, a float float32, a list int64; a NumPy value
        keeps its type. An attribute `to` is a NumPy type.
        """
        outputs = [self.unique(f"{self.names[self.op.outputs[0]]}/{kind}") for _ in range(count)]
        inputs = [operand if isinstance(operand, str) else self._operand(operand) for operand in operands]
        if kind == "Reshape":  # 0 is a size of 0, not a copy of the input's size
            attrs = {"allowzero": 1, **attrs}
        if "to" in attrs:
            attrs["to"] = helper.np_dtype_to_tensor_dtype(np.dtype(attrs["to"]))
        domain = "" if onnx.defs.has(kind) else OWN
        self.nodes.append(helper.make_node(kind, inputs, outputs, name=self.op.name, domain=domain, **attrs))
        return outputs

    def _operand(self, data: Any) -> str:
        is_typed = isinstance(data, np.ndarray | np.generic)
        kinds = {int: np.int32, float: np.float32}
        return self.constant("operand", data, None if is_typed else kinds.get(type(data), np.int64))

    def dequantize(self, name: str, dtype: Any, scale: Array, zero_point: Array, axis: int = 0) -> str:
        """Append a DequantizeLinear, per tensor or with several scales along `axis`."""
        along = scale.size > 1
        scales = self.constant("scale", scale if along else scale[0], np.float32)
        points = self.constant("zero_point", zero_point if along else zero_point.reshape(-1)[0], dtype)
        return self("DequantizeLinear", name, scales, points, axis=axis if along else 0)

    def quantize(self, name: str, tensor: Tensor) -> str:
        """Append a QuantizeLinear with a tensor's scale and zero point.

        Raises:
            Unsupported: the tensor is not quantized in a supported way.
        """
        if tensor.dtype.name not in GRIDS or tensor.scale.size != 1:
            raise Unsupported(
                f"its output {tensor.name!r} is {tensor.dtype} with {plural.count(tensor.scale.size, 'scale')}"
            )
        if tensor.scale[0] < np.finfo(np.float32).tiny:
            raise Unsupported(
                f"the scale of its output {tensor.name!r}, {tensor.scale[0]:.3g}, is too small for float32"
            )
        return self("QuantizeLinear", name, tensor.scale[0], tensor.zero_point.reshape(-1)[0].astype(tensor.dtype))

    def cast(self, value: str, dtype: Any) -> str:
        """Append a Cast to a NumPy type."""
        return self("Cast", value, to=dtype)

    @property
    def activation(self) -> int:
        """The current operator's fused activation."""
        return int(self.op.option("FusedActivationFunction"))

    def activated(self, value: str, code: int | None = None) -> str:
        """Apply the fused activation, or another one.

        Raises:
            Unsupported: the activation is not supported.
        """
        kinds = tflite.ActivationFunctionType
        code = self.activation if code is None else code
        if code == kinds.NONE:
            return value
        if code == kinds.RELU:
            return self("Relu", value)
        if code in (kinds.RELU_N1_TO_1, kinds.RELU6):
            return self("Clip", value, *((-1.0, 1.0) if code == kinds.RELU_N1_TO_1 else (0.0, 6.0)))
        if code == kinds.TANH:
            raise Unsupported("its fused activation is TANH, which LiteRT's kernels ignore")
        raise Unsupported(f"its fused activation number {code} is not supported")

    def put(self, value: str, index: int = 0) -> None:
        """Set output `index` to `value`, unchanged."""
        name = self.names[self.op.outputs[index]]
        outputs = list(self.nodes[-1].output) if self.nodes else []
        if value in outputs and value not in self._stored:
            self.nodes[-1].output[outputs.index(value)] = name
            self._names.discard(value)
            self._numbers.clear()
        else:
            self.nodes.append(helper.make_node("Identity", [value], [name], name=self.op.name))

    def store(self, value: str, index: int = 0) -> None:
        """Set output `index` to the real numbers of `value`, quantized if the output is."""
        tensor = self.result(index)
        if tensor.is_quantized:
            value = self.quantize(value, tensor)
        elif tensor.dtype == np.float32 and self.op.kind != "DEQUANTIZE":
            first = self.tensors[self.op.inputs[0]] if self.has(0) else tensor
            if first.is_quantized and first.data is None:
                problem = f"its output {tensor.name!r} is {tensor.dtype}"
                raise Unsupported(f"{problem}, but its input {first.name!r} is quantized")
        elif tensor.dtype == np.float16:
            value = self.cast(value, np.float16)
        self.put(value, index)

    def store_image(self, value: str, rank: int = 4) -> None:
        """Set the output to a channels-first image of real numbers."""
        self.store(self("Transpose", value, perm=[0, *range(2, rank), 1]))

    def same_grid(self, *operands: int) -> bool:
        """Whether these inputs and all outputs have the same type and quantization."""
        tensors = [*(self.tensor(index) for index in operands), *(self.result(n) for n in range(len(self.op.outputs)))]
        first = tensors[0]
        return all(
            tensor.dtype == first.dtype
            and np.array_equal(tensor.scale, first.scale)
            and np.array_equal(tensor.zero_point, first.zero_point)
            for tensor in tensors
        )

    def move(self, build: Callable[..., str], *operands: int) -> None:
        """Set the output to `build` of inputs: the stored values if all quantizations agree, else real numbers."""
        if self.same_grid(*operands):
            self.put(build(*(self.stored(index) for index in operands)))
        else:
            self.store(build(*(self.real(index) for index in operands)))

    def check_grid(self, *operands: int) -> None:
        """Check that no requantization is needed.

        Raises:
            Unsupported: these inputs and the outputs have different quantizations.
        """
        if not self.same_grid(*operands):
            raise Unsupported("its inputs and its outputs have different quantizations")

    def filled(self, shape: Sequence[int], value: float) -> Operand:
        """Return a tensor filled with a number, of the output's type."""
        scalar = np.asarray(value, self.result().dtype)
        return self("Expand", scalar, shape) if len(shape) else scalar

    # The result.

    def network(self, title: str) -> Network:
        """Return the ONNX model."""

        def info(name: str, tensor: Tensor) -> onnx.ValueInfoProto:
            return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(tensor.dtype), tensor.shape)

        inputs = [number for number in dict.fromkeys(self.model.inputs) if self.tensors[number].data is None]
        if self.is_body:
            variables = self.variables.crossing(self.unique)
        else:
            variables, fixed = self.variables.close(self.afford)
            self.constants |= fixed
        used_names = {self.names[number] for number in (*inputs, *self.model.outputs)} | {*self.constants}
        states, tensors = [], dict(zip(self.names, self.tensors, strict=True))
        for state in variables:
            tensors[state.input], last = state.tensor, state.last
            if last in used_names:
                last = self.unique(f"{state.input}/next")
                self.nodes.append(helper.make_node("Identity", [state.last], [last], name=last))
            used_names.add(last)
            states.append((last, state.input))
        put = [info(self.names[number], self.tensors[number]) for number in inputs]
        put += [info(state.input, state.tensor) for state in variables]
        outputs = [info(self.names[number], self.tensors[number]) for number in self.model.outputs]
        outputs += [info(last, state.tensor) for (last, _), state in zip(states, variables, strict=True)]
        read = {value for node in self.nodes for value in node.input} | {value.name for value in outputs}
        used = {name: data for name, data in self.constants.items() if name in read}
        self.budget.afford("constants", sum(data.nbytes for data in used.values()), f"the constants of {title}")
        initialisers = [numpy_helper.from_array(np.ascontiguousarray(d).reshape(d.shape), n) for n, d in used.items()]
        graph = helper.make_graph(self.nodes, title, put, outputs, initialisers, value_info=self.infos)
        proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
        first = {state.input: state.first for state in variables if state.first is not None}
        crossing = tuple(replace(variable, last=last) for variable, (last, _) in zip(variables, states, strict=True))
        return Network(proto, tensors, tuple(states), first, crossing if self.is_body else ())


class State:
    """A value that is kept between calls; `name` is its current value, which `put` replaces.

    `stem` gives the name of the input with its value from the last call.
    """

    def __init__(self, t: Translation, key: Key, tensor: Tensor, stem: Callable[[], str]) -> None:
        self.key, self.tensor, self._variables = key, tensor, t.variables
        self.name = t.variables.read(key, tensor, stem)

    def put(self, value: str) -> None:
        """Set its next value."""
        self._variables.write(self.key, self.tensor, value)


Translate = Callable[[Translation], None]
"""Appends the nodes of the current operator."""
