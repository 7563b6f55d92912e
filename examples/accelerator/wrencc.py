"""The Wren's compiler: two JSON files of a region to a model binary. It uses nothing of mtool except these files.

wrencc.py REGION.nodes.json REGION.constants.json -o REGION.bin [--report REGION.report.json]

The binary, little-endian, 32-bit words:
    magic "WREN", version, commands, inputs, outputs, bytes of the binary
    for each input, then for each output: its address in the Wren's memory, its bytes
    commands of 32 words each
    constants
A command's words are listed in driver/wren_device.h. LOAD brings constants into the Wren's memory.
"""

import argparse
import base64
import json
import math
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MEMORY_BYTES = 131072
COMMAND_WORDS = 32
COMMAND_BYTES = 4 * COMMAND_WORDS
LOAD, CONV, DEPTHWISE, AVERAGE, MAXIMUM, ADD, TABLE, CLIP, SOFTMAX, MOVE = range(1, 11)
REAL, TWICE, AWAY = 0, 1, 3  # 2 is once, which no operator of TFLite needs
INT8, FLOAT16 = 0, 1
SIZES = {"int8": 1, "float16": 2, "int32": 4}

Node = dict[str, Any]
Tensor = dict[str, Any]


class Refused(Exception):
    """A node that the Wren can't compute: the message begins with its name."""


def single(value: float) -> float:
    """Return the float32 that is nearest."""
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


def bits(value: float) -> int:
    """Return a float32 as its bits."""
    return int(struct.unpack("<I", struct.pack("<f", value))[0])


def multiplier(scale: float) -> tuple[int, int]:
    """Return a multiplier of 31 bits behind the point and an exponent of two, as TFLite has them."""
    fraction, exponent = math.frexp(scale)
    whole = math.floor(fraction * 2**31 + 0.5)
    if whole == 2**31:
        whole, exponent = 2**30, exponent + 1
    return (0, 0) if exponent < -31 else (2**31 - 1, 30) if exponent > 30 else (whole, exponent)


@dataclass(eq=False)
class Block:
    """A piece of the Wren's memory, from one step to another; its address is found last."""

    size: int
    first: int
    last: int
    address: int = -1


@dataclass
class Step:
    """A command: words that are numbers, or addresses of blocks with what is added to them."""

    words: list[int | tuple[Block, int]]


@dataclass
class Program:
    """What grows while the nodes are compiled."""

    blocks: list[Block] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    constants: bytearray = field(default_factory=bytearray)
    cycles: int = 0


