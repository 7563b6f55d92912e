"""The learned cost model: it finds a core's preferences on unseen tasks, and orders a search."""

import json
import math

import numpy as np
import pytest

from mtool.compiler.tuned.record import Measurement, TaskRecord, digest
from mtool.tuning.candidates import CostModel, shipped
from scripts.learn_costs import as_json, fit, left_out, usable
from tests.compiler.tuned.records import measurement

TRUE = {"dsp_pointwise": 1.1, "dsp_pointwise:tile=2x2": 0.85, "c99_patch": 1.4}
"""Cycles of an estimated instruction on a core that does not exist, besides half a cycle for each byte of flash."""


def task(seed: int) -> TaskRecord:
    inputs, outputs, pixels = (int(size) for size in np.random.default_rng(seed).integers(4, 90, 3))
    reads = (f"int8[1,{pixels},1,{inputs}]", f"constant int8[{outputs},{inputs},1,1]", f"constant int32[{outputs}]")
    writes = (f"int8[1,{pixels},1,{outputs}]",)
    return TaskRecord(
        key=digest([reads, writes]), op="conv2d", label="conv2d 1x1", reads=reads, writes=writes, attributes={},
        expression="",
    )  # fmt: skip


def measured(model: int, tasks: int = 12) -> list[Measurement]:
    found = []
    for seed in range(1000 * model, 1000 * model + tasks):
        one = task(seed)
        macs = math.prod(int(size) for size in one.writes[0][5:-1].split(",")) * int(one.reads[0][5:-1].split(",")[3])
        for candidate, each in TRUE.items():
            estimate = macs * (1.0 if "tile" not in candidate else 1.12)
            found.append(measurement(candidate, each * estimate, task=one, estimate=estimate))
    return found


def test_what_a_core_prefers_is_found_on_tasks_that_were_not_seen() -> None:
    model = fit([one for number in range(4) for one in measured(number)])
    for one in measured(9):
        expected = {text: model.cost(one.task, text, est) for text, est in estimates(one).items()}
        assert min(expected, key=lambda text: expected[text]) == "dsp_pointwise:tile=2x2"
        assert expected[one.candidate] == pytest.approx(one.median, rel=0.08)
    for before, after in left_out({str(number): measured(number) for number in range(4)}).values():
        assert after < 0.05 < before


def estimates(one: Measurement) -> dict[str, float]:
    plain = one.estimate / (1.12 if "tile" in one.candidate else 1.0)
    return {"dsp_pointwise": plain, "dsp_pointwise:tile=2x2": 1.12 * plain, "c99_patch": plain}


def test_a_prediction_stays_within_what_was_seen_of_the_schedule() -> None:
    model = fit(measured(1))
    strange = task(5).model_copy(update={"reads": ("int8[1]", "constant int8[90000,1,1,1]"), "writes": ("int8[9]",)})
    assert 0.7 < model.cost(strange, "dsp_pointwise", 10.0) / 10 < 1.5
    assert math.isfinite(model.cost(strange, "never_seen:x=1", 10.0))


def test_failures_and_what_has_no_estimate_teach_nothing_and_the_last_reading_counts() -> None:
    first, again = measurement("a", 1.0), measurement("a", 3.0)
    others = [
        measurement("b"),
        measurement("c", 0.0),
        measurement("d", 1.0, estimate=0.0),
        measurement("a:opt=O3", 1.0),
    ]
    assert usable([first, *others, measurement("e", 2.0, baseline=True), again]) == [again]


def test_a_model_is_the_same_from_its_file() -> None:
    model = fit(measured(2))
    read = CostModel.of_json(json.loads(json.dumps(as_json(model))))
    for one in measured(3):
        right = model.cost(one.task, one.candidate, one.estimate)
        assert read.cost(one.task, one.candidate, one.estimate) == pytest.approx(right, rel=1e-3)


def test_the_model_of_the_cortex_m7_prefers_the_tile_of_fewer_cycles() -> None:
    model = shipped("cortex-m7")
    assert model is not None and shipped("no core") is None
    for one in measured(4)[::3]:
        found = estimates(one)
        usual, smaller = (model.cost(one.task, text, found[text]) for text in [*found][:2])
        assert smaller < usual
