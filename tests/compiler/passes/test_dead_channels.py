"""Constant and unused channels are removed, and no result changes."""

import amount
import networks
import numpy as np
import pytest
from graphs import model
from onnx import helper
from single_pass import DSP, HOST, MVE, assert_same, pairs

from mtool.compiler.ir import Graph
from mtool.compiler.kernels import registry
from mtool.compiler.kernels.target import Target
from mtool.compiler.kernels.weighted_sum import as_computed
from mtool.compiler.passes.dead_channels import remove_dead_channels
from mtool.compiler.passes.pipeline import sequence

F32 = np.float32


def weights(graph: Graph) -> int:
    return sum(graph.constants[node.inputs[1]].size for node in graph.nodes if node.op in ("conv2d", "dense"))


@pytest.mark.parametrize(("target", "multiple"), [(HOST, 2), (DSP, 4), (MVE, 16)])
def test_random_networks_stay_the_same(target: Target, multiple: int) -> None:
    removed = 0
    for before, after in pairs("remove_dead_channels", "dead", 28 if target is HOST else 10, target):
        removed += weights(after) < weights(before)
        assert_same(before, after)
        made = {node.outputs[0]: node for node in before.nodes}
        for node in after.nodes:
            size, old = (
                after.types[node.outputs[0]].shape[-1:],
                before.types[made[node.outputs[0]].outputs[0]].shape[-1:],
            )
            assert size == old or size[0] % multiple == 0
    assert removed >= (amount.of(8, 4) if target is HOST else 0)


def test_live_networks_keep_all() -> None:
    for before, after in pairs("remove_dead_channels", "int8", 8):
        assert weights(before) == weights(after)


