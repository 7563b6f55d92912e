"""SIMD32 (Armv7E-M, Armv8-M with DSP): packed weights and tiles of two 16-bit products an instruction."""

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from mtool.base.frozen import frozen
from mtool.compiler.ir import Graph, Node, WithEpilogue
from mtool.compiler.ir.types import Array, row_blocks, row_sums
from mtool.compiler.kernels.code_price import price_of_code
from mtool.compiler.kernels.epilogues import Epilogue16, Int8Epilogue, Products
from mtool.compiler.kernels.exact_scaling import ALONE, ExactScaling, Together
from mtool.compiler.kernels.few_bits import are_within
from mtool.compiler.kernels.packing import filled_up, packed_by_rows, round_up
from mtool.compiler.kernels.scaling import FloatScaling, Scaling
from mtool.compiler.kernels.target import Target
from mtool.compiler.kernels.weighted_sum import remembered, stored_weights

# The runtime's functions that schedules for SIMD32 share: their names, and the lines that define them.


LIMITS = (-128, 127)
KINDS = {"": "MT_BY_FLOAT", "_twice": "MT_TWICE", "_once": "MT_ONCE"}  # of mt_math.h


def with_function(
    products: Products, macro: str, stem: str, scaling: Scaling, epilogue: Int8Epilogue, loop: str, *numbers: int
) -> Products:
    """Return packed weights with a function of crt/include/mt_dsp_*_int8.h, and the range of the results if it has one.

    Args:
        products: the weights, their layout, the header.
        macro: the macro that defines the function, without _PLAIN or _RANGE.
        stem: the beginning of its name.
        scaling: the scaling of the sums.
        epilogue: the epilogue, for the limits.
        loop: its loop, as in the name.
        numbers: the macro's arguments after the name.
    """
    name = f"{stem}{scaling.kind}_{loop}"
    kind = f"MT_EXACT_{scaling.places}" if isinstance(scaling, ExactScaling) else KINDS[scaling.kind]
    arguments = ", ".join([*map(str, numbers), kind])
    clamped = (epilogue.how.low, epilogue.how.high) != LIMITS
    if epilogue.is_plain or (isinstance(scaling, ExactScaling) and not clamped):
        return replace(products, function=name, shared=(f"{macro}_PLAIN({name}, {arguments})",))
    name += "_range" if clamped else "_zero"
    shared, declared = (
        f"{macro}_RANGE({name}, {arguments}, {int(clamped)})",
        epilogue.declared("mt_dsp_range", "MT_DSP_RANGE"),
    )
    return replace(products, function=name, declared=declared, last="&range", shared=(shared,))


# The loops that the register tiles of crt/include/mt_dsp.h have.


UNROLLS = (28, 16, 8)  # steps of k an iteration
TURNS = (32, 16, 8)  # the same of a loop for any depth
WORD = 4  # steps of k in a word of weights, for two channels
LONGEST = 10  # the most words that are written out without a loop: a small flash cache holds them


