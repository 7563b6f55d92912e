"""Streams of few bits: packed, and unpacked by the C that devices run."""

import subprocess
from dataclasses import replace
from pathlib import Path

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
from mtool.compiler.kernels.dense.dsp import Gemv, GemvByteSums
from mtool.compiler.kernels.few_bits import BYTES, HALVES, PAIRS, Packing, packing_of
from mtool.compiler.kernels.target import Target
from mtool.compiler.plan import Choice, make_plan

Words = NDArray[np.uint32]
FORMS = {"bytes": BYTES, "pairs": PAIRS, "halves": HALVES}


def stream(form: str, least: int, most: int) -> Words:
    """Return 6 rows: two words, weights, three words of which the second is equal in all rows."""
    rng = np.random.default_rng(0)
    weights = rng.integers(least, most + 1, (6, 64))
    if form == "pairs":
        weights = weights[:, ::2] + 256 * weights[:, 1::2]
    plain = rng.integers(0, 2**32, (6, 5), np.uint64).astype(np.uint32)
    plain[:, 3] = 0xFFFFFF01
    words = np.ascontiguousarray(weights.astype(np.int8 if form == "bytes" else np.int16)).view(np.uint32)
    return np.concatenate([plain[:, :2], words, plain[:, 2:]], axis=1)


def unpacked(packing: Packing, packed: Words, folder: Path) -> Words:
    words = ", ".join(f"{word}u" for word in packed.tolist())
    (folder / "t.c").write_text(
        f'#include <stdio.h>\n#include "mt_unpack.h"\n{packing.macro}\n'
        f"static const uint32_t packed[] = {{{words}}};\nstatic uint32_t words[{packing.words}];\n"
        f"int main(void)\n{{\n    {packing.function}(words, packed);\n"
        f"    fwrite(words, 4, {packing.words}, stdout);\n    return 0;\n}}\n"
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
    return np.frombuffer(found, np.uint32).reshape(packing.rows, -1)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("least", "most", "bits"), [(-8, 7, 4), (0, 15, 4), (-2, 1, 2), (-1, 1, 2), (-1, 0, 1)])
def test_unpacking_gives_the_stream(form: str, least: int, most: int, bits: int, tmp_path: Path) -> None:
    words = stream(form, least, most)
    packing = packing_of(words, least, most)
    assert packing is not None and packing.bits == bits
    assert least >= 0 or packing.form is FORMS[form]  # a number that is not negative is the same in bytes and in pairs
    packed = packing.pack(words)
    plain = 4 * len(words) + 1  # one word of five is stored once
    assert packed.size == packing.packed_words == 5 + plain + 6 * (words.shape[1] - 5) // packing.together
    np.testing.assert_array_equal(unpacked(packing, packed, tmp_path), words)


def test_words_that_do_not_fill_a_packed_one_stay_plain(tmp_path: Path) -> None:
    words = stream("bytes", -8, 7)[:, :-4]
    packing = packing_of(words, -8, 7)
    assert packing is not None and (packing.before, packing.count, packing.after) == (2, 14, 1)
    np.testing.assert_array_equal(unpacked(packing, packing.pack(words), tmp_path), words)


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
    assert packing_of(words, min(0, int(words.min())), max(0, int(words.max()))) is None


M4 = Target("cortex-m4", frozenset({"dsp", "fpu"}))


def dense_cases() -> list[Case]:
    """Return dense layers of weights of 4 bits: all rests of the inputs, few and many outputs, the extremes."""
    cases = []
    for number, (depth, outputs, is_real) in enumerate(
        [
            (5, 3, False),
            (6, 8, True),
            (7, 9, False),
            (64, 16, False),
            (100, 24, True),
        ]
    ):
        rng = np.random.default_rng(number)
        weights = rng.integers(-8, 8, (depth, outputs)).astype(np.int8)
        weights[:, ::3] = rng.choice([-8, 7], (depth, len(range(0, outputs, 3))))
        constants = {
            "w": weights, "b": rng.integers(-3000, 3000, outputs).astype(np.int32), "s": np.float32(0.1),
            "ws": rng.uniform(0.005, 0.02, outputs).astype(np.float32), "ys": np.float32(0.15), "z": np.int8(3),
            "wz": np.zeros(outputs, np.int8), "bz": np.zeros(outputs, np.int32),
        }  # fmt: skip
        constants["bs"] = constants["s"] * constants["ws"]
        if is_real:  # a sigmoid: an expression follows the sums
            constants["b"] = (constants["b"] * constants["bs"]).astype(np.float32)
        nodes = [
            helper.make_node("DequantizeLinear", ["x", "s", "z"], ["a"]),
            helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["c"], axis=1),
            *([] if is_real else [helper.make_node("DequantizeLinear", ["b", "bs", "bz"], ["d"], axis=0)]),
            helper.make_node("Gemm", ["a", "c", "b" if is_real else "d"], ["e"]),
            *([helper.make_node("Sigmoid", ["e"], ["f"])] if is_real else []),
            helper.make_node("QuantizeLinear", ["f" if is_real else "e", "ys", "z"], ["y"]),
        ]
        used = {name for node in nodes for name in node.input}
        proto = model(nodes, {"x": (np.int8, [1, depth])}, ["y"], {k: v for k, v in constants.items() if k in used})
        graph = passes.run(import_graph(proto, f"packed{number}"), M4)
        (node,) = (node for node in graph.nodes if node.op == "dense")
        plans = []
        for name, choice in (("packed", few_bits_of(node, graph)), ("plain", Choice("c99_rows"))):
            named = replace(graph, name=f"{name}{number}")
            plans.append(make_plan(named, M4, schedules={node.title: choice}))
        feeds = {"x": rng.integers(-128, 128, (1, depth)).astype(np.int8)}
        cases += [
            Case(plans[0], plans[1], feeds),
            Case(plans[0], plans[1], {"x": np.full((1, depth), -128, np.int8)}),
        ]
    return cases


def few_bits_of(node: Node, graph: Graph) -> Choice:
    """Return the schedule with weights of 4 bits that supports a node."""
    found = [one for one in (Gemv(bits=4), GemvByteSums(bits=4)) if one.supports(node, graph, M4)]
    return Choice(found[0].name, {"bits": 4})


def test_four_bits_in_plain_c(tmp_path: Path) -> None:
    cases = dense_cases()
    assert {case.plan.steps[0].schedule.name for case in cases} == {"dsp_rows", "dsp_row_sums"}
    assert failures(cases, tmp_path, None) == []


@pytest.mark.slow
@pytest.mark.parametrize("optimise", ["-O2", "-Os"])
def test_four_bits_with_simd(optimise: str, tmp_path: Path) -> None:
    assert failures(dense_cases(), tmp_path, "mps2_an386", optimise) == []