def network(*layers: tuple[np.ndarray, np.ndarray, int], zero: int = 3, size: int = 5) -> Graph:  # type: ignore[type-arg]
    """Return the graph before the pass of convolutions: weights, bias and groups of each; all have one grid."""
    constants = {"s": F32(0.05), "z": np.int8(zero), "ws": F32(0.01), "wz": np.int8(0)}
    constants |= {"bs": F32(0.05) * F32(0.01), "bz": np.int32(0)}
    nodes, value = [helper.make_node("DequantizeLinear", ["x", "s", "z"], ["v"])], "v"
    for number, (data, bias, group) in enumerate(layers):
        pads = [data.shape[2] // 2] * 4
        constants |= {f"w{number}": data.astype(np.int8), f"b{number}": bias.astype(np.int32)}
        nodes += [
            helper.make_node("DequantizeLinear", [f"w{number}", "ws", "wz"], [f"wf{number}"]),
            helper.make_node("DequantizeLinear", [f"b{number}", "bs", "bz"], [f"bf{number}"]),
            helper.make_node("Conv", [value, f"wf{number}", f"bf{number}"], [f"c{number}"], group=group, pads=pads),
            helper.make_node("QuantizeLinear", [f"c{number}", "s", "z"], [f"q{number}"]),
            helper.make_node("DequantizeLinear", [f"q{number}", "s", "z"], [f"f{number}"]),
        ]  # fmt: skip
        value = f"f{number}"
    inputs = {"x": (np.int8, (1, layers[0][0].shape[1], size, size))}
    graph = networks.imported(model(nodes, inputs, [f"q{len(layers) - 1}"], constants))
    for one in sequence(HOST)[:12]:
        graph = one(graph)
    return graph


def random_filters(shape: tuple[int, ...], dead: tuple[int, ...] = (), unread: tuple[int, ...] = ()) -> np.ndarray:  # type: ignore[type-arg]
    data = np.random.default_rng(sum(shape)).integers(-100, 101, shape)
    data[list(dead)] = 0
    data[:, list(unread)] = 0
    return data


BIAS = np.array([3000, -3000, 800, 500, -700, 2500, 90, 10])


def removed(graph: Graph) -> list[int]:
    """Return the channels of the first convolution that are left, where the results stay the same."""
    after = remove_dead_channels(graph, HOST)
    assert_same(graph, after, calls=2)
    return [after.types[node.outputs[0]].shape[-1] for node in after.nodes if node.op == "conv2d"]


def test_a_dead_channel_goes_into_the_next_bias() -> None:
    first = (random_filters((8, 4, 3, 3), dead=(1, 2, 5, 7)), BIAS, 1)
    assert removed(network(first, (random_filters((6, 8, 1, 1)), BIAS[:6], 1))) == [4, 6]


def test_macs_are_those_of_the_model_and_live_ones_those_that_are_left() -> None:
    first = (random_filters((8, 4, 3, 3), dead=(1, 2, 5, 7)), BIAS, 1)
    before = network(first, (random_filters((6, 8, 1, 1)), BIAS[:6], 1))
    after = remove_dead_channels(before, HOST)
    convs = [[node for node in graph.nodes if node.op == "conv2d"] for graph in (before, after)]
    macs = [
        [registry.KERNELS["conv2d"].macs(node, graph) for node in own]
        for graph, own in zip((before, after), convs, strict=True)
    ]
    live = [registry.KERNELS["conv2d"].macs(as_computed(node), after) for node in convs[1]]
    assert macs[0] == macs[1] and live == [macs[0][0] // 2, macs[0][1] // 2]


def test_beside_padding_a_dead_channel_that_is_not_zero_stays() -> None:
    first = (random_filters((8, 4, 1, 1), dead=(1, 2, 5, 7)), BIAS, 1)
    assert removed(network(first, (random_filters((6, 8, 3, 3)), BIAS[:6], 1))) == [8, 6]
    zeros = np.where(np.isin(np.arange(8), (1, 2, 5, 7)), 0, BIAS)  # real 0: what padding is
    assert removed(network((first[0], zeros, 1), (random_filters((6, 8, 3, 3)), BIAS[:6], 1))) == [4, 6]


def test_an_unread_channel_goes() -> None:
    first = (random_filters((8, 4, 3, 3)), BIAS, 1)
    assert removed(network(first, (random_filters((6, 8, 3, 3), unread=(0, 3, 4, 6)), BIAS[:6], 1))) == [4, 6]


def test_channels_go_through_a_depthwise() -> None:
    first = (random_filters((8, 4, 1, 1), dead=(0, 1, 2, 3)), np.zeros(8), 1)
    middle = (random_filters((8, 1, 3, 3)), BIAS, 8)
    last = (random_filters((6, 8, 1, 1), unread=(0, 1, 4, 5)), BIAS[:6], 1)
    assert removed(network(first, middle, last)) == [2, 2, 6]


@pytest.mark.parametrize("seed", range(25))
def test_what_depends_on_constant_channels_differs_at_the_border(seed: int) -> None:
    """A channel made of constant ones alone is constant only where padding, which is 0, counts for nothing."""
    rng = np.random.default_rng(seed)
    first = (random_filters((8, 4, 1, 1), dead=(0, 1, 2, 3)), BIAS * rng.integers(-2, 3), 1)
    data = random_filters((8, 8, 3, 3))
    data[:4, 4:] = 0  # four channels read nothing but constants
    data[: rng.integers(0, 4), :, :, rng.integers(0, 3)] = 0
    group = 8 if seed % 3 == 0 else 1
    middle = (data[:, :1] if group == 8 else data, rng.integers(-2000, 2000, 8), group)
    removed(network(first, middle, (random_filters((6, 8, 1, 1)), BIAS[:6], 1), zero=int(rng.integers(-5, 6))))


def test_a_channel_that_is_an_output_stays() -> None:
    first = (random_filters((8, 4, 3, 3), dead=(1, 2, 5, 7)), BIAS, 1)
    assert removed(network(first)) == [8]


def test_a_large_window_is_left_alone() -> None:
    """What is looked at to find constant channels is bounded."""
    first = (random_filters((8, 4, 1, 1), dead=(0, 1, 2, 3)), BIAS, 1)
    big = np.zeros((8, 8, 31, 31))
    big[:, :, ::7, ::9] = 1
    removed(network(first, (big, BIAS, 1), (random_filters((6, 8, 1, 1)), BIAS[:6], 1), size=31))


def random_layers(seed: int) -> Graph:
    """Return convolutions of any window, stride and padding, pools and a product, of channels that are often dead."""
    rng = np.random.default_rng(seed)
    grid = ["s", "z"]
    constants = {"s": F32(0.05), "z": np.int8(rng.integers(-5, 6)), "ws": F32(0.01), "wz": np.int8(0)}
    constants |= {"bs": F32(0.05) * F32(0.01), "bz": np.int32(0), "flat": np.array([1, -1])}
    nodes, value, channels, size = [helper.make_node("DequantizeLinear", ["x", *grid], ["v"])], "v", 4, [9, 7]

    def kept(made: str, after: str) -> str:
        nodes.append(helper.make_node("QuantizeLinear", [made, *grid], [f"{after}q"]))
        nodes.append(helper.make_node("DequantizeLinear", [f"{after}q", *grid], [after]))
        return after

    def operands(number: int, shape: tuple[int, ...]) -> list[str]:
        data = rng.integers(-100, 101, shape)
        data[rng.random(shape[0]) < 0.5] = 0
        data[:, rng.random(shape[1]) < 0.3] = 0
        constants[f"w{number}"] = data.astype(np.int8)
        constants[f"b{number}"] = (rng.integers(-3000, 3001, shape[0]) * (rng.random(shape[0]) < 0.7)).astype(np.int32)
        nodes.append(helper.make_node("DequantizeLinear", [f"w{number}", "ws", "wz"], [f"wf{number}"]))
        nodes.append(helper.make_node("DequantizeLinear", [f"b{number}", "bs", "bz"], [f"bf{number}"]))
        return [f"wf{number}", f"bf{number}"]

    for number in range(3):
        kernel = [int(min(rng.integers(1, 4), side)) for side in size]
        pads = [int(rng.integers(0, side)) for side in kernel] * 2 if rng.random() < 0.5 else [0] * 4
        strides = [int(rng.integers(1, 3)) for _ in size]
        attrs = {"kernel_shape": kernel, "pads": pads, "strides": strides}
        if number and rng.random() < 0.4:
            kind = str(rng.choice(["MaxPool", "AveragePool"]))
            nodes.append(helper.make_node(kind, [value], [f"m{number}"], **attrs))
        else:
            group = channels if number and rng.random() < 0.4 else 1
            made = channels * int(rng.integers(1, 3)) if group > 1 else 8
            shape = (made, channels // group, *kernel)
            nodes.append(
                helper.make_node("Conv", [value, *operands(number, shape)], [f"m{number}"], group=group, **attrs)
            )
            channels = made
        value = kept(f"m{number}", f"f{number}")
        size = [
            (side + 2 * pad - width) // step + 1
            for side, pad, width, step in zip(size, pads[:2], kernel, strides, strict=True)
        ]
    if rng.random() < 0.5:
        nodes.append(helper.make_node("GlobalAveragePool", [value], ["pooled"]))
        value, size = kept("pooled", "p"), [1, 1]
    nodes.append(helper.make_node("Reshape", [value, "flat"], ["row"]))
    value = "row"
    for number, width, depth in ((8, 6, channels * size[0] * size[1]), (9, 3, 6)):
        nodes.append(helper.make_node("Gemm", [value, *operands(number, (width, depth))], [f"g{number}"], transB=1))
        value = kept(f"g{number}", f"r{number}")
    nodes.pop()
    graph = networks.imported(model(nodes, {"x": (np.int8, (1, 4, 9, 7))}, ["r9q"], constants))
    for one in sequence(HOST)[:12]:
        graph = one(graph)
    return graph


def test_windows_strides_and_pools_of_any_kind() -> None:
    narrower = 0
    for seed in range(20):
        before = random_layers(seed)
        after = remove_dead_channels(before, HOST)
        assert_same(before, after, calls=2)
        narrower += weights(after) < weights(before)
    assert narrower >= 10
