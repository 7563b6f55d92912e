"""Mutations of TFLite models: of the schema's tables by field, and of the flatbuffer's offsets."""

import copy
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

from tests.fuzzing.onnx_parts import NAMES, NUMBERS, REALS, SMALL

Mutation = Callable[[Any, random.Random], None]

OPTIONS = sorted(
    name
    for name in vars(schema)
    if name.endswith("OptionsT") and hasattr(schema.BuiltinOptions, name.removesuffix("T"))
)
OPERATORS = sorted(value for value in vars(schema.BuiltinOperator).values() if isinstance(value, int))


def number(rng: random.Random) -> int:
    """Draw an integer that a field of 32 bits can hold, mostly a plausible one."""
    return rng.choice(SMALL if rng.random() < 0.7 else [n for n in NUMBERS if abs(n) < 2**31])


def a_graph(model: Any, rng: random.Random) -> Any:
    """Choose a subgraph, mostly the first."""
    return model.subgraphs[0] if rng.random() < 0.8 else rng.choice(model.subgraphs)


def an_operator(model: Any, rng: random.Random) -> Any:
    """Choose an operator."""
    return rng.choice(a_graph(model, rng).operators)


def a_tensor(model: Any, rng: random.Random) -> Any:
    """Choose a tensor."""
    return rng.choice(a_graph(model, rng).tensors)


def change_item(items: Any, rng: random.Random, draw: Callable[[], Any]) -> list[Any]:
    """Return a list with an item changed, removed or added."""
    made = [] if items is None else list(items)
    roll = rng.random()
    if made and roll < 0.6:
        made[rng.randrange(len(made))] = draw()
    elif made and roll < 0.8:
        del made[rng.randrange(len(made)) :]
    else:
        made += [draw()] * rng.choice((1, 1, 2, 9))
    return made


def change_field(model: Any, rng: random.Random) -> None:
    """Change any field of any table."""
    owner = rng.choice(_tables(model))
    label = rng.choice(list(vars(owner)))
    value = getattr(owner, label)
    if isinstance(value, bool):
        value = not value
    elif isinstance(value, int):
        value = number(rng)
    elif isinstance(value, float):
        value = rng.choice(REALS)
    elif isinstance(value, bytes | str):
        value = rng.choice(NAMES)
    elif isinstance(value, list | np.ndarray):
        if len(value) and hasattr(value[0], "__dict__"):
            value = change_item(value, rng, lambda: copy.deepcopy(rng.choice(value)))
        else:
            value = change_item(value, rng, lambda: number(rng))
    elif rng.random() < 0.5:
        value = None
    setattr(owner, label, value)


def _tables(item: Any) -> list[Any]:
    """Return a table and all inside it."""
    found, queue = [], [item]
    while queue:
        one = queue.pop()
        if isinstance(one, list):
            queue += [inner for inner in one[:50] if isinstance(inner, list) or hasattr(inner, "__dict__")]
        elif hasattr(one, "__dict__"):
            found.append(one)
            queue += vars(one).values()
    return found


def change_operator(model: Any, rng: random.Random) -> None:
    """Make what a code stands for another operator, or let an operator have another code."""
    if rng.random() < 0.8:
        code = rng.choice(model.operatorCodes)
        code.builtinCode = rng.choice(OPERATORS)
        code.deprecatedBuiltinCode = min(code.builtinCode, 127)
        if rng.random() < 0.1:
            code.customCode = rng.choice(NAMES)
    else:
        an_operator(model, rng).opcodeIndex = number(rng)


def change_option(model: Any, rng: random.Random) -> None:
    """Change a field of an operator's options."""
    options = an_operator(model, rng).builtinOptions
    label = rng.choice(list(vars(options)))
    value = getattr(options, label)
    is_list = value is None or isinstance(value, list | np.ndarray)
    fresh: Any = change_item(value, rng, lambda: number(rng)) if is_list else number(rng)
    if isinstance(value, float):
        fresh = rng.choice(REALS)
    elif isinstance(value, bool):
        fresh = not value
    elif not is_list and rng.random() < 0.5:
        fresh = rng.randint(0, 6)
    setattr(options, label, fresh)


def change_options_type(model: Any, rng: random.Random) -> None:
    """Give an operator options of another kind, or none."""
    operator = an_operator(model, rng)
    name = rng.choice(OPTIONS)
    roll = rng.random()
    if roll < 0.4:
        operator.builtinOptions = getattr(schema, name)()
        operator.builtinOptionsType = getattr(schema.BuiltinOptions, name.removesuffix("T"))
    elif roll < 0.7:
        operator.builtinOptionsType = rng.choice((0, 1, 5, 50, 126, 255))
    else:
        operator.builtinOptions, operator.builtinOptionsType = None, 0


