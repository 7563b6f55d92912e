"""Constants and code in RAM: if flash has wait states and they fit."""

from pathlib import Path
from typing import Any

import pytest

from mtool import boards, commands
from mtool.base.errors import UsageError
from mtool.base.option_values import IN_RAM, is_set
from mtool.boards import Board
from mtool.commands.cost import standing_for
from mtool.compiler.codegen.conventions import Conventions
from mtool.compiler.compilation import compile_for, compile_model
from mtool.compiler.plan import Choice
from mtool.compiler.plan.for_time import RESERVED_BYTES
from mtool.compiler.request import Request
from mtool.compiler.tuned.results import TuningResults
from mtool.stages.compile_cache import cache_key
from mtool.stages.latency_estimate import estimate_latency

DIGITS = Path(__file__).parents[3] / "examples" / "digits" / "digits_int8.onnx"
L4 = boards.get("nucleo_l4r5zi")


def in_ram(board: Board, request: Request | None = None) -> dict[str, bool]:
    compiled = compile_model(DIGITS, board, request or Request())
    return {one.name: is_set(one.schedule, IN_RAM) for one in compiled.manifest.operators if one.constant_bytes}


def bytes_in_ram(board: Board, request: Request | None = None) -> int:
    return compile_model(DIGITS, board, request or Request()).manifest.constant_bytes_in_ram


def with_ram(size: int) -> Board:
    memories = {**L4.memories, "sram": L4.memories["sram"].model_copy(update={"size": size})}
    return L4.model_copy(update={"memories": memories})


@pytest.mark.slow
def test_constants_are_in_ram_if_flash_is_slow_and_they_fit() -> None:
    found = in_ram(L4)
    assert any(found.values())
    assert all(in_ram(L4, Request(optimize="speed")).values())
    assert 0 < bytes_in_ram(L4, Request(optimize="size")) <= 0.04 * L4.memories["sram"].size
    assert not any(in_ram(L4, Request(optimize="size", conventions=Conventions(context=True))).values())
    assert not any(in_ram(L4.model_copy(update={"clock_hz": 20_000_000})).values())  # no wait states there
    assert not any(in_ram(boards.get("mps2_an386")).values())
    little = in_ram(with_ram(RESERVED_BYTES + 6000), Request(optimize="speed"))
    assert any(little.values()) and not all(little.values())
    assert not any(in_ram(with_ram(RESERVED_BYTES)).values())


def test_a_requested_place_is_kept() -> None:
    moved = next(name for name, is_in_ram in in_ram(L4).items() if is_in_ram)
    asked = Request(schedules={moved: Choice("c99_patch")}, optimize="speed")
    assert not in_ram(L4, asked)[moved] and any(in_ram(L4, asked).values())


def hot(board: Board, **request: Any) -> tuple[str, ...]:
    return compile_model(DIGITS, board, Request(**request)).manifest.hot_functions


def test_code_is_in_ram_if_the_core_waits_for_it_and_it_fits() -> None:
    convs = {"digits_int8_conv_2", "digits_int8_conv_3"}  # Winograd's code is longer than the cache
    assert {*hot(L4)} == convs
    assert not hot(L4, optimize="size") and not hot(L4, protect=True)
    slow = L4.model_copy(update={"clock_hz": 20_000_000})  # no wait states there
    code = L4.memories["code_sram"]
    little, none = (
        L4.model_copy(update={"memories": {**L4.memories, "code_sram": code.model_copy(update=changes)}})
        for changes in ({"size": 4096}, {"holds": ()})
    )
    assert not hot(slow) and not hot(little) and not hot(none)
    assert not hot(boards.get("nucleo_h743zi")) and not hot(boards.get("mps2_an386"))
    assert {*hot(L4, schedules={"conv_2": Choice("c99_patch")})} == convs - {"digits_int8_conv_2"}


def test_code_in_ram_makes_the_estimate_shorter() -> None:
    none = {"code_sram": L4.memories["code_sram"].model_copy(update={"holds": ()})}
    boards_ = [L4, L4.model_copy(update={"memories": {**L4.memories, **none}})]
    sooner, later = (estimate_latency(emitted, board) for board, emitted in compile_for(DIGITS, boards_))
    assert sooner is not None and later is not None and sooner.milliseconds < 0.9 * later.milliseconds
    hot_need = next(one for one in commands.check(DIGITS, [L4]).fits[0].needs if one.memory == "code_sram")
    assert 4096 < hot_need.bytes < 32 * 1024


@pytest.mark.parametrize(
    ("board", "protect", "why"),
    [("nucleo_h743zi", False, "nucleo_h743zi has no RAM for code"), ("mps2_an386", True, "--protect does not let")],
)
def test_code_that_can_not_lie_in_ram_is_refused(board: str, protect: bool, why: str) -> None:
    schedules = {"conv_2": Choice("c99_patch", {"code": "ram"})}
    with pytest.raises(UsageError, match=f"the code of conv_2 can't be placed in RAM: {why}"):
        compile_model(DIGITS, boards.get(board), Request(schedules=schedules, protect=protect))


def test_the_manifest_the_c_and_the_estimates_say_so() -> None:
    ((_, emitted),) = compile_for(DIGITS, [L4])
    ((_, without),) = compile_for(DIGITS, [with_ram(RESERVED_BYTES)])
    manifest = emitted.manifest
    assert 0 < manifest.constant_bytes_in_ram <= manifest.constant_bytes and not without.manifest.constant_bytes_in_ram
    name = f"{manifest.model}_weights.h"
    variables = [
        [
            line
            for line in one.code.text(name).splitlines()
            if "[" in line and line.startswith("extern ") and "const" not in line
        ]
        for one in (emitted, without)
    ]
    assert variables[0] and not variables[1]
    sooner, later = estimate_latency(emitted, L4), estimate_latency(without, L4)
    assert sooner is not None and later is not None and sooner.milliseconds < later.milliseconds
    (fit,) = commands.check(DIGITS, [L4]).fits
    assert fit.ram is not None
    reported = {part.what: part.bytes for part in fit.ram.parts}
    assert reported["weights in RAM"] == manifest.constant_bytes_in_ram


def test_a_board_stands_for_the_one_that_is_estimated() -> None:
    counted = boards.get("mps2_an386")
    stands = standing_for(counted, ["nucleo_l4r5zi@80MHz"])
    weights, data = stands.memory_for("weights"), stands.memory_for("data")
    assert weights is not None and weights.reads is not None and weights.reads.waits(stands.clock_hz) == 3
    assert data is not None and data.size == L4.memories["sram"].size
    assert any(in_ram(stands).values())
    as_large = counted.model_copy(update={"memories": {**stands.memories, "ssram1": counted.memories["ssram1"]}})
    assert cache_key(DIGITS, stands, Request(), TuningResults()) != cache_key(
        DIGITS, as_large, Request(), TuningResults()
    )  # by its reads
    assert standing_for(counted, ["120MHz"]) == counted
    assert standing_for(counted, ["nucleo_l4r5zi", "nrf52840dk"]) == counted
