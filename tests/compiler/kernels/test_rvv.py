"""RISC-V vector loops against exact arithmetic: one firmware, run on cores with several vector lengths.

Many sums lie at a half or beside it, where float32 rounds to the even neighbour. Numbers of outputs and of input
vectors are such that a tile's last part is not whole.
"""

from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from graphs import lowered, model
from one_firmware import Case, build_for, emulated, failures
from onnx import helper

from mtool.compiler.codegen.weights import number_rows
from mtool.compiler.ir import DType, Expr
from mtool.compiler.ir.scalar import FUNCTIONS, FixedRequantize, Rescale
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.rvv import VectorEpilogue
from mtool.compiler.kernels.scaling import FixedScaling
from mtool.compiler.kernels.target import Target
from mtool.compiler.plan import make_plan
from mtool.compiler.plan.choice import Choice

BOARD = "qemu_riscv32_v"
RVV = Target("rv32imc_zve32x", frozenset({"rvv"}))
SHIFT = 9
SHAPES = [(1, 1, 1), (1, 5, 150), (2, 4, 70), (5, 7, 17), (7, 9, 33), (13, 3, 8)]  # input vectors, depth, outputs
KINDS = ["", "_near", "_even", "_once", "_twice"]


def biases_at_halves(rng: np.random.Generator, multiplier: Array) -> Array:
    """Return biases with which the products of all channels lie at a half or next to it, int32 [N]."""
    steps = rng.integers(-110, 110, len(multiplier)) + 0.5
    near = np.rint(steps * 2.0 ** (32 + SHIFT) / multiplier).astype(np.int32)
    return (near + rng.integers(-1, 2, len(multiplier))).astype(np.int32)


def where_floats_differ(rng: np.random.Generator, count: int) -> tuple[Array, Array]:
    """Return multipliers and biases whose product float32 rounds to the other side of a half, [count] each."""
    multiplier = rng.integers(2**23, 2**24, 2000 * count) << 7
    steps = rng.integers(-110, 110, len(multiplier)) + 0.5
    bias = np.rint(steps * 2.0 ** (32 + SHIFT) / multiplier).astype(np.int32)
    floats = np.rint(bias.astype(np.float32) * np.ldexp(multiplier, -32 - SHIFT).astype(np.float32))
    found = np.flatnonzero(floats != np.floor(bias * multiplier / 2.0 ** (32 + SHIFT) + 0.5))[:count]
    assert len(found) == count
    return multiplier[found], bias[found]


def scaling(rng: np.random.Generator, kind: str, outputs: int) -> tuple[VectorEpilogue, Expr, list[Array]]:
    """Return an epilogue of a kind, the expression that it stands for, and that one's numbers."""
    zero, low = int(rng.integers(-128, 128)), int(rng.choice([-128, -100]))
    multiplier = rng.integers(2**23, 2**24, outputs) << 7
    if kind == "_even":
        multiplier = np.full(outputs, 2**30)
    bias = biases_at_halves(rng, multiplier)
    if kind in ("", "_near", "_even"):
        if kind == "_near":
            turned = rng.random(outputs) < 0.7
            multiplier[turned], bias[turned] = where_floats_differ(rng, int(turned.sum()))
            multiplier = np.where(turned, -multiplier, multiplier)
        how = FixedRequantize(zero, low, 120, SHIFT, even=kind == "_even", near=kind == "_near")
        limits = (zero if how.even else how.offset, SHIFT, low, 120)
        numbers = [multiplier.astype(np.int32)]
        epilogue = VectorEpilogue(Mock(), Mock(), None, kind, limits, bias, numbers[0][:, None])
        return epilogue, Expr("requantize_fixed", DType.INT8, value=how), numbers
    places = rng.integers(SHIFT - 1, SHIFT + 2, outputs).astype(np.int32)
    numbers = [multiplier.astype(np.int32), places]
    fixed = FixedScaling.of(numbers[0], places, twice=kind == "_twice")
    rescale = Rescale(zero, low, 120, wide=False, twice=kind == "_twice")
    epilogue = VectorEpilogue(Mock(), Mock(), None, kind, (zero, 0, low, 120), bias, fixed.words.view(np.int32))
    return epilogue, Expr("rescale", DType.INT8, value=rescale), numbers


