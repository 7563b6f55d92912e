"""The Pareto front of a model's plans, and the requested plan of it."""

import dataclasses
from itertools import product
from pathlib import Path

import pytest

from mtool import boards
from mtool.base.errors import UsageError
from mtool.compiler.compilation import compile_model
from mtool.compiler.frontend.hashing import file_hash
from mtool.compiler.request import Request
from mtool.compiler.tuned.record import Log, WholePlan
from mtool.compiler.tuned.results import TuningResults
from mtool.compiler.tuned.summary import front, point, summary, without_points
from tests.compiler.tuned.records import SETUP, TARGET, whole

DIGITS = Path(__file__).parents[3] / "examples" / "digits" / "digits_int8.onnx"
COSTS = [(1.0, 80, 90), (2.0, 40, 90), (2.0, 80, 80), (3.0, 40, 60), (3.0, 40, 70), (4.0, 39, 99), (5.0, 80, 90)]


def plans() -> list[WholePlan]:
    return [
        whole({"task": str(number)}, times=(time,), arena_bytes=arena, flash_bytes=flash, is_point=number > 0)
        for number, (time, arena, flash) in enumerate(COSTS)
    ]


def test_the_front_is_what_no_other_plan_beats() -> None:
    """By the definition, of all subsets of plans."""
    for taken in product((False, True), repeat=len(COSTS)):
        some = [plan for plan, is_in in zip(plans(), taken, strict=True) if is_in]
        found = {(one.median, one.arena_bytes, one.flash_bytes) for one in front(some)}
        costs = [(one.median, one.arena_bytes, one.flash_bytes) for one in some]
        right = {
            one
            for one in costs
            if not any(other != one and all(a <= b for a, b in zip(other, one, strict=True)) for other in costs)
        }
        assert found == right


def test_of_equal_plans_the_front_has_one_and_plans_of_old_logs_are_left_out() -> None:
    equal = [whole({"task": "1"}, flash_bytes=9, partial=partial) for partial in ("never", "auto", "always")]
    assert [one.partial for one in front([*equal, whole({"task": "2"}, times=(0.5,))])] == ["auto"]
    assert front([]) == () and point((), "1") is None


@pytest.mark.parametrize(
    ("name", "number"), [("fastest", 0), ("arena", 5), ("flash", 3), ("1", 0), ("2", 1), ("5", 5), ("6", None)]
)
def test_a_point_is_taken_by_name_or_number(name: str, number: int | None) -> None:
    known = TuningResults.of(Log(plans=tuple(plans())), TARGET, SETUP, name)
    assert known.whole == ({} if number is None else {"0" * 64: {"task": str(number)}})


def test_without_a_point_the_plan_is_the_one_tuning_ended_with() -> None:
    log = Log(plans=(*plans(), whole({"task": "9"}, flash_bytes=200, arena_bytes=99, times=(6.0,)), plans()[2]))
    assert TuningResults.of(log, TARGET, SETUP).whole == {"0" * 64: {"task": "9"}}
    (known,) = summary(log)
    assert [plan.choices["task"] for plan in known.plans] == ["9"]
    assert [[plan.choices["task"] for plan in one] for one in known.fronts] == [["0", "1", "2", "3", "5"]]


def test_a_point_stands_behind_the_name_of_a_log(tmp_path: Path) -> None:
    log, odd = tmp_path / "t.jsonl", tmp_path / "t.jsonl:2"
    assert without_points([Path(f"{log}:arena"), tmp_path]) == ((log, tmp_path), "arena")
    assert without_points([Path(f"{log}:12")]) == ((log,), "12")
    assert without_points([Path(f"{log}:0"), Path(f"{log}:x")]) == ((Path(f"{log}:0"), Path(f"{log}:x")), "")
    odd.touch()
    assert without_points([odd]) == ((odd,), "")
    with pytest.raises(UsageError, match="arena, flash"):
        without_points([Path("a:arena"), Path("b:flash")])


def test_a_plan_says_how_operators_are_computed_in_parts() -> None:
    board = boards.get("mps2_an386")
    by_rows = TuningResults(partial={file_hash(DIGITS): "always"})
    sizes = [
        compile_model(DIGITS, board, request).manifest.arena_bytes
        for request in (Request(tuning_results=by_rows), Request(partial="always"), Request(), Request(partial="never"))
    ]
    assert sizes[0] == sizes[1] < sizes[3]
    asked = dataclasses.replace(Request(tuning_results=by_rows), partial="never")
    assert compile_model(DIGITS, board, asked).manifest.arena_bytes == sizes[3]
