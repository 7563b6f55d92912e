"""A session of EEMBC's runner: performance or accuracy mode, with the lines that a submission's log has."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from mtool.base.errors import UsageError
from mtool.plugins.mlperf import score
from mtool.plugins.mlperf.dataset import Item
from mtool.plugins.mlperf.device import DeviceUnderTest, Inferred

Mode = Literal["performance", "accuracy"]

WINDOWS = 5
LEAST_S = 10.0  # of a window, for a submission
COUNTS = {"ad01": (1500, 10), "ic01": (20, 5), "kws01": (70, 10), "vww01": (20, 5)}
"""Inferences of a window and those to warm up, as in the runner's tests_performance.yaml."""

_RULE = "-" * 57


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a session found.

    Attributes:
        identity: the device's name, profile and model.
        throughput: the median of the windows, inferences a second; None in accuracy mode.
        windows: the seconds of each window.
        accuracy: the percentage, or None: in performance mode, or where no sample has a class.
        auc: the area under the curve; None likewise.
        samples: how many were run.
        objections: what a submission would be refused for.
    """

    identity: dict[str, str]
    throughput: float | None
    windows: tuple[float, ...]
    accuracy: float | None
    auc: float | None
    samples: int
    objections: tuple[str, ...]


def run(
    device: DeviceUnderTest,
    items: Callable[[str], Sequence[Item]],
    mode: Mode,
    *,
    tell: Callable[[str], None],
    count: int | None = None,
    warmups: int | None = None,
    most: int | None = None,
    timeout_s: float = 600.0,
    emulated: str = "",
) -> Outcome:
    """Drive a device through a session.

    Args:
        device: the device under test.
        items: returns the samples of a benchmark that the device names.
        mode: "performance": five windows of many inferences; "accuracy": one inference a sample.
        tell: is given each line of the log.
        count: inferences of a window; None: the benchmark's.
        warmups: before each window; None: the benchmark's.
        most: samples of accuracy mode; None: all.
        timeout_s: how long a window may take.
        emulated: what the device's seconds are, if it is emulated: an objection, which the log has too.

    Raises:
        CommunicationError: the device does not answer.
        DeviceError: it could not run the model.
        UsageError: there are no samples.
    """
    device.begin()
    identity = device.identity()
    benchmark = identity["model"]
    found = items(benchmark)

    def say(text: str) -> None:
        tell(f"{time.strftime('%m%d.%H%M%S')} ulp-mlperf: {text}")

    own = (f"the device is emulated: {emulated}",) if emulated else ()
    for line in own:
        say(line)
    if mode == "performance":
        default, before = COUNTS.get(benchmark, (10, 1))
        times = _performance(
            device,
            found,
            default if count is None else count,
            before if warmups is None else warmups,
            say=say,
            timeout_s=timeout_s,
        )
        total = default if count is None else count
        throughput = float(np.median([total / seconds if seconds else 0.0 for seconds in times]))
        objections = () if all(seconds >= LEAST_S for seconds in times) else (f"a window took less than {LEAST_S:g} s",)
        for line in (_RULE, f"Median throughput is {throughput:>10.3f} inf./sec.", _RULE):
            say(line)
        return Outcome(identity, throughput, tuple(times), None, None, len(times), (*own, *objections))
    chosen = found[:most]
    if not chosen or any(item.label is None for item in chosen):
        raise UsageError(
            "the samples have no classes", hint="give a folder with y_labels.csv, or an .npz with labels or y0"
        )
    scores = _accuracy(device, chosen, say=say, timeout_s=timeout_s)
    labels = np.array([item.label for item in chosen], np.int64)
    right, area = score.accuracy(scores, labels), score.auc(scores, labels)
    say(f"Top 1% = {right:2.1f}")
    say(f"AUC = {area:.3f}" if area is not None else "AUC = not defined: a class has no sample")
    objections = () if most is None or most >= len(found) else (f"{len(chosen)} of {len(found)} samples were run",)
    return Outcome(identity, None, (), right, area, len(chosen), (*own, *objections))


def _performance(
    device: DeviceUnderTest,
    items: Sequence[Item],
    count: int,
    warmups: int,
    *,
    say: Callable[[str], None],
    timeout_s: float,
) -> list[float]:
    times = []
    for window in range(WINDOWS):
        item = items[window % len(items)]
        say(f"Loading file {item.name} segment 0")
        device.load(item.windows[0])
        say("Load complete.")
        inferred = device.infer(count, warmups, timeout_s=timeout_s)
        _say_window(say, window, count, inferred)
        times.append(inferred.elapsed_us / 1e6)
    return times


def _say_window(say: Callable[[str], None], window: int, count: int, inferred: Inferred) -> None:
    seconds = inferred.elapsed_us / 1e6
    say(f"Performance results for window {window + 1}:")
    say(f"  # Inferences : {count:>13}")
    say(f"  Runtime      : {seconds:>10.3f} sec.")
    say(f"  Throughput   : {count / seconds if seconds else 0.0:>10.3f} inf./sec.")
    say(f"  m-results    : {[*inferred.results]}")


def _accuracy(
    device: DeviceUnderTest, items: Sequence[Item], *, say: Callable[[str], None], timeout_s: float
) -> score.Scores:
    """Return a row of scores for each sample: the mean of its windows', each of several classes made to sum to one."""
    rows = []
    for item in items:
        found = []
        for segment, data in enumerate(item.windows):
            say(f"Loading file {item.name} segment {segment}")
            device.load(data)
            results = np.array(device.infer(1, 0, timeout_s=timeout_s).results, np.float64)
            say(f"  m-results    : {[*map(float, results)]}   class {item.label}")
            total = results.sum()
            found.append(results / total if len(results) > 1 and total > 0 else results)
        rows.append(np.mean(found, axis=0))
    return np.stack(rows)