def checks() -> str:
    """Return a program that says which call of the runtime gives other bytes than they should be."""
    rng = np.random.default_rng(7)
    lines = ['#include "mt_rvv_tile_int8.h"', '#include "mt_rvv_depthwise_int8.h"', "void say(const char *text);"]
    calls: list[str] = []

    def table(kind: str, data: Array) -> str:
        lines.append(f"static const {kind} t{len(lines)}[] = {{\n{number_rows(data)}\n}};")
        return f"t{len(lines) - 1}"

    def check(call: str, numbers: Array, limits: str, expected: Array) -> None:
        wanted = table("int8_t", expected)
        for width in ("wide", "tall"):
            text = call.format(width=width, packed=table("uint32_t", numbers), limits=limits)
            calls.append(
                f"    memset(out, 99, sizeof(out));\n    {text};\n"
                f"    if (memcmp(out, {wanted}, {expected.size}) || out[{expected.size}] != 99)\n"
                f'        say("{text}\\n");'
            )

    for kind in KINDS:
        for vectors, depth, outputs in SHAPES:
            epilogue, expr, numbers = scaling(rng, kind, outputs)
            how = table("struct mt_rvv_range", np.zeros(0, np.int8))
            lines[-1] = f"static const struct mt_rvv_range {how} = {{{', '.join(map(str, epilogue.range))}}};"
            x = rng.integers(-128, 128, (vectors, depth)).astype(np.int8)
            x[rng.random(vectors) < 0.5] = 0  # whose sums are the biases
            weights = rng.integers(-128, 128, (depth, outputs)).astype(np.int8)
            sums = x.astype(np.int32) @ weights.astype(np.int32) + epilogue.bias
            expected = FUNCTIONS[expr.op].meaning(expr, sums, *numbers)
            columns = table("struct mt_rvv_source", np.zeros(0, np.int8))
            lines[-1] = f"static struct mt_rvv_source {columns};"
            calls.append(f"    {columns} = mt_rvv_columns({table('int8_t', x)}, {depth});")
            call = f"mt_rvv_{{width}}{kind}(&{columns}, {vectors}, {{packed}}, out, {outputs}, {outputs}, &{{limits}})"
            check(call, epilogue.packed(weights), how, np.asarray(expected))

            ring = rng.integers(-128, 128, (vectors + 20) * outputs).astype(np.int8)
            ring[rng.random(ring.size) < 0.5] = 0
            taps = (rng.integers(0, 20, depth) * outputs).astype(np.int32)
            at = taps[:, None, None] + outputs * np.arange(vectors)[:, None] + np.arange(outputs)
            sums = (ring[at].astype(np.int32) * weights[:, None].astype(np.int32)).sum(axis=0) + epilogue.bias
            expected = FUNCTIONS[expr.op].meaning(expr, sums, *numbers)
            call = f"mt_rvv_taps_{{width}}{kind}({table('int8_t', ring)}, {table('int32_t', taps)}, {depth}, "
            call += f"{{packed}}, out, {vectors}, {outputs}, {outputs}, &{{limits}})"
            check(call, epilogue.packed(weights), how, np.asarray(expected))
    for to, source in ((3, 10), (10, 3), (100, 3), (5, 5)):  # 200 bytes that overlap, and others
        moved = np.arange(400).astype(np.int8)
        moved[to : to + 200] = moved[source : source + 200].copy()
        text = f"mt_rvv_move(out + {to}, out + {source}, 200)"
        calls.append(
            "    for (int32_t i = 0; i < 400; ++i)\n        out[i] = (int8_t)i;\n"
            f'    {text};\n    if (memcmp(out, {table("int8_t", moved)}, 400))\n        say("{text}\\n");'
        )
    return "\n".join([*lines, "static int8_t out[512];", "int main(void)", "{", *calls, '    say("end\\n");',
                      "    return 0;", "}", ""])  # fmt: skip


@pytest.mark.product(2)
@pytest.mark.parametrize("optimise", ["-O2", "-Og"])
def test_any_vector_length_gives_exact_results(optimise: str, tmp_path: Path) -> None:
    (tmp_path / "checks.c").write_text(checks())
    for name in ("models.c", "references.c"):
        (tmp_path / name).write_text("extern int unused;\n")
    build_for(tmp_path, BOARD, optimise)
    for length in (128, 256, 512):
        assert emulated(tmp_path, BOARD, ("vlen=128", f"vlen={length}")) == "end\n", length


@pytest.mark.slow
def test_floats_are_not_written_over_the_results_that_they_come_from(tmp_path: Path) -> None:
    """A row of int8 lies in the output's place until an epilogue reads it: that must not be of larger elements."""
    rng = np.random.default_rng(0)
    constants = {
        "s": np.float32(0.05), "z": np.int8(3), "w": rng.integers(-50, 50, (8, 1, 3, 3)).astype(np.int8),
        "ws": np.float32(0.01), "wz": np.int8(0), "ys": np.float32(0.1),
    }  # fmt: skip
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["xf"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wf"]),
        helper.make_node("Conv", ["xf", "wf"], ["c"], group=8, pads=[1, 1, 1, 1]),
        helper.make_node("QuantizeLinear", ["c", "ys", "wz"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "ys", "wz"], ["y"]),
    ]
    graph = lowered(model(nodes, {"x": (np.int8, (1, 8, 6, 6))}, ["y"], constants), RVV)
    plain = replace(graph, name="depthwise_plain")
    portable = {step.node.name: Choice("c99_plane") for step in make_plan(plain, RVV).steps if step.node.op == "conv2d"}
    assert portable
    feeds = {"x": rng.integers(-128, 128, (1, 8, 6, 6)).astype(np.int8)}
    case = Case(make_plan(replace(graph, name="depthwise"), RVV), make_plan(plain, RVV, schedules=portable), feeds)
    assert failures([case], tmp_path, None) == []
