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
from mtool.base.option_values import Compress
from mtool.compiler import passes
from mtool.compiler.frontend.onnx_file import import_graph
from mtool.compiler.ir import Graph, Node
from mtool.compiler.kernels.conv2d.dsp.tiles import Im2colFields, PointwiseFields
from mtool.compiler.kernels.conv2d.integer import Tables
from mtool.compiler.kernels.dense import mve
from mtool.compiler.kernels.dense.dsp import Gemv, GemvByteSums
from mtool.compiler.kernels.dense.integer import Fields
from mtool.compiler.kernels.few_bits import Packed, Weights, packed_powers, packed_rows, packed_stream
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


def unpacked(packed: Sequence[Packed], folder: Path) -> list[Words]:
    """Return the words of constants that one program unpacks."""
    lines, calls = [], []
    for number, one in enumerate(packed):
        words = ", ".join(f"{word}u" for word in one.data.tolist())
        lines += [
            f"static const uint32_t packed{number}[] = {{{words}}};",
            f"static uint32_t words{number}[{one.words}];",
        ]
        calls.append(f"    {one.function}(words{number}, packed{number});")
        calls.append(f"    fwrite(words{number}, 4, {one.words}, stdout);")
    text = [
        "#include <stdio.h>",
        '#include "mt_unpack.h"',
        *lines,
        "int main(void)",
        "{",
        *calls,
        "    return 0;",
        "}",
        "",
    ]
    (folder / "t.c").write_text("\n".join(text))
    strict = ["-std=c99", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror", "-fsanitize=undefined,address"]
    include = f"-I{resources.path('crt') / 'include'}"
    subprocess.run(["gcc", *strict, "-O1", include, "-o", folder / "t", folder / "t.c"], check=True)
    found = np.frombuffer(subprocess.run([folder / "t"], check=True, capture_output=True).stdout, np.uint32)
    return np.split(found, np.cumsum([one.words for one in packed])[:-1])


def assert_unpacked(streams: Sequence[Words], packed: Sequence[Packed], folder: Path) -> None:
    for words, found in zip(streams, unpacked(packed, folder), strict=True):
        np.testing.assert_array_equal(found, words.reshape(-1))


@pytest.mark.parametrize("form", ["bytes", "pairs", "halves"])
def test_unpacking_gives_the_stream(form: str, tmp_path: Path) -> None:
    streams, made = [], []
    for least, most, bits in [(-8, 7, 4), (0, 15, 4), (-2, 1, 2), (-1, 1, 2), (-1, 0, 1)]:
        words = stream(form, least, most)
        packed = packed_stream(words, Weights(least, most), "fields")
        assert packed is not None and packed.words == words.size
        weights = words.shape[1] - 5
        runs = 2 * 6  # five kinds of columns before and behind the weights, and these
        biases, other, apart = 2 * 6 // 2, 6, 2
        fields = -(-6 * weights * bits // (16 if form == "halves" else 8))
        assert packed.data.size == 3 + runs + biases + other + apart + fields
        streams.append(words)
        made.append(packed)
    assert_unpacked(streams, made, tmp_path)


def test_words_of_any_kind_are_unpacked(tmp_path: Path) -> None:
    """Columns that are narrow, wide or few in any order, in rows of any number."""
    rng, streams = np.random.default_rng(1), []
    for rows in (1, 3, 4, 9):
        kinds = rng.integers(0, 5, 24)
        columns = [
            rng.integers(*[(-(2**31), 2**31), (-(2**15), 2**15), (-128, 128), (5, 6), (-8, 8)][kind], (rows, 1))
            for kind in kinds.repeat(rng.integers(1, 5, 24))
        ]
        streams.append(np.concatenate(columns, axis=1).astype(np.int32).view(np.uint32))
    assert_unpacked(streams, [packed_rows(words, Weights(-8, 7)) for words in streams], tmp_path)


def test_a_column_that_is_added_to_words_stored_apart(tmp_path: Path) -> None:
    """Biases in the low bits of those beside them, one of which does not fit."""
    rng, streams = np.random.default_rng(2), []
    for rows in (8, 20):
        words = rng.integers(-3000, 3000, (rows, 4))
        words[rows // 2, 0] = words[1, 1] = 1_655_000
        for column in (1, 2, 3):
            fits = words[:, column] < 3000
            words[fits, column] = words[fits, column] * 256 + words[fits, column - 1]
        streams.append(words.astype(np.int32).view(np.uint32))
    assert_unpacked(streams, [packed_rows(words, Weights(0, 0)) for words in streams], tmp_path)


def laid_out(weights: NDArray[np.int8], layout: str) -> Words:
    """Return rows of two biases and weights: of one channel, in pairs of channels, or of four by words."""
    count = len(weights)
    if layout == "rows":
        words = weights.view(np.uint32)
    elif layout == "pairs":
        words = (weights[::2].astype(np.int16) + 256 * weights[1::2].astype(np.int16)).view(np.uint32)
    else:
        words = weights.reshape(count // 4, 4, -1, 4).swapaxes(1, 2).reshape(count // 4, -1).view(np.uint32)
    biases = np.random.default_rng(0).integers(-30000, 30000, (len(words), 2)).astype(np.int32).view(np.uint32)
    return np.concatenate([biases, words], axis=1)


CODES: dict[str, tuple[Compress, float]] = {  # the greatest share of a weight's eight bits
    "table of all": ("table", 0.4),
    "table of 100": ("table", 0.95),
    "tables of channels": ("table", 0.7),
    "zeros": ("sparse", 0.4),
    "table and zeros": ("sparse", 0.3),
    "huffman": ("huffman", 0.55),
    "one": ("huffman", 0.25),
}


@pytest.mark.parametrize("name", CODES)
def test_codes_give_the_stream(name: str, tmp_path: Path) -> None:
    rng, shape = np.random.default_rng(4), (8, 384)
    several = rng.choice(np.arange(-127, 127), 8, replace=False)
    weights = {
        "table of all": lambda: rng.choice(several, shape),
        "table of 100": lambda: rng.integers(-50, 50, shape),
        "tables of channels": lambda: np.stack([rng.choice(rng.integers(-127, 127, 15), shape[1]) for _ in range(8)]),
        "zeros": lambda: rng.integers(-127, 127, shape) * np.repeat(rng.random((8, 24)) < 0.25, 16, axis=1),
        "table and zeros": lambda: rng.choice(several, shape) * np.repeat(rng.random((8, 24)) < 0.25, 16, axis=1),
        "huffman": lambda: np.rint(rng.standard_normal(shape) * 3),
        "one": lambda: np.where(rng.random(shape) < 0.1, 1, 5),
    }[name]().astype(np.int8)
    coding, most = CODES[name]
    streams = [laid_out(weights, layout) for layout in ("rows", "pairs", "fours")]
    made = []
    for words in streams:
        packed = packed_stream(words, Weights(int(weights.min()), int(weights.max()), weights), coding)
        assert packed is not None and packed.function == "mt_unpack_coded"
        assert packed.data.nbytes < most * weights.size + 4 * len(words) + 100
        made.append(packed)
    assert_unpacked(streams, made, tmp_path)


def test_exponentials_are_unpacked_to_the_bit(tmp_path: Path) -> None:
    """Those of great scales are denormal numbers and 0."""
    scales = np.array([[0.0123], [0.2], [0.3137], [0.7]], np.float32).astype(float)
    tables = [*np.exp(scales * np.arange(-255, 1)).astype(np.float32)]
    made = [packed for table in tables if (packed := packed_powers(table, 2)) is not None and packed.data.size == 48]
    assert_unpacked([table.view(np.uint32) for table in tables], made, tmp_path)


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
    assert packed_stream(words, Weights(min(0, int(words.min())), max(0, int(words.max()))), "fields") is None


M4 = Target("cortex-m4", frozenset({"dsp", "fpu"}))
MVE = Target("cortex-m55", frozenset({"dsp", "fpu", "mve"}))
TABLES = [  # cores whose convolutions look sums up
    (Target("cortex-m3", frozenset()), "mps2_an385"),
    (Target("cortex-m0plus", frozenset()), "mps2_an383"),
    (Target("rv32imc", frozenset()), "qemu_riscv32"),
]


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
LOOKED_UP = [  # in tables of 1 KB
    (2, (1, 6, 5, 5), (5, 6, 1, 1), False),
    (2, (1, 16, 5, 5), (8, 8, 1, 1), False),
    (2, (1, 28, 5, 3), (7, 28, 1, 1), False),
    (1, (1, 32, 5, 3), (8, 32, 1, 1), False),
    (1, (1, 4, 6, 6), (9, 4, 3, 3), False),
]


def layers(cases: Sequence[tuple[int, tuple[int, ...], tuple[int, ...], bool]], target: Target = M4) -> list[Case]:
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
        graph = passes.run(import_graph(proto, f"packed{number}"), target)
        (node,) = (node for node in graph.nodes if node.op in ("dense", "conv2d"))
        plans = []
        plain = Choice("c99_rows" if node.op == "dense" else "c99_patch")
        for name, choice in (("packed", few_bits_of(node, graph, bits, target)), ("plain", plain)):
            named = replace(graph, name=f"{name}{number}")
            plans.append(make_plan(named, target, schedules={node.title: choice}))
        for feed in (rng.integers(-128, 128, shape), rng.choice((-128, 127), shape), np.full(shape, -128)):
            found.append(Case(plans[0], plans[1], {"x": feed.astype(np.int8)}))
    return found


def few_bits_of(node: Node, graph: Graph, bits: int, target: Target) -> Choice:
    """Return the schedule with weights of this number of bits that supports a node."""
    if node.op == "dense":
        simd = (mve.Gemv(bits=max(bits, 2)),) if target == MVE else (Gemv(bits=bits), GemvByteSums(bits=bits))
        dense: tuple[Any, ...] = (*simd, Fields())
        found = next(one for one in dense if one.supports(node, graph, target))
        return Choice(found.name, {"bits": found.bits} if "bits" in found.knobs() else {})
    convolutions = (PointwiseFields(), Im2colFields(), Tables())
    return Choice(next(one.name for one in convolutions if one.supports(node, graph, target)))


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
@pytest.mark.parametrize(
    ("made", "schedule"), [(LOOKED_UP, "int_tables"), (DENSE, "int_fields")], ids=["tables", "pairs"]
)
@pytest.mark.parametrize(("target", "board"), [(TABLES[0][0], None), *TABLES], ids=str)
def test_sums_of_cores_without_simd(
    made: list[Any], schedule: str, target: Target, board: str | None, tmp_path: Path
) -> None:
    """Looked up in tables, or products of two outputs."""
    cases = layers(made, target)
    assert schedules(cases) == {schedule}
    assert failures(cases, tmp_path, board) == []


@pytest.mark.parametrize("target", [target for target, _ in TABLES], ids=str)
def test_dense_layers_of_few_bits_are_read_as_they_are(target: Target) -> None:
    """By default, unless the code is worth more than it saves: int8 takes more instructions on these cores."""
    for bits in VALUES:
        (case, *_) = layers([(bits, (1, 128), (128, 128), False)], target)
        plan = make_plan(case.plan.graph, target)
        assert {step.schedule.name for step in plan.steps} == {"int_fields"}


@pytest.mark.slow
@pytest.mark.parametrize(("board", "optimise"), [(None, "-O2"), ("mps3_an547", "-O2"), ("mps3_an547", "-Os")])
def test_vectors_of_fields(board: str | None, optimise: str, tmp_path: Path) -> None:
    cases = layers([case for case in DENSE if not case[3]], MVE)
    assert schedules(cases) == {"mve_rows"}
    assert failures(cases, tmp_path, board, optimise) == []


@pytest.mark.slow
@pytest.mark.parametrize("optimise", ["-O2", "-Os"])
@pytest.mark.parametrize("cases", [DENSE, CONVOLUTIONS], ids=["dense", "convolutions"])
def test_few_bits_with_simd(cases: Sequence[Any], optimise: str, tmp_path: Path) -> None:
    assert failures(layers(cases), tmp_path, "mps2_an386", optimise) == []
