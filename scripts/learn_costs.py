"""Learn a core's cost model from tuning logs, print its error on held-out models, and write the core's file.

    scripts/learn_costs.py LOG... [-o FILE]

A log is one of a model. Without -o nothing is written; mtool takes mtool/tuning/cores/<cpu>.json.
"""

import argparse
import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mtool.base.option_values import CODE, LEVEL, WEIGHTS
from mtool.compiler.tuned import record as tuning_log
from mtool.compiler.tuned.record import Measurement
from mtool.compiler.tuned.tasks import parse
from mtool.tuning.candidates import CostModel, features, schedule_of

RIDGE = 10.0
_OUTLIERS = 0.02  # of a schedule's ratios, at either end: a prediction does not go beyond the others


def fit(measured: Sequence[Measurement]) -> CostModel:
    """Return the model of measurements of one core: of each task and candidate at most one."""
    found = [features(one.task, one.candidate, one.estimate) for one in measured]
    names = sorted({name for one in found for name in one})
    places = {name: place for place, name in enumerate(names)}
    x = np.zeros((len(found), len(names)))
    for row, values in enumerate(found):
        for name, value in values.items():
            x[row, places[name]] = value
    ratios = np.asarray([ratio(one) for one in measured])
    mean = float(ratios.mean())
    weights = np.linalg.solve(x.T @ x + RIDGE * np.eye(len(names)), x.T @ (ratios - mean))
    by_schedule: dict[str, list[float]] = {}
    for one, value in zip(measured, ratios, strict=True):
        by_schedule.setdefault(schedule_of(one.task, one.candidate), []).append(float(value))
    ranges = {name: _range(seen) for name, seen in sorted(by_schedule.items())}
    return CostModel(mean, dict(zip(names, map(float, weights), strict=True)), ranges)


def as_json(model: CostModel) -> dict[str, Any]:
    """Return a model as plain values, rounded to what matters."""
    return {
        "mean": round(model.mean, 4),
        "weights": {name: round(weight, 4) for name, weight in model.weights.items() if abs(weight) >= 5e-5},
        "ranges": {name: [round(each, 4) for each in pair] for name, pair in model.ranges.items()},
    }


def usable(measured: Iterable[Measurement]) -> list[Measurement]:
    """Return the measurements that can be learned from: the last of each task and candidate in the usual build."""
    latest = {
        (one.task.key, one.candidate): one
        for one in measured
        if one.status == "ok"
        and one.times
        and one.median > 0
        and one.estimate > 0
        and not one.baseline
        and not {*parse(one.candidate).knobs} & {CODE, LEVEL, WEIGHTS}
    }
    return list(latest.values())


def ratio(one: Measurement) -> float:
    """Return the logarithm of what an estimated instruction took."""
    return math.log(one.median / one.estimate)


def left_out(models: Mapping[str, Sequence[Measurement]]) -> dict[str, tuple[float, float]]:
    """Return the median error for each model that is left out of what is learned: by instructions alone, and learned.

    An error is that of the logarithm: 0.1 is 10%. Instructions are taken with the one ratio that fits the others best.
    """
    found = {}
    for name, own in models.items():
        others = [one for other, measured in models.items() if other != name for one in measured]
        usual, model = float(np.median([ratio(one) for one in others])), fit(others)
        by_instructions = [ratio(one) - usual for one in own]
        learned = [math.log(one.median / model.cost(one.task, one.candidate, one.estimate)) for one in own]
        found[name] = float(np.median(np.abs(by_instructions))), float(np.median(np.abs(learned)))
    return found


def _range(values: Sequence[float]) -> tuple[float, float]:
    return float(np.quantile(values, _OUTLIERS)), float(np.quantile(values, 1 - _OUTLIERS))


def main() -> int:
    """Learn, and print the errors as a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("logs", type=Path, nargs="+")
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args()
    models = {path.stem: usable(tuning_log.read([path]).measurements) for path in given.logs}
    everything = [one for measured in models.values() for one in measured]
    kinds = {(one.target.cpu, one.setup.unit) for one in everything}
    if len(kinds) != 1:
        parser.error(f"the logs have to be of one core and unit, found {sorted(kinds)}")
    print("| model left out | candidates | error by instructions | learned |\n|---|--:|--:|--:|")
    for name, (before, after) in left_out(models).items() if len(models) > 1 else ():
        print(f"| {name} | {len(models[name]):,} | {before:.1%} | {after:.1%} |")
    if given.output is not None:
        given.output.parent.mkdir(parents=True, exist_ok=True)
        given.output.write_text(json.dumps(as_json(fit(everything)), indent=1) + "\n")
        print(given.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