def change_indices(model: Any, rng: random.Random) -> None:
    """Let an operator or the graph read or write other tensors."""
    graph = a_graph(model, rng)
    owner = rng.choice([graph, *graph.operators, *graph.operators])
    label = rng.choice(("inputs", "outputs"))
    count = len(graph.tensors)
    choices = [*range(count), *range(count), -1, -2, count, 2**31 - 1, -(2**31)]
    setattr(owner, label, change_item(getattr(owner, label), rng, lambda: rng.choice(choices)))


def change_shape(model: Any, rng: random.Random) -> None:
    """Change a tensor's shape."""
    tensor = a_tensor(model, rng)
    tensor.shape = change_item(tensor.shape, rng, lambda: number(rng))
    if rng.random() < 0.1:
        tensor.shape = None
    if rng.random() < 0.1:
        tensor.shapeSignature = [-1] * len(tensor.shape or [])


def resize_everywhere(model: Any, rng: random.Random) -> None:
    """Replace one size by another in all tensors without data, so that more models stay valid."""
    tensors = [tensor for graph in model.subgraphs for tensor in graph.tensors]
    free = [tensor for tensor in tensors if not _data(model, tensor) and tensor.shape is not None]
    old = rng.choice(list(rng.choice(free).shape))
    new = rng.choice((0, 0, 1, 2, 3, 5, 9))
    for tensor in free:
        tensor.shape = [new if size == old else size for size in tensor.shape]


def _data(model: Any, tensor: Any) -> bool:
    buffer = model.buffers[tensor.buffer] if tensor.buffer < len(model.buffers) else None
    return buffer is not None and buffer.data is not None and len(buffer.data) > 0


def change_tensor_type(model: Any, rng: random.Random) -> None:
    """Change a tensor's type, or all of one type alike."""
    one, new = a_tensor(model, rng), rng.choice((*range(0, 20), 99))
    if rng.random() < 0.5:
        one.type = new
    else:
        old = one.type
        for tensor in (tensor for graph in model.subgraphs for tensor in graph.tensors):
            tensor.type = new if tensor.type == old else tensor.type


def change_quantization(model: Any, rng: random.Random) -> None:
    """Change a tensor's scales, zero points or their axis; give it some, or take them away."""
    tensor = a_tensor(model, rng)
    if tensor.quantization is None:
        tensor.quantization = schema.QuantizationParametersT()
        tensor.quantization.scale, tensor.quantization.zeroPoint = [0.1], [0]
    found, roll = tensor.quantization, rng.random()
    if roll < 0.35:
        scales = (0.1, 0.05, 1.0, 0.003, *REALS)
        found.scale = change_item(found.scale, rng, lambda: np.float32(rng.choice(scales)))
    elif roll < 0.65:
        points = (0, 3, -128, 127, 128, 255, -32768, 2**31, 2**62, -(2**63))
        found.zeroPoint = change_item(found.zeroPoint, rng, lambda: rng.choice(points))
    elif roll < 0.8:
        found.quantizedDimension = number(rng)
    elif roll < 0.9:
        tensor.quantization = None
    else:
        found.scale, found.zeroPoint = [0.01] * 4, [0] * 4