class Compiler:
    """Compile the nodes of one region."""

    def __init__(self, nodes: dict[str, Any], constants: dict[str, Any]) -> None:
        for one in (nodes, constants):
            if one.get("schema") != {"name": "mtool-region", "version": 1}:
                raise SystemExit(f"wrencc: error: schema {one.get('schema')}; this compiler reads mtool-region 1")
        self.nodes, self.tensors, self.data = nodes["nodes"], nodes["tensors"], constants["constants"]
        self.inputs, self.outputs = nodes["inputs"], nodes["outputs"]
        self.is_tflite = nodes["rounding"] == "tflite"
        self.program = Program()
        self.at = {number: self._block(number) for number, one in enumerate(self.tensors) if one["constant"] is None}

    def _block(self, number: int) -> Block:
        """Return the memory of a variable tensor, from the node that makes it to the last that reads it."""
        made = [place for place, node in enumerate(self.nodes) if number in node["outputs"]]
        read = [place for place, node in enumerate(self.nodes) if number in node["inputs"]]
        last = len(self.nodes) if number in self.outputs else max(read, default=0)
        block = Block(self.size_of(number), made[0] if made else 0, last)
        self.program.blocks.append(block)
        return block

    def size_of(self, number: int) -> int:
        tensor = self.tensors[number]
        if tensor["dtype"] not in SIZES:
            raise Refused(f"{tensor['name']}: the Wren has no {tensor['dtype']}")
        return math.prod(tensor["shape"]) * SIZES[tensor["dtype"]]

    def run(self) -> bytes:
        kinds = {"Conv": self.convolution, "Gemm": self.dense, "MatMul": self.dense, "Pool": self.pool,
                 "Add": self.add, "Relu": self.relu, "Softmax": self.softmax, "Transpose": self.transpose,
                 **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze"), self.reshape)}  # fmt: skip
        for place, node in enumerate(self.nodes):
            if node["op"] not in kinds:
                raise Refused(f"{node['name']}: the Wren has no {node['op']}")
            kinds[node["op"]](place, node)
        self._place()
        return self._binary()

    # The nodes

    def convolution(self, place: int, node: Node) -> None:
        attrs = node["attributes"]
        x, weights, y = self._operand(node, 0), self._operand(node, 1), self._result(node)
        outer, inner, height, width = weights["shape"]
        batch, rows, columns, channels = x["shape"]
        is_depthwise = attrs["group"] > 1 or (channels == 1 and outer == 1)
        if is_depthwise and (inner != 1 or outer != channels):
            raise Refused(f"{node['name']}: {attrs['group']} groups of channels")
        raw, size = self._raw(weights), SIZES[weights["dtype"]]
        taps = [(h, w) for h in range(height) for w in range(width)]
        if is_depthwise:  # height, width, channel
            order = [(c * height + h) * width + w for h, w in taps for c in range(outer)]
        else:  # output channel, height, width, input channel
            order = [
                ((o * inner + i) * height + h) * width + w for o in range(outer) for h, w in taps for i in range(inner)
            ]
        packed = b"".join(raw[size * one : size * one + size] for one in order)
        words = self._weighted(place, node, packed, outer)
        pads = attrs["pads"]
        shape = [rows, columns, channels, *y["shape"][1:], height, width, *attrs["strides"], pads[0], pads[1]]
        self._commands(node, DEPTHWISE if is_depthwise else CONV, words, [*shape, *attrs["dilations"]], batch)
        self.program.cycles += int(node["macs"]) // 16

    def dense(self, place: int, node: Node) -> None:
        x, weights, y = self._operand(node, 0), self._operand(node, 1), self._result(node)
        raw, size = self._raw(weights), SIZES[weights["dtype"]]
        transposed = bool(node["attributes"].get("transB", 0))
        outer, inner = weights["shape"] if transposed else reversed(weights["shape"])
        order = range(outer * inner) if transposed else [k * outer + o for o in range(outer) for k in range(inner)]
        packed = b"".join(raw[size * one : size * one + size] for one in order)
        words = self._weighted(place, node, packed, outer)
        rows = math.prod(x["shape"]) // inner
        if math.prod(y["shape"]) != rows * outer:
            raise Refused(f"{node['name']}: {x['shape']} by {weights['shape']} is not {y['shape']}")
        self._commands(node, CONV, words, [rows, 1, inner, rows, 1, outer, 1, 1, 1, 1, 0, 0, 1, 1], 1)
        self.program.cycles += int(node["macs"]) // 16

    def _weighted(self, place: int, node: Node, packed: bytes, channels: int) -> list[Any]:
        """Load weights, biases and scales; return the words for them."""
        x, weights, y = self._operand(node, 0), self._operand(node, 1), self._result(node)
        bias = self._operand(node, 2) if len(node["inputs"]) > 2 and node["inputs"][2] is not None else None
        blocks: list[Any] = [self._load(place, packed)]
        if x["dtype"] == "float16":
            raw = bytes(2 * channels) if bias is None else self._spread(self._raw(bias), 2, channels)
            return [*blocks, self._load(place, raw), 0]
        own = weights["quantisation"]["scale"]
        own = own * channels if len(own) == 1 else own
        if self.is_tflite:
            numbers = [0] * channels
            if bias is not None:
                numbers = list(struct.unpack(f"<{channels}i", self._spread(self._raw(bias), 4, channels)))
            return [
                *blocks,
                self._load(place, struct.pack(f"<{channels}i", *numbers)),
                self._load(place, self._factors(node, own)),
            ]
        steps = [single(single(self._scale(x)) * single(one)) for one in own]
        biases = [0] * channels
        if bias is not None:
            raw = self._spread(self._raw(bias), 4, channels)
            biases = [self._step(node, *one) for one in self._on_grid(raw, bias, steps)]
        scales = [single(one / single(self._scale(y))) for one in steps]
        return [
            *blocks,
            self._load(place, struct.pack(f"<{channels}i", *biases)),
            self._load(place, struct.pack(f"<{channels}f", *scales)),
        ]

    def _factors(self, node: Node, own: list[float]) -> bytes:
        """Return what the sums of each channel are multiplied by: a multiplier and an exponent, or a float64."""
        x, y = (self._scale(one) for one in (self._operand(node, 0), self._result(node)))
        if self._rounding(node) == AWAY:
            return struct.pack(f"<{len(own)}d", *(x * one / y for one in own))
        is_batch = node["op"] == "MatMul"  # of TFLite's BATCH_MATMUL the product is one of float32
        scales = [(single(x * one) if is_batch else x * one) / y for one in own]
        return struct.pack(f"<{2 * len(own)}i", *(number for scale in scales for number in multiplier(scale)))

    def _rounding(self, node: Node) -> int:
        """Return how an operator of int8 rounds: the sums of a dense layer are multiplied by a float64."""
        if not self.is_tflite or node["op"] in ("Pool", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose"):
            is_mean = self.is_tflite and node["op"] == "Pool" and node["attributes"]["kind"] == "average"
            return TWICE if is_mean else REAL
        return AWAY if node["op"] == "Gemm" else TWICE

    def _on_grid(self, raw: bytes, bias: Tensor, steps: list[float]) -> list[tuple[int, float, float]]:
        numbers = struct.unpack(f"<{len(steps)}i", raw)
        own = bias["quantisation"]["scale"] if bias["quantisation"] else steps
        own = own * len(steps) if len(own) == 1 else own
        return list(zip(numbers, own, steps, strict=True))

    def _step(self, node: Node, number: int, own: float, step: float) -> int:
        """Return a bias in steps of the accumulator."""
        if single(own) == step:
            return number
        exact = number * own / step
        if abs(exact - round(exact)) > 1e-3 * max(1.0, abs(exact) * 2**-10) or abs(exact) >= 2**31:
            raise Refused(f"{node['name']}: its bias has a scale of {own}, the products have {step}")
        return round(exact)

    def pool(self, place: int, node: Node) -> None:
        attrs, x, y = node["attributes"], self._operand(node, 0), self._result(node)
        kernel, strides, pads = attrs["kernel"], attrs["strides"], attrs["pads"]
        batch, rows, columns, channels = x["shape"]
        is_average, count = attrs["kind"] == "average", math.prod(kernel)
        for size, result, one, stride in zip((rows, columns), y["shape"][1:3], kernel, strides, strict=True):
            if is_average and (result - 1) * stride + one > size:
                raise Refused(f"{node['name']}: a window of its mean goes over the edge")
        factor = 1.0 / count
        if x["dtype"] == "int8" and self.is_tflite and x["quantisation"] != y["quantisation"]:
            raise Refused(f"{node['name']}: its input and output stand on two grids")
        if x["dtype"] == "int8":
            factor = single(single(single(self._scale(x)) / count) / single(self._scale(y)))
        shape = [rows, columns, channels, *y["shape"][1:], *kernel, *strides, pads[0], pads[1], 1, 1]
        self._commands(node, AVERAGE if is_average else MAXIMUM, [0, 0, bits(single(factor))], shape, batch)
        self.program.cycles += math.prod(y["shape"]) * count // 16

    def add(self, place: int, node: Node) -> None:
        a, b, y = self._operand(node, 0), self._operand(node, 1), self._result(node)
        words: list[Any] = [(self.at[node["inputs"][1]], 0), 0, 0]
        count = math.prod(y["shape"])
        shape = [1, 1, count, 1, 1, count]
        if a["dtype"] == "int8":
            scales = [bits(self._scale(one)) for one in (a, b, y)]
            shape += [*scales, b["quantisation"]["zero_point"][0]]
            if self.is_tflite:
                unit = 2 * max(self._scale(a), self._scale(b))
                real = (self._scale(a) / unit, self._scale(b) / unit, unit / (2.0**20 * self._scale(y)))
                pairs = [number for one in real for number in multiplier(one)]
                words[2] = self._load(place, struct.pack("<6i", *pairs))
        self._commands(node, ADD, words, shape, 1)
        self.program.cycles += count // 16

    def relu(self, place: int, node: Node) -> None:
        x, y = self._operand(node, 0), self._result(node)
        count = math.prod(y["shape"])
        shape = [1, 1, count, 1, 1, count]
        if x["dtype"] == "float16":
            node = {**node, "activation": _both(node["activation"], {"low": 0.0, "high": None})}
            self._commands(node, CLIP, [0, 0, 0], shape, 1)
            return
        scale, zero = single(self._scale(x)), x["quantisation"]["zero_point"][0]
        table = bytes(
            self._quantized(max(single((q - zero) * scale), 0.0), y) & 255 for q in range(-128, 128)
        )  # fmt: skip
        self._commands(node, TABLE, [self._load(place, table), 0, 0], shape, 1)

    def softmax(self, place: int, node: Node) -> None:
        x, y = self._operand(node, 0), self._result(node)
        if not self.is_tflite or y["quantisation"] != {**y["quantisation"], "scale": [2.0**-8], "zero_point": [-128]}:
            raise Refused(f"{node['name']}: it is not in TFLite's rounding, or not on a grid of 1/256 from 0 on")
        rows, length = x["shape"]
        table = self._load(place, struct.pack("<256i", *exponentials(self._scale(x))))
        self._commands(node, SOFTMAX, [table, 0, 0], [rows, 1, length, rows, 1, length], 1)
        self.program.cycles += 4 * rows * length

    def reshape(self, place: int, node: Node) -> None:
        self._move(node, self._operand(node, 0)["shape"], range(len(self._operand(node, 0)["shape"])))

    def transpose(self, place: int, node: Node) -> None:
        self._move(node, self._operand(node, 0)["shape"], node["attributes"]["perm"])

    def _move(self, node: Node, shape: Sequence[int], order: Sequence[int]) -> None:
        """Bring the elements into another order: that of these dimensions of the input."""
        if list(order) == sorted(order):  # none
            shape, order = [math.prod(shape)], [0]
        if len(shape) > 4:
            raise Refused(f"{node['name']}: it has {len(shape)} dimensions")
        apart = [math.prod(shape[one + 1 :]) for one in order]
        sizes = [shape[one] for one in order]
        more = 4 - len(shape)
        count = math.prod(shape)
        full = [1, 1, count, 1, 1, count, *[0] * more, *apart, *[1] * more, *sizes]
        self._commands(node, MOVE, [0, 0, 0], full, 1)
        self.program.cycles += count // 4

    # What nodes share

    def _operand(self, node: Node, number: int) -> Tensor:
        return self.tensors[node["inputs"][number]]  # type: ignore[no-any-return]

    def _result(self, node: Node) -> Tensor:
        return self.tensors[node["outputs"][0]]  # type: ignore[no-any-return]

    def _raw(self, tensor: Tensor) -> bytes:
        if tensor["constant"] is None:
            raise Refused(f"{tensor['name']}: no constant")
        return base64.b64decode(self.data[tensor["constant"]]["data"])

    def _spread(self, raw: bytes, size: int, count: int) -> bytes:
        return raw * count if len(raw) == size else raw

    def _scale(self, tensor: Tensor) -> float:
        if tensor["quantisation"] is None or len(tensor["quantisation"]["scale"]) != 1:
            raise Refused(f"{tensor['name']}: it has not one scale")
        return float(tensor["quantisation"]["scale"][0])

    def _quantized(self, value: float, tensor: Tensor) -> int:
        zero = tensor["quantisation"]["zero_point"][0]
        steps = single(single(value) / single(self._scale(tensor)))
        whole = math.copysign(math.floor(abs(steps) + 0.5), steps) if self.is_tflite else round(steps)
        return int(min(max(whole + zero, -128), 127))

    def _load(self, place: int, data: bytes) -> tuple[Block, int]:
        """Bring constants into the memory before a node is computed."""
        program = self.program
        block = Block(len(data), place, place)
        program.blocks.append(block)
        program.steps.append(Step([LOAD, len(program.constants), len(data), (block, 0)]))
        program.constants += data + bytes(-len(data) % 4)
        return block, 0

    def _commands(self, node: Node, op: int, words: Sequence[Any], shape: Sequence[int], batch: int) -> None:
        """Append a command for each image of the batch."""
        x, y = self._operand(node, 0), self._result(node)
        kind = FLOAT16 if x["dtype"] == "float16" else INT8
        clip = node["activation"] or {"low": None, "high": None}
        if kind == INT8:
            zeros = [x["quantisation"]["zero_point"][0], y["quantisation"]["zero_point"][0]]
            low = -128 if clip["low"] is None else self._quantized(clip["low"], y)
            high = 127 if clip["high"] is None else self._quantized(clip["high"], y)
            limits = [low, max(low, high)]
        else:
            zeros = [0, 0]
            limits = [bits(-math.inf if clip["low"] is None else clip["low"]),
                      bits(math.inf if clip["high"] is None else clip["high"])]  # fmt: skip
        rounding = self._rounding(node) if kind == INT8 else REAL
        if op == AVERAGE and rounding != REAL:
            zeros[1] = 0  # it is the mean of the integers themselves
        source, result = node["inputs"][0], node["outputs"][0]
        sizes = [self.size_of(one) // batch for one in (source, result)]
        for image in range(batch):
            begin = [op, kind, (self.at[source], image * sizes[0]), (self.at[result], image * sizes[1])]
            full = [*begin, *words, *shape]
            full += [0] * (21 - len(full))
            self.program.steps.append(Step([*full, *zeros, *limits, rounding]))

    # The memory and the binary

    def _place(self) -> None:
        """Give each block an address: large ones first, each as low as it fits."""
        placed: list[Block] = []
        for block in sorted(self.program.blocks, key=lambda one: -one.size):
            near = sorted(
                (one for one in placed if one.first <= block.last and block.first <= one.last),
                key=lambda one: one.address,
            )
            address = 0
            for one in near:
                if address + block.size <= one.address:
                    break
                address = max(address, one.address + one.size + 3 & ~3)
            if address + block.size > MEMORY_BYTES - COMMAND_BYTES:
                name = self.nodes[block.first]["name"]
                raise Refused(f"{name}: {block.size} bytes more do not fit the {MEMORY_BYTES} of the memory")
            block.address = address
            placed.append(block)

    def _binary(self) -> bytes:
        ports = [(self.at[one].address, self.size_of(one)) for one in (*self.inputs, *self.outputs)]
        steps = self.program.steps
        head = 24 + 8 * len(ports)
        total = head + COMMAND_BYTES * len(steps) + len(self.program.constants)
        begin = head + COMMAND_BYTES * len(steps)
        made = struct.pack("<4s5I", b"WREN", 1, len(steps), len(self.inputs), len(self.outputs), total)
        made += b"".join(struct.pack("<2I", *port) for port in ports)
        for step in steps:
            words = [one if isinstance(one, int) else one[0].address + one[1] for one in step.words]
            if words[0] == LOAD:
                words[1] += begin
            words += [0] * (COMMAND_WORDS - len(words))
            made += struct.pack(f"<{COMMAND_WORDS}I", *(word & 0xFFFFFFFF for word in words))
        return made + bytes(self.program.constants)


def exponentials(scale: float) -> list[int]:
    """Return exp(-scale * d) for d = 255 … 0 with 31 bits behind the point, by gemmlowp's fixed-point numbers."""
    by, exponent = multiplier(min(scale * 2**26, 2.0**31 - 1))
    furthest = math.floor(31 * 2**26 / 2**exponent)
    found = []
    for difference in range(-255, 1):
        argument = (difference * by + (1 << (30 - exponent))) >> (31 - exponent)
        found.append(_exponential(argument) if -difference <= furthest else 0)
    return found


_FACTORS = ((-2, 1672461947), (-1, 1302514674), (0, 790015084), (1, 290630308), (2, 39332535), (3, 720401), (4, 242))


def _exponential(argument: int) -> int:
    """Return exp of a number that is not positive, with five bits before the point."""
    if argument == 0:
        return 2**31 - 1

    def product(a: int, b: int) -> int:
        return (a * b + (1 << 30)) >> 31

    def divided(value: int, shift: int) -> int:
        mask = (1 << shift) - 1
        return (value >> shift) + ((value & mask) > (mask >> 1) + (value < 0))

    quarter = 1 << 24
    rest = (argument & (quarter - 1)) - quarter
    x = (rest << 5) + (1 << 28)
    square = product(x, x)
    cube, fourth = product(square, x), product(square, square)
    series = divided(product(divided(fourth, 2) + cube, 715827883) + square, 1)
    result = 1895147668 + product(1895147668, x + series)
    for exponent, factor in _FACTORS:
        if (rest - argument) >> (26 + exponent) & 1:
            result = product(result, factor)
    return result


def _both(first: dict[str, Any] | None, second: dict[str, Any]) -> dict[str, Any]:
    if first is None:
        return second
    lows = [one for one in (first["low"], second["low"]) if one is not None]
    highs = [one for one in (first["high"], second["high"]) if one is not None]
    return {"low": max(lows, default=None), "high": min(highs, default=None)}


def main() -> int:
    """Compile the files that the command line names."""
    parser = argparse.ArgumentParser(prog="wrencc")
    parser.add_argument("nodes", type=Path)
    parser.add_argument("constants", type=Path)
    parser.add_argument("-o", "--output", required=True, type=Path)
    parser.add_argument("--report", type=Path)
    asked = parser.parse_args()
    nodes, constants = (json.loads(path.read_text(encoding="utf-8")) for path in (asked.nodes, asked.constants))
    try:
        compiler = Compiler(nodes, constants)
        made = compiler.run()
    except Refused as why:
        print(f"wrencc: error: {why}", file=sys.stderr)
        return 1
    asked.output.write_bytes(made)
    if asked.report:
        asked.report.write_text(json.dumps({"scratch_bytes": 0, "cycles": compiler.program.cycles}), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
