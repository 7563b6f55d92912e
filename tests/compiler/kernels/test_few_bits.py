"""Streams of few bits: packed, and unpacked by the C that devices run."""

import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graphs import model
from numpy.typing import NDArray
from one_firmware import Case, failures
from onnx import helper

from mtool.base import resources
from mtool.compiler import passes
from mtool.compiler.frontend.onnx_graph import import_graph
from mtool.compiler.ir import Graph, Node
from mtool.compiler.kernels.conv2d.dsp.tiles import Im2colFields, PointwiseFields
from mtool.compiler.kernels.dense.dsp import Gemv, GemvByteSums
from mtool.compiler.kernels.few_bits import Packed, packed_powers, packed_rows, packed_stream
from mtool.compiler.kernels.target import Target
from mtool.compiler.plan import Choice, make_plan

Words = NDArray[np.uint32]


def stream(form: str, least: int, most: int) -> Words:
    """Return 6 rows: two biases, of which the second has the first in its low bits, weights, and three more words.

    Of these one is equal in all rows, one in all but one; the weights do not fill whole words.
    """
    rng = np.random.default_rng(0)
    weights = rng.integers(least, most + 1, (6, 60))
    if form == "pairs":
        weights = weights[:, ::2] + 256 * weights[:, 1::2]
    plain = rng.integers(0, 2**32, (6, 5), np.uint64).astype(np.uint32)
    plain[:, 0] = np.arange(-3000, 3000, 1000).astype(np.uint32)
    plain[:, 1] = plain[:, 0] + 256 * np.arange(-300, 300, 100).astype(np.uint32)
    plain[:, 3] = 0xFFFFFF01
    plain[:, 4] = 7
    plain[2, 4] = 0x12345678
    words = np.ascontiguousarray(weights.astype(np.int8 if form == "bytes" else np.int16)).view(np.uint32)
    return np.concatenate([plain[:, :2], words, plain[:, 2:]], axis=1)


def unpacked(packed: Packed, folder: Path) -> Words:
    words = ", ".join(f"{word}u" for word in packed.data.tolist())
    (folder / "t.c").write_text(
        f'#include <stdio.h>\n#include "mt_unpack.h"\n'
        f"static const uint32_t packed[] = {{{words}}};\nstatic uint32_t words[{packed.words}];\n"
        f"int main(void)\n{{\n    {packed.function}(words, packed);\n"
        f"    fwrite(words, 4, {packed.words}, stdout);\n    return 0;\n}}\n"
    )
    strict = [
        "-std=c99",
        "-Wall",
        "-Wextra",
        "-Wconversion",
        "-Wshadow",
        "-Werror",
        "-O2",
        "-fsanitize=undefined,address",
    ]
    include = f"-I{resources.path('crt') / 'include'}"
    subprocess.run(["gcc", *strict, include, "-o", folder / "t", folder / "t.c"], check=True)
    found = subprocess.run([folder / "t"], check=True, capture_output=True).stdout
    return np.frombuffer(found, np.uint32)


@pytest.mark.parametrize("form", ["bytes", "pairs", "halves"])
@pytest.mark.parametrize(("least", "most", "bits"), [(-8, 7, 4), (0, 15, 4), (-2, 1, 2), (-1, 1, 2), (-1, 0, 1)])
def test_unpacking_gives_the_stream(form: str, least: int, most: int, bits: int, tmp_path: Path) -> None:
    words = stream(form, least, most)
    packed = packed_stream(words, least, most)
    assert packed is not None and packed.words == words.size
    weights = words.shape[1] - 5
    runs = 2 * 6  # five kinds of columns before and behind the weights, and these
    biases, other, apart = 2 * 6 // 2, 6, 2
    assert packed.data.size == 3 + runs + biases + other + apart + -(
        -6 * weights * bits // (16 if form == "halves" else 8)
    )
    np.testing.assert_array_equal(unpacked(packed, tmp_path), words.reshape(-1))