def change_buffer(model: Any, rng: random.Random) -> None:
    """Change values, length or place of a buffer, or which of them a tensor has."""
    roll = rng.random()
    if roll < 0.2:
        a_tensor(model, rng).buffer = rng.choice((*range(len(model.buffers) + 1), 2**31))
        return
    buffer = rng.choice(model.buffers)
    if roll < 0.3:
        buffer.offset, buffer.size = rng.choice((0, 2, 8, 2**20, 2**63)), rng.choice((0, 4, 2**20, 2**63))
        return
    data = bytearray() if buffer.data is None else bytearray(bytes(bytearray(buffer.data)))
    if data and roll < 0.7:
        for _ in range(rng.choice((1, 2, 8))):
            data[rng.randrange(len(data))] = rng.randrange(256)
    elif len(data) >= 4 and roll < 0.9:
        at = rng.randrange(len(data) // 4) * 4
        data[at : at + 4] = struct.pack("<i", number(rng))
    else:
        data = data[: rng.randrange(len(data) + 1)] + b"\1" * rng.choice((0, 1, 4))
    buffer.data = list(data)


def constant_or_input(model: Any, rng: random.Random) -> None:
    """Make a constant an input of the model."""
    graph = model.subgraphs[0]
    places = [n for n, tensor in enumerate(graph.tensors) if _data(model, tensor)]
    place = rng.choice(places)
    graph.tensors[place].buffer = 0
    graph.inputs = [*graph.inputs, place]


def repeat(model: Any, rng: random.Random) -> None:
    """Repeat, remove, swap or chain operators."""
    graph = a_graph(model, rng)
    operators, roll = graph.operators, rng.random()
    at = rng.randrange(len(operators))
    if roll < 0.25:
        del operators[at]
    elif roll < 0.4:
        other = rng.randrange(len(operators))
        operators[at], operators[other] = operators[other], operators[at]
    else:
        for _ in range(rng.choice((1, 1, 2, 30))):
            made = copy.deepcopy(operators[at])
            if roll > 0.6:  # each reads what the one before it wrote
                fresh = copy.deepcopy(graph.tensors[made.outputs[0]])
                graph.tensors.append(fresh)
                new = len(graph.tensors) - 1
                made.inputs = [operators[-1].outputs[0], *list(made.inputs)[1:]]
                made.outputs = [new, *list(made.outputs)[1:]]
                graph.outputs = [new]
            operators.append(made)


def add_subgraph(model: Any, rng: random.Random) -> None:
    """Add subgraphs and an operator that runs them: IF, WHILE, CALL, CALL_ONCE."""
    model.subgraphs += [copy.deepcopy(model.subgraphs[0]) for _ in range(rng.choice((1, 2)))]
    kind, options = rng.choice((("IF", "If"), ("WHILE", "While"), ("CALL", "Call"), ("CALL_ONCE", "CallOnce")))
    code = schema.OperatorCodeT()
    code.builtinCode = getattr(schema.BuiltinOperator, kind)
    code.deprecatedBuiltinCode = min(code.builtinCode, 127)
    model.operatorCodes.append(code)
    operator = an_operator(model, rng)
    operator.opcodeIndex = len(model.operatorCodes) - 1
    operator.builtinOptions = getattr(schema, f"{options}OptionsT")()
    operator.builtinOptionsType = getattr(schema.BuiltinOptions, f"{options}Options")
    for label in vars(operator.builtinOptions):
        setattr(operator.builtinOptions, label, rng.choice((0, 1, 2, -1, 99)))


def rename(model: Any, rng: random.Random) -> None:
    """Give a tensor a hostile name, or one that is taken."""
    names = [tensor.name for graph in model.subgraphs for tensor in graph.tensors]
    a_tensor(model, rng).name = rng.choice([*NAMES, *names])
    if rng.random() < 0.2:
        model.description = rng.choice(NAMES)


MUTATIONS: tuple[tuple[Mutation, int], ...] = (
    (change_field, 12), (change_operator, 6), (change_option, 16), (change_options_type, 4), (change_indices, 10),
    (change_shape, 8), (resize_everywhere, 6), (change_tensor_type, 7), (change_quantization, 12),
    (change_buffer, 10), (constant_or_input, 4), (repeat, 6), (add_subgraph, 2), (rename, 5),
)  # fmt: skip


def mutate(seed: bytes, rng: random.Random, folder: Path) -> bytes:
    """Return the file of a mutant of a model."""
    if rng.random() < 0.2:
        return _flipped(seed, rng)
    model = schema.ModelT.InitFromPackedBuf(seed)
    kinds, weights = zip(*MUTATIONS, strict=True)
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 5))):
        before = copy.deepcopy(model)
        try:
            rng.choices(kinds, weights)[0](model, rng)
            _packed(model)
        except (IndexError, ValueError, TypeError, AttributeError, struct.error, OverflowError, AssertionError):
            model = before  # there was nothing to change, or a flatbuffer can't hold it
        except (flatbuffers.builder.BuilderSizeError, flatbuffers.builder.IsNestedError):
            model = before
    data = _packed(model)
    return _flipped(data, rng) if rng.random() < 0.05 else data


def _packed(model: Any) -> bytes:
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def _flipped(data: bytes, rng: random.Random) -> bytes:
    """Damage offsets, lengths and numbers of the flatbuffer itself."""
    made = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        width, code = rng.choice(((4, "<I"), (4, "<I"), (2, "<H"), (1, "<B")))
        at = rng.randrange((len(made) - width) // width) * width
        value = struct.unpack_from(code, made, at)[0]
        values = (0, 1, 4, value + 4, value - 4, value + 1, value * 2, 2**31 - 1, 2**31, 2**32 - 1, rng.getrandbits(32))
        struct.pack_into(code, made, at, rng.choice(values) % 256**width)
    if rng.random() < 0.1:
        del made[rng.randrange(len(made)) :]
    return bytes(made)
