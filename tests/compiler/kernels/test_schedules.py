"""Every schedule of a core with random shapes, strides, pads, zero points and limits, against portable C.

Integers are held bit for bit. On the host the runtime's plain C stands for the assembly, under the sanitizers; in QEMU
the assembly runs. All cases of a target are one firmware, those of the settings of knobs too.
"""

from collections.abc import Callable
from pathlib import Path

import amount
import numpy as np
import pytest
from graphs import lowered
from one_firmware import Case, failures
from schedules import (
    AVR,
    DSP,
    HOST,
    M0,
    M3,
    M7,
    MAKES,
    MVE,
    RV32,
    RVV,
    SIMD,
    Made,
    case_of,
    cases_of,
    planned,
    portable,
    quantized,
    rescaled,
    wide_convolution,
)

from mtool.compiler.kernels import registry
from mtool.compiler.kernels.target import Target

pytestmark = pytest.mark.long

CASES = amount.of(24, 2)  # of each schedule
SETTINGS = amount.of(3, 1)  # of each setting of a knob

PLAIN = [
    (DSP, "dsp"),
    (MVE, "mve"),
    (DSP, "dsp16"),
    (MVE, "mve16"),
    (DSP, "f32"),
    (MVE, "mve_f32"),
    (M3, "int"),
    (AVR, "int"),
    (RVV, "rvv"),
]
EMULATED = [
    (DSP, "dsp", "mps2_an386"),
    (DSP, "dsp16", "mps2_an386"),
    (MVE, "mve", "mps3_an547"),
    (MVE, "mve16", "mps3_an547"),
    (DSP, "f32", "mps2_an386"),
    (MVE, "mve_f32", "mps3_an547"),
    (M3, "int", "mps2_an385"),
    (M0, "int", "mps2_an383"),
    (RV32, "int", "qemu_riscv32"),
    (RVV, "rvv", "qemu_riscv32_v"),
    (M7, "f32", "mps2_an500"),
]
INT8 = [case for case in EMULATED if case[1] in ("dsp", "mve", "rvv")]


def wide_cases(target: Target, prefix: str) -> list[Case]:
    """Kernels wider than the image, by each schedule of the family `prefix` that takes them.

    Conditions that hold for each of its windows, or for none, are not written: clang would warn of them.
    """
    rng = np.random.default_rng(3)
    make = MAKES.get(prefix, quantized)
    chosen = [s for s in registry.KERNELS["conv2d"].schedules if s.name.rpartition("_")[0] == prefix]
    made: list[Case] = []
    found: set[str] = set()
    for _ in range(8):
        proto, feeds = wide_convolution(rng, make)
        graph = lowered(proto, target)
        reference = planned(graph, target, f"wide{len(made)}_c99", "conv2d", portable("conv2d")[:1])
        for schedule in chosen:
            case = case_of(graph, target, f"wide{len(made)}", "conv2d", schedule, reference, feeds)
            if case is not None:
                found.add(schedule.name)
                made.append(case)
    assert found & {f"{prefix}_patch", f"{prefix}_columns"}
    return made


def each_setting(target: Target, prefix: str, asked: Callable[..., Made] | None = None) -> list[Case]:
    """The cases of each schedule, and those of each with one knob turned."""
    return [
        *cases_of(target, prefix, CASES, asked),
        *cases_of(target, prefix, SETTINGS, asked, turned=True),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("target, prefix", PLAIN, ids=[f"{prefix}-{target.cpu}" for target, prefix in PLAIN])
@pytest.mark.product
def test_the_plain_c_of_schedules(target: Target, prefix: str, tmp_path: Path) -> None:
    assert failures([*each_setting(target, prefix), *wide_cases(target, prefix)], tmp_path, None) == []


@pytest.mark.product(3)
@pytest.mark.parametrize("narrower", ["", "MT_SIMD_NARROW", "MT_PORTABLE"], ids=["widest", "four", "plain"])
def test_vectors_of_this_computer(narrower: str, tmp_path: Path) -> None:
    """Those of the processor that runs this, those that each one has, and what other compilers get."""
    cases = [*cases_of(SIMD, "simd", CASES), *wide_cases(SIMD, "simd")]
    assert failures(cases, tmp_path, None, definitions=[narrower] if narrower else []) == []


@pytest.mark.slow
def test_the_portable_c_of_a_kernel_wider_than_the_image(tmp_path: Path) -> None:
    assert failures(wide_cases(HOST, "c99"), tmp_path, None) == []


@pytest.mark.parametrize("target, prefix, board", EMULATED, ids=[f"{case[1]}-{case[2]}" for case in EMULATED])
@pytest.mark.product(2)
def test_schedules_in_the_emulator(target: Target, prefix: str, board: str, tmp_path: Path) -> None:
    cases = each_setting(target, prefix) if board != "mps2_an500" else cases_of(target, prefix, CASES)
    assert failures(cases, tmp_path, board) == []


@pytest.mark.slow
@pytest.mark.product(2)
@pytest.mark.parametrize("target, prefix", PLAIN[:2], ids=[prefix for _, prefix in PLAIN[:2]])
def test_the_plain_c_of_schedules_as_tflite_rounds(target: Target, prefix: str, tmp_path: Path) -> None:
    assert failures(each_setting(target, prefix, rescaled), tmp_path, None) == []


@pytest.mark.slow
@pytest.mark.product(3)
@pytest.mark.parametrize("target, prefix, board", INT8, ids=[case[2] for case in INT8])
def test_schedules_as_tflite_rounds_in_the_emulator(target: Target, prefix: str, board: str, tmp_path: Path) -> None:
    """At -Os, which many a build has: the assembly takes nearly all registers."""
    assert failures(each_setting(target, prefix, rescaled), tmp_path, board, "-Os") == []


def test_knobs_begin_with_the_default() -> None:
    for kernel in registry.KERNELS.values():
        for schedule in kernel.schedules:
            for name, knob in schedule.knobs().items():
                assert getattr(schedule, name) == knob.default and len(set(knob.values)) == len(knob.values) > 1
                assert [knob.read(knob.written(value)) for value in knob.values] == list(knob.values)
                assert knob.meaning and ("auto" in knob.meaning) == (knob.written(knob.default) == "auto")
    (patch,) = (s for s in registry.KERNELS["conv2d"].schedules if s.name == "dsp_patch")
    assert patch.knobs()["unroll"].values == (0, 32, 16, 8)
    assert patch.knobs()["unroll"].read("16") == 16 and patch.knobs()["unroll"].read("12") is None