def test_words_of_any_kind_are_unpacked(tmp_path: Path) -> None:
    """Columns that are narrow, wide or few in any order, in rows of any number."""
    rng = np.random.default_rng(1)
    for rows in (3, 9):
        kinds = rng.integers(0, 5, 24)
        columns = [
            rng.integers(*[(-(2**31), 2**31), (-(2**15), 2**15), (-128, 128), (5, 6), (-8, 8)][kind], (rows, 1))
            for kind in kinds.repeat(rng.integers(1, 5, 24))
        ]
        words = np.concatenate(columns, axis=1).astype(np.int32).view(np.uint32)
        packed = packed_rows(words, 4, -8)
        np.testing.assert_array_equal(unpacked(packed, tmp_path), words.reshape(-1))


@pytest.mark.parametrize("scale", [0.0123, 0.2, 0.3137, 0.7])
def test_exponentials_are_unpacked_to_the_bit(scale: float, tmp_path: Path) -> None:
    """Those of great scales are denormal numbers and 0."""
    table = np.exp(np.float64(np.float32(scale)) * np.arange(-255, 1)).astype(np.float32)
    packed = packed_powers(table, 2)
    assert packed is not None and packed.data.size == 48
    np.testing.assert_array_equal(unpacked(packed, tmp_path), table.view(np.uint32))


@pytest.mark.parametrize(
    "table", [np.ones(255, np.float32), np.arange(256, dtype=np.float32), np.full(256, np.nan, np.float32)]
)
def test_other_floats_stay(table: NDArray[np.float32]) -> None:
    assert packed_powers(table, 2) is None


@pytest.mark.parametrize(
    "words",
    [
        np.random.default_rng(0).integers(-9, 8, (6, 64)).astype(np.int8),  # 17 numbers
        np.zeros((3, 7), np.int8),  # no whole words
        np.zeros((4, 8), np.int8),  # too few to save anything
        np.zeros((4, 80), np.float32),
    ],
)
def test_what_is_not_packed(words: NDArray[np.generic]) -> None:
    assert packed_stream(words, min(0, int(words.min())), max(0, int(words.max()))) is None


M4 = Target("cortex-m4", frozenset({"dsp", "fpu"}))


VALUES = {4: range(-8, 8), 2: range(-2, 2), 1: (-1, 1)}
# bits, shapes of the input and of the weights, whether an expression follows the sums
DENSE = [
    (4, (1, 5), (3, 5), False),
    (4, (1, 6), (8, 6), True),
    (4, (1, 7), (9, 7), False),
    (4, (1, 100), (24, 100), True),
    (2, (1, 7), (9, 7), False),
    (2, (1, 8), (8, 8), True),
    (2, (1, 260), (16, 260), False),
    (1, (1, 64), (9, 64), False),
    (1, (1, 260), (24, 260), True),
]
CONVOLUTIONS = [
    (2, (1, 6, 5, 5), (5, 6, 1, 1), False),
    (2, (1, 64, 3, 3), (16, 64, 1, 1), False),
    (2, (1, 260, 2, 2), (8, 260, 1, 1), False),
    (2, (1, 8, 7, 5), (6, 8, 3, 3), False),
    (2, (1, 16, 5, 5), (16, 8, 3, 3), False),
    (1, (1, 32, 5, 3), (8, 32, 1, 1), False),
    (1, (1, 136, 3, 3), (12, 136, 1, 1), False),
    (1, (1, 8, 6, 6), (9, 8, 3, 3), False),
]