@frozen
class Loop:
    """A dot product in words of four steps of k: all `words` are written out, or a loop has `turn` of them.

    One loop serves all depths of two words or more: it is entered at the required number of turns before its end.
    """

    words: int
    turn: int

    @classmethod
    def of(cls, depth: int, unroll: int) -> "Loop":
        """Return a loop of `unroll` steps a turn for sums of `depth`; it has none for one word."""
        return cls(1, 0) if depth <= WORD else cls(0, unroll // WORD)

    @classmethod
    def whole(cls, depth: int) -> "Loop":
        """Return a fully unrolled dot product."""
        return cls(depth // WORD, 0)

    def overhead(self, depth: int, end: int) -> int:
        """Return the instructions besides the products of `depth` steps, with `end` at the end of a turn."""
        return 2 + end * -(-(depth // WORD - 1) // self.turn) if self.turn else 0

    @property
    def name(self) -> str:
        """Its name in functions' names."""
        return f"turns_{self.turn}" if self.turn else f"whole_{self.words}"


# The scalings of a model's layers, with as few functions of the runtime as is worth their code.
#
# A function has the places of MT_EXACT in its instructions. A layer that needs other places, or floats only, can use
# the function of the model's other layers: it scales channels without multipliers by floats.


FLOATS_BESIDE = 10  # additional instructions of a tile scaled by floats in another layer's function
EXACT_BESIDE = 30  # the same for a tile scaled by multipliers


@frozen
class Layer:
    """How a node's sums are scaled: the channels scaled in one way, the number of result tiles, a function's bytes."""

    together: Together
    tiles: float
    code: float


def shared_scaling(node: Node, graph: Graph, layer_of: Callable[[Node], Layer | None]) -> tuple[Scaling, Array]:
    """Return the scaling of a node's sums and the matching biases, as Int8Epilogue.exact_scaling does.

    `layer_of` is called for other nodes of the operator too, and returns None for those that use another function.
    """
    layer = layer_of(node)
    assert layer is not None
    scaling, bias = best_scaling(node, graph, layer.together)
    if not isinstance(scaling, FloatScaling | ExactScaling):
        return scaling, bias
    key = f"places of {node.op} by {layer.together.count}"
    if key not in graph.memo:
        tiles: dict[int, float] = {}  # by places
        for peer in graph.nodes:
            other = layer_of(peer) if peer.op == node.op else None
            if other is not None and other.together.count == layer.together.count:
                other_scaling, _ = best_scaling(peer, graph, other.together)
                if isinstance(other_scaling, ExactScaling):
                    tiles[other_scaling.places] = tiles.get(other_scaling.places, 0) + other.tiles
        graph.memo[key] = max(tiles, key=lambda places: tiles[places], default=None)
    places: int | None = graph.memo[key]
    beside = EXACT_BESIDE if isinstance(scaling, ExactScaling) else FLOATS_BESIDE
    same = isinstance(scaling, ExactScaling) and scaling.places == places
    if places is None or same or beside * layer.tiles > layer.code * price_of_code(node, graph):
        return scaling, bias
    epilogue = Int8Epilogue.of(node, graph)
    assert epilogue is not None and epilogue.scale is not None
    return ExactScaling.of_floats(epilogue.scale, epilogue.how.zero_point, places), epilogue.bias


def any_has_floats(nodes: Iterable[Node], graph: Graph, *, or_all: bool = False) -> bool:
    """Whether a channel of any node has no multiplier, so that the shared function scales by floats too.

    `or_all`: layers that are only scaled by floats count too.
    """
    scalings = [best_scaling(node, graph, ALONE)[0] for node in nodes if Int8Epilogue.of(node, graph)]
    if or_all and any(isinstance(scaling, FloatScaling) for scaling in scalings):
        return True
    return any(isinstance(scaling, ExactScaling) and not scaling.has_multiplier.all() for scaling in scalings)


_SOFTWARE = 120  # instructions to scale a sum by a float without an FPU


def in_software(scaling_of: Callable[[], Scaling | None], target: Target) -> float:
    """Return the instructions of floats in software for an output, on average: of channels without a multiplier.

    The scaling is not computed for a target with an FPU.
    """
    scaling = None if target.has_float else scaling_of()
    if not isinstance(scaling, FloatScaling | ExactScaling):
        return 0.0
    return _SOFTWARE * (1.0 if isinstance(scaling, FloatScaling) else 1 - float(np.mean(scaling.has_multiplier)))


def best_scaling(node: Node, graph: Graph, together: Together) -> tuple[Scaling, Array]:
    """Return the best scaling for a node, cached by its constants."""
    constants = tuple(name for name in node.inputs[1:] if name in graph.constants)

    def best() -> tuple[Scaling, Array]:
        epilogue = Int8Epilogue.of(node, graph)
        assert epilogue is not None
        return epilogue.exact_scaling(together)

    return remembered(graph, "exact scalings", (constants, WithEpilogue.of(node).epilogue, together), best)


# Packed weights of int8 layers for SIMD32, two channels together; see crt/include/mt_dsp.h.


PAIRED = "a and b: biases of a and of a+256b, weights as halfwords a+256b"


def go_in_pairs(node: Node, graph: Graph, groups: int = 1) -> bool:
    """Whether a node's int8 weights can be paired up in each of `groups` groups of channels; see are_pairs_exact."""

    def all_go() -> bool:
        real, bias = (graph.constants[value] for value in node.inputs[1:3])
        parts = (np.split(data, groups) for data in (stored_weights(node, graph), bias, real))
        return all(are_pairs_exact(*part) for part in zip(*parts, strict=True))

    return remembered(graph, "weights in pairs", (*node.inputs[1:3], groups), all_go)


def are_pairs_exact(weights: Array, bias: Array, real: Array) -> bool:
    """Whether sums of a channel b fit 24 bits, and pairs of weights 16, for any order of the columns.

    The bias of channels without weights does not matter: Scaling.without_dead_channels makes it small.

    Args:
        weights: int8 [N, ...].
        bias: int32 [N].
        real: the weights including the offset that is subtracted for storage, if there is one.
    """
    sums = row_sums(real[1::2])
    offsets = np.where(sums.magnitude == 0, 0, bias[1::2].astype(np.int64))
    least = offsets + 127 * sums.negative - 128 * sums.positive
    most = offsets + 127 * sums.positive - 128 * sums.negative
    if max(-least.min(initial=0), most.max(initial=0)) >= 1 << 23:
        return False
    return not any(_has_lowest_beside_both_signs(weights[rows]) for rows in row_blocks(weights, multiple=2))


def _has_lowest_beside_both_signs(weights: Array) -> bool:
    """Whether a channel b has -128 both next to a negative weight of a and next to another."""
    flat = weights.reshape(len(weights), -1)
    b = flat[1::2]
    a, lowest = flat[0::2][: len(b)], b == -128
    return bool(((lowest & (a < 0)).any(axis=1) & (lowest & (a >= 0)).any(axis=1)).any())


def have_signs(weights: Array) -> bool:
    """Whether `radix_pairs` of int8 weights [N, K] has a negative sign: -128 in b is next to a negative weight of a."""
    for rows in row_blocks(weights, multiple=2):
        b = weights[rows][1::2]
        if ((b == -128) & (weights[rows][0::2][: len(b)] < 0)).any():
            return True
    return False


def radix_pairs(weights: Array, bias: Array) -> tuple[Array, Array, Array]:
    """Pair up channels a and b in halfwords a + 256 * b, or a - 256 * b where -128 in b is next to a negative a.

    Args:
        weights: int8 [N, K], N even, K a multiple of 4; `are_pairs_exact` holds.
        bias: int32 [N].

    Returns:
        uint32 words [N/2, K/2] of the halfwords, biases [N/2, 2] (a, a + 256 * b), and the signs of b [N/2], float32.
    """
    count, depth = weights.shape
    wide = weights.astype(np.int32).reshape(count, depth // 4, 2, 2).swapaxes(2, 3).reshape(count, depth)
    a, b = wide[0::2], wide[1::2]
    sign = np.where((a + 256 * b).min(axis=1, initial=0) < -32768, -1, 1)
    offsets = bias.astype(np.int64)
    halves = (a + 256 * sign[:, None] * b).astype(np.int16).view(np.uint16).astype(np.uint32)
    halves = halves.reshape(count // 2, depth // 2, 2)
    heads = np.stack([offsets[0::2], offsets[0::2] + 256 * sign * offsets[1::2]], axis=1) & 0xFFFFFFFF
    return halves[..., 0] | halves[..., 1] << 16, heads.astype(np.uint32), sign.astype(np.float32)


def pack(weights: Array, bias: Array, scaling: Scaling, depth: int) -> Array:
    """Return the stream of mt_dsp_columns, uint32 [N/2, depth/2 + 4 or 6].

    Args:
        weights: int8 [N, K] in the columns' order; N is padded to an even number, K to `depth`, with zeros;
            `are_pairs_exact` holds.
        bias: int32 [N], the input's zero point folded in.
        scaling: of N channels.
        depth: a multiple of 4.
    """
    count = round_up(weights.shape[0], 2)
    words, heads, sign = radix_pairs(filled_up(weights, count, depth), np.pad(bias, (0, count - weights.shape[0])))
    return np.concatenate([heads, words, scaling.padded(count).paired(sign)], axis=1)


def pack_apart(weights: Array, bias: Array, scaling: Scaling, depth: int) -> Array:
    """Return the stream of mt_dsp_apart, of the same size, for any weights; see pack."""
    count = round_up(weights.shape[0], 2)
    filled = np.ascontiguousarray(filled_up(weights, count, depth))
    words = filled.view(np.uint32).reshape(count // 2, 2, depth // 4).swapaxes(1, 2).reshape(count // 2, depth // 2)
    heads = np.pad(bias, (0, count - weights.shape[0])).view(np.uint32).reshape(count // 2, 2)
    return np.concatenate([heads, words, scaling.padded(count).apart()], axis=1)


# Weights of one or two bits, those of two outputs in a halfword; see crt/include/mt_dsp_fields_int8.h.


MOST_BLOCKS = 16  # of inputs, whose sums have a place on the stack
BLOCKS = (128, 64, 48, 28)  # inputs; the last for any weights of two bits
_HIGH = 14  # the bit of a halfword at which the second output's weight begins


def field_block(node: Node, graph: Graph, bits: int) -> int:
    """Return the inputs after which a node's sums are split if its weights have one or two bits; 0: they don't fit.

    A weight of one bit is 1 or -1.
    """

    def fitting() -> int:
        weights = graph.constants[node.inputs[1]]
        if weights.dtype != np.int8 or not weights.size or weights.min() < -2 or weights.max() > 1:
            return 0
        flat = weights.reshape(len(weights), -1)
        if not are_within(flat, flat.shape[1], 32 - _HIGH) or (bits == 1 and not (np.abs(flat) == 1).all()):
            return 0
        low = flat[::2] if bits == 2 else flat[::2] > 0
        return next((block for block in BLOCKS if are_within(low, block, _HIGH)), 0)

    return remembered(graph, "fields of weights", (node.inputs[1], bits), fitting)


def fields(weights: Array, outputs: int, depth: int, bits: int) -> Array:
    """Return words of such weights, uint32 [N/outputs, outputs/8 * depth/4 * bits].

    Args:
        weights: int8 [N, K]; N is padded to a multiple of `outputs`, K to `depth`.
        outputs: computed at a time, an even number.
        depth: a multiple of 4, or of 8 of weights of one bit of four outputs.
        bits: of a field.
    """
    groups = round_up(len(weights), outputs) // outputs
    filled = filled_up(weights, groups * outputs, depth).astype(np.int64)
    # of each group: word of inputs, odd, pair of outputs; then half, high
    order = filled.reshape(groups, outputs // 2, 2, depth // 4, 2, 2).transpose(0, 3, 5, 1, 4, 2)
    codes = (order > 0) * 1 if bits == 1 else np.stack([order[..., 0] + 2, order[..., 1] & 3], axis=-1)
    products = (codes << np.array([[0, _HIGH], [16, 16 + _HIGH]])).sum((-2, -1)).astype(np.uint64)
    turns = np.array([0, 1, 4, 5, 8, 9, 12, 13] if bits == 1 else [0, 4, 8, 12], np.uint64)
    words = products.reshape(groups, -1, len(turns)) << turns
    words = words | words >> np.uint64(32)
    return np.asarray((words & np.uint64(0xFFFFFFFF)).sum(axis=-1), np.uint32)


@frozen
class Columns:
    """The contents of a column of a tile.

    order: the index of each element among a channel's weights, -1 for filling.
    depth: its length with filling, a multiple of 4.
    offset: the weights' offset; after its elements, the column has `sums` elements for its own sum
    (mtool.compiler.kernels.weighted_sum).
    """

    order: Array
    depth: int
    offset: int = 0
    sums: int = 0

    def of(self, weights: Array) -> Array:
        """Return the weights of some channels in this order, [N, depth or less]."""
        flat = np.pad(weights.reshape(len(weights), -1), ((0, 0), (0, 1)), constant_values=-self.offset)
        flat = flat[:, self.order]
        if not self.offset:
            return flat
        # the filling is included in the sums
        flat = np.pad(flat, ((0, 0), (0, -flat.shape[1] % 4)), constant_values=-self.offset)
        return np.pad(flat, ((0, 0), (0, self.sums)), constant_values=self.offset)


def products_of_columns(
    epilogue: Int8Epilogue,
    numbers: tuple[Scaling, Array],
    columns: Columns,
    loop: Loop,
    header: str,
    groups: int = 1,
    *,
    apart: bool,
    suffix: str = "",
) -> Products:
    """Pack the weights of a layer for tiles of two channels.

    Args:
        epilogue: the epilogue.
        numbers: a scaling and a bias for each channel; the channels of a pair are scaled in the same way.
        columns: the order of the weights in the columns.
        loop: the loop of the runtime's function.
        header: the header with this function.
        groups: the number of groups of channels.
        apart: the weights are not packed in pairs, since they do not `go_in_pairs`.
        suffix: the suffix of the function's name, for another tile.
    """
    scaling, bias = numbers
    if not apart:
        bias, scaling = scaling.without_dead_channels(epilogue.weights, bias)

    def rows(weights: Array, bias: Array, scaling: Scaling) -> Array:
        return (pack_apart if apart else pack)(columns.of(weights), bias, scaling, columns.depth)

    stream = packed_by_rows(rows, 2, epilogue.stored_weights, bias, scaling, groups=groups)
    order = ": their biases, words of four weights by turns" if apart else f", {PAIRED}"
    layout = f"two output channels a row{order}, {scaling.meaning} of each"
    stem, macro = f"mt_dsp_{'apart' if apart else 'columns'}{suffix}", f"MT_DSP_COLUMNS{suffix.upper()}"
    turns = (loop.words, loop.turn, int(apart))
    return with_function(Products(stream, layout, header), macro, stem, scaling, epilogue, loop.name, *turns)


# Packed weights of layers with int16 activations for SIMD32; see crt/include/mt_dsp_int16.h.


PACKING_MEANING = "layout of weights: halves are pairs of int16; auto: int8 weights are bytes, widened in the loop"


def pack_int16(
    weights: Array, bias: Array, scale: Array | None = None, *, depth: int, together: int, packing: str = ""
) -> Array:
    """Return a stream, uint32 [N/together, ...]: for `together` channels biases, interleaved words of weights, scales.

    Args:
        weights: int8 or int16 [N, K]; N is padded to a multiple of `together`, K to `depth`, with zeros.
        bias: int32 or int64 [N], the input's zero point folded in.
        scale: float32 [N]; None: the stream has none.
        depth: a multiple of 4.
        together: how many channels are computed at a time.
        packing: "halves": int8 weights become pairs of int16 too, which take twice the flash and no widening.
    """
    count = round_up(weights.shape[0], together)
    more, groups = count - weights.shape[0], count // together
    filled = np.pad(weights, ((0, more), (0, depth - weights.shape[1])))
    if weights.dtype == np.int8 and not packing:
        filled = filled.reshape(count, -1, 2, 2).swapaxes(2, 3)  # (0, 2, 1, 3): SXTB16 then gives neighbours
    else:
        filled = filled.astype(np.int16)
    words = np.ascontiguousarray(filled.reshape(count, -1)).view(np.uint32).reshape(groups, together, -1)
    heads = np.pad(bias, (0, more)).view(np.uint32).reshape(groups, -1)
    parts = [heads, words.swapaxes(1, 2).reshape(groups, -1)]
    if scale is not None:
        parts.append(np.pad(scale.astype(np.float32), (0, more)).view(np.uint32).reshape(groups, -1))
    return np.concatenate(parts, axis=1)


@frozen
class Kind:
    """The loops of mt_dsp_int16.h for a layer, by its weights' packing and the width of its sums."""

    halves: bool
    long: bool

    @classmethod
    def of(cls, epilogue: Epilogue16, packing: str) -> "Kind":
        """Choose by the weights and the bias."""
        halves = bool(epilogue.weights.dtype == np.int16) or packing == "halves"
        return cls(halves, bool(epilogue.bias_of_model.dtype == np.int64))

    def layout(self, together: int, *, scaled: bool = True) -> str:
        """Describe the layout of a stream's row with `together` channels."""
        biases = "biases of 64 bits" if self.long else "biases"
        words = "two weights" if self.halves else "four weights"
        scales = ", scales (the bits of floats)" if scaled else ""
        return f"{together} output channels a row: {biases}, words of {words} by turns{scales}"

    def function(self, stem: str, unroll: int) -> str:
        """Return the name of the runtime's function: mt_dsp16_bytes_28, mt_dsp16_halves_long."""
        return f"{stem}_{'halves' if self.halves else 'bytes'}_{'long' if self.long else unroll}"