def layers(cases: Sequence[tuple[int, tuple[int, ...], tuple[int, ...], bool]]) -> list[Case]:
    """Return layers of weights of few bits, by the schedules for them and in portable C, with the extremes."""
    found = []
    for number, (bits, shape, kernel, is_real) in enumerate(cases):
        rng = np.random.default_rng(number)
        outputs = kernel[0]
        weights = rng.choice(VALUES[bits], kernel).astype(np.int8)
        weights[::3] = rng.choice((VALUES[bits][0], VALUES[bits][-1]), weights[::3].shape)
        weights[2] = VALUES[bits][number % 2 - 1]
        constants = {
            "w": weights, "b": rng.integers(-3000, 3000, outputs).astype(np.int32), "s": np.float32(0.1),
            "ws": rng.uniform(0.005, 0.02, outputs).astype(np.float32), "ys": np.float32(0.15), "z": np.int8(3),
            "wz": np.zeros(outputs, np.int8), "bz": np.zeros(outputs, np.int32),
        }  # fmt: skip
        constants["bs"] = constants["s"] * constants["ws"]
        if is_real:  # a sigmoid: an expression follows the sums
            constants["b"] = (constants["b"] * constants["bs"]).astype(np.float32)
        pads = {"pads": [int(kernel[-1] > 1)] * 4, "group": shape[1] // kernel[1]}
        op, more = ("Gemm", {"transB": 1}) if len(shape) == 2 else ("Conv", pads)
        nodes = [
            helper.make_node("DequantizeLinear", ["x", "s", "z"], ["a"]),
            helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["c"], axis=0),
            *([] if is_real else [helper.make_node("DequantizeLinear", ["b", "bs", "bz"], ["d"], axis=0)]),
            helper.make_node(op, ["a", "c", "b" if is_real else "d"], ["e"], **more),
            *([helper.make_node("Sigmoid", ["e"], ["f"])] if is_real else []),
            helper.make_node("QuantizeLinear", ["f" if is_real else "e", "ys", "z"], ["y"]),
        ]
        used = {name for node in nodes for name in node.input}
        proto = model(nodes, {"x": (np.int8, shape)}, ["y"], {k: v for k, v in constants.items() if k in used})
        graph = passes.run(import_graph(proto, f"packed{number}"), M4)
        (node,) = (node for node in graph.nodes if node.op in ("dense", "conv2d"))
        plans = []
        plain = Choice("c99_rows" if node.op == "dense" else "c99_patch")
        for name, choice in (("packed", few_bits_of(node, graph, bits)), ("plain", plain)):
            named = replace(graph, name=f"{name}{number}")
            plans.append(make_plan(named, M4, schedules={node.title: choice}))
        for feed in (rng.integers(-128, 128, shape), rng.choice((-128, 127), shape), np.full(shape, -128)):
            found.append(Case(plans[0], plans[1], {"x": feed.astype(np.int8)}))
    return found


def few_bits_of(node: Node, graph: Graph, bits: int) -> Choice:
    """Return the schedule with weights of this number of bits that supports a node."""
    if node.op == "dense":
        found = [one.name for one in (Gemv(bits=bits), GemvByteSums(bits=bits)) if one.supports(node, graph, M4)]
        return Choice(found[0], {"bits": bits})
    return Choice(next(one.name for one in (PointwiseFields(), Im2colFields()) if one.supports(node, graph, M4)))


def schedules(cases: Sequence[Case]) -> set[str]:
    """Return the schedules that packed plans have for convolutions and dense layers."""
    return {step.schedule.name for case in cases for step in case.plan.steps if step.node.op in ("dense", "conv2d")}


def test_dense_layers_in_plain_c(tmp_path: Path) -> None:
    cases = layers(DENSE)
    assert schedules(cases) == {"dsp_rows", "dsp_row_sums"}
    assert failures(cases, tmp_path, None) == []


@pytest.mark.slow
def test_convolutions_in_plain_c(tmp_path: Path) -> None:
    cases = layers(CONVOLUTIONS)
    assert schedules(cases) == {"dsp_fields", "dsp_fieldpatch"}
    assert failures(cases, tmp_path, None) == []


@pytest.mark.slow
@pytest.mark.parametrize("optimise", ["-O2", "-Os"])
@pytest.mark.parametrize("cases", [DENSE, CONVOLUTIONS], ids=["dense", "convolutions"])
def test_few_bits_with_simd(cases: Sequence[Any], optimise: str, tmp_path: Path) -> None:
    assert failures(layers(cases), tmp_path, "mps2_an386", optimise) == []
