"""A session of EEMBC's runner: performance or accuracy mode, or a stream, with the log lines of a submission."""

import csv
import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from mtool.base.errors import CommunicationError, DeviceError, NoAnswerError, UsageError, of_os_error
from mtool.commands.replaying import samples_of
from mtool.device.transport.base import Transport
from mtool.manifest import Tensor
from mtool.quantization import dataset, metrics
from mtool.quantization.metrics import Labels, Scores
from mtool.stages import arrays
from mtool.stages.samples import Array

# A device under test: commands that end with %, answers that end with m-ready (mlcommons/tiny, benchmark/api).


_READY = "m-ready"
_LAP, _ACTIVATIONS = "m-lap-us-", "m-activations-["
_BYTES_A_COMMAND = 31  # of a sample: two digits each, in a line of at most 80 characters
_ANSWER_S = 20.0
_LOOK_S = 0.5


@dataclass(frozen=True, slots=True)
class Inferred:
    """An answer to `infer`: the time of all inferences in microseconds, and the outputs of the last one."""

    elapsed_us: int
    results: tuple[float, ...]


class DeviceUnderTest:
    """A device that runs the firmware of a project of the type mlperftiny.

    Args:
        transport: the channel to it; the caller closes it.
        on_line: called with each line of the dialogue and its sender: "host" or "dut".
    """

    def __init__(self, transport: Transport, on_line: Callable[[str, str], None]) -> None:
        self._transport = transport
        self._on_line = on_line
        self._received = b""

    def begin(self) -> None:
        """Wait for the device's greeting; if it came earlier, ask the device for its name.

        Raises:
            CommunicationError: it does not answer, or is not a device under test.
        """
        try:
            self._answer(_LOOK_S * 6)
        except NoAnswerError:
            self.ask("name")
        except CommunicationError as ended:
            raise CommunicationError(
                ended.what,
                details=ended.details,
                hint="check that its program answers EEMBC's commands, as src/runner.c does",
            ) from None

    def identity(self) -> dict[str, str]:
        """Return the device's name, profile and model (kws01, …)."""
        lines = [*self.ask("name"), *self.ask("profile")]
        result = {}
        for line in lines:
            match = re.fullmatch(r"m-(name-dut|profile|model)-\[([^]]+)]", line)
            if match:
                result[match[1].partition("-")[0]] = match[2]
        if "model" not in result:
            raise CommunicationError(
                f"{self._transport.name} is not a device under test for MLPerf Tiny",
                details=[f"it answered: {line}" for line in lines[:5]],
                hint="flash it with firmware from a project of the type mlperftiny: mtool new --type mlperftiny",
            )
        return result

    def load(self, data: bytes) -> None:
        """Load a sample into the device.

        Raises:
            DeviceError: the device refuses it.
        """
        lines = self.ask(f"db load {len(data)}")
        if f"m-[Expecting {len(data)} bytes]" not in lines:
            raise DeviceError(f"the device refuses a sample of {len(data)} bytes", details=lines[:3])
        for start in range(0, len(data), _BYTES_A_COMMAND):
            lines = self.ask(f"db {data[start : start + _BYTES_A_COMMAND].hex()}")
        if "m-load-done" not in lines:
            raise DeviceError("the device did not accept the whole sample", details=lines[:3])

    def infer(self, count: int, warmups: int, *, timeout_s: float) -> Inferred:
        """Run inferences on the sample that was loaded.

        Raises:
            DeviceError: the device reports an error, or no time or result.
        """
        lines = self.ask(f"infer {count} {warmups}", timeout_s=timeout_s)
        laps = [int(match[1]) for line in lines if (match := re.fullmatch(r"m-lap-us-([0-9]+)", line))]
        results = [match[1] for line in lines if (match := re.fullmatch(r"m-results-\[([^]]+)\]", line))]
        wrong = [line for line in lines if line.startswith(("e-", "Input db"))]
        if wrong or len(laps) != 2 or not results:
            raise DeviceError("the device could not run the model", details=wrong or lines[-5:])
        try:
            values = tuple(float(word) for word in results[-1].split(",") if word.strip())
        except ValueError:
            raise DeviceError("the device's results are not numbers", details=[results[-1]]) from None
        return Inferred((laps[1] - laps[0]) % 2**32, values)

    def ask(self, command: str, *, timeout_s: float = _ANSWER_S) -> list[str]:
        """Send a command and return the lines of the answer, without m-ready.

        Raises:
            CommunicationError: the device does not answer in time, or the channel was closed.
        """
        self._on_line("host", f"{command}%")
        self._transport.write(f"{command}%".encode(), timeout_s=_ANSWER_S)
        return self._answer(timeout_s)

    def _answer(self, timeout_s: float) -> list[str]:
        lines: list[str] = []
        deadline = time.monotonic() + timeout_s
        while True:
            while b"\n" in self._received:
                line, _, self._received = self._received.partition(b"\n")
                text = line.decode("ascii", "backslashreplace").strip()
                if text:
                    self._on_line("dut", text)
                if text == _READY:
                    return lines
                if text:
                    lines.append(text)
            rest_s = deadline - time.monotonic()
            if rest_s <= 0:
                raise NoAnswerError(
                    f"{self._transport.name} has not answered {_READY} within {timeout_s:.3g} s",
                    details=[f"it sent: {line}" for line in lines[-3:]],
                )
            self._received += self._transport.read(timeout_s=min(rest_s, _LOOK_S))


# The samples of a benchmark: a folder as for EEMBC's runner, or an .npz.


TRUTH = "y_labels.csv"
_PIXELS = ("ic01", "vww01")
_SCORED = "ad01"
_STREAMED = "sww01"
_RATE = 16_000  # samples a second of its recordings


@dataclass(frozen=True, slots=True)
class Item:
    """A sample: its name, its class (None: unknown), and the bytes to send.

    For ad01 they are those of each window; for sww01 those of each hop, and `words` are the start and end of each wake
    word, in seconds.
    """

    name: str
    label: int | None
    windows: tuple[bytes, ...]
    words: tuple[tuple[float, float], ...] = ()


def read(path: Path, benchmark: str, tensor: Tensor) -> list[Item]:
    """Read the samples of a benchmark.

    Args:
        path: a folder with y_labels.csv (file, number of classes, class, and for ad01 the size and stride of a window
            in bytes) and the files; or an .npz with x0, and `labels` or y0, whose largest element is the class. For
            sww01 a folder with the recordings, and .json files of the runner that name some of them.
        benchmark: kws01, ic01, vww01, ad01, sww01.
        tensor: the model's input.

    Raises:
        UsageError: a part of it is missing or malformed.
    """
    if benchmark == _STREAMED:
        return _recordings(path, tensor)
    if path.is_dir():
        return _from_folder(path, benchmark)
    data = dataset.read(path, [tensor])
    labels: Sequence[int | None] = [None] * len(data.samples) if data.labels is None else [*map(int, data.labels)]
    scores = arrays.read(path).get("y0", np.zeros(0))
    if data.labels is None and benchmark != _SCORED and len(scores) == len(labels):
        labels = scores.reshape(len(labels), -1).argmax(axis=1).tolist()
    return [
        Item(f"{path.name}[{index}]", label, (wire(sample[tensor.name], benchmark, tensor),))
        for index, (sample, label) in enumerate(zip(data.samples, labels, strict=True))
    ]


def _from_folder(folder: Path, benchmark: str) -> list[Item]:
    try:
        rows = [row for row in csv.reader((folder / TRUTH).read_text("utf-8-sig").splitlines()) if row]
        items = []
        for row in rows:
            data = (folder / row[0]).read_bytes()
            windows: tuple[bytes, ...] = (data,)
            if benchmark == _SCORED:
                size, stride = int(row[3]), int(row[4])
                if size < 1 or stride < 1:
                    raise ValueError("a window and its stride have at least one byte")
                windows = tuple(data[at : at + size] for at in range(0, len(data) - size + 1, stride))
            items.append(Item(row[0], int(row[2]), windows))
    except OSError as failed:
        raise of_os_error(failed, f"{failed.filename or folder} can't be read") from None
    except (ValueError, IndexError, csv.Error) as wrong:
        raise UsageError(
            f"{folder / TRUTH} does not have the format of EEMBC's runner",
            details=[str(wrong), "expected lines of: file, number of classes, class; for ad01 also bytes, stride"],
        ) from None
    if not items:
        raise UsageError(f"{folder / TRUTH} has no samples")
    return items


def _recordings(folder: Path, tensor: Tensor) -> list[Item]:
    """Return the recordings that a folder's .json files name and that are there, by hops."""
    items = []
    for file in sorted(folder.glob("*.json")) if folder.is_dir() else ():
        try:
            entries = [(str(row["wav_file"]), row["detection_windows"]) for row in json.loads(file.read_text("utf-8"))]
            named = [(name, tuple((float(a), float(b)) for a, b in words)) for name, words in entries]
        except (ValueError, KeyError, TypeError) as wrong:
            raise UsageError(
                f"{file} does not have the format of EEMBC's runner",
                details=[str(wrong), "expected a list of: wav_file, detection_windows [[start, end], ...]"],
            ) from None
        for name, words in named:
            if (folder / name).is_file():
                data = samples_of(folder / name, _RATE).astype("<i2").tobytes()
                starts = range(0, len(data) - tensor.bytes + 1, tensor.bytes)
                items.append(Item(name, None, tuple(data[at : at + tensor.bytes] for at in starts), words))
    if not items:
        raise UsageError(
            f"{folder} has no recordings",
            details=["expected .json files, as in sww_data_dir of EEMBC's runner, and the .wav files that they name"],
        )
    return items


def wire(sample: Array, benchmark: str, tensor: Tensor) -> bytes:
    """Return a sample of the model's input as the runner sends it: pixels from 0 up, float32 for ad01."""
    if tensor.dtype == "int8" and benchmark in _PIXELS:
        return (sample.astype(np.int16) + 128).astype(np.uint8).tobytes()
    if tensor.dtype != "float32" and benchmark == _SCORED and tensor.scale:
        zero = (tensor.zero_point or (0,))[0]
        return ((sample.astype(np.float32) - np.float32(zero)) * np.float32(tensor.scale[0])).astype("<f4").tobytes()
    return sample.tobytes()


# The figures of MLPerf Tiny: throughput, top-1 accuracy, the area under the ROC curve.


def accuracy(scores: Scores, labels: Labels) -> float:
    """Return the percentage of samples whose class has the largest score.

    With one score per sample (ad01) it is the best mean of precision and recall over 100 thresholds, as in the runner.
    """
    if scores.shape[1] > 1:
        return 100 * metrics.top(scores, labels, 1)
    values, best = scores[:, 0], 0.0
    for share in np.arange(0.0, 1.0, 0.01):
        positive = values > values.min() + share * (values.max() - values.min())
        right = np.sum(positive & (labels == 1))
        precision = right / (np.sum(positive) + 1e-8)
        recall = right / (np.sum(labels == 1) + 1e-8)
        best = max(best, float(50 * (precision + recall)))
    return best


Mode = Literal["performance", "accuracy"]
WINDOWS = 5
LEAST_S = 10.0  # the shortest window of a submission
COUNTS = {"ad01": (1500, 10), "ic01": (20, 5), "kws01": (70, 10), "vww01": (20, 5)}
"""The inferences in a window and those for warm-up, as in the runner's tests_performance.yaml."""
_RULE = "-" * 57
_TIMEOUT_S = 600.0  # of a window


@dataclass(frozen=True, slots=True)
class Outcome:
    """The results of a session.

    Attributes:
        identity: the device's name, profile and model.
        throughput: the median over the windows, in inferences per second; None in accuracy mode.
        windows: the seconds of each window.
        accuracy: the percentage; None in performance mode, or if no sample has a class.
        auc: the area under the ROC curve, or None likewise.
        samples: the number of samples run.
        words: of a stream: the wake words that were detected and that were missed, and the wrong detections.
        hop_us: of a stream: the mean time of a hop.
        period_us: of a stream: the time from one hop to the next.
        objections: reasons for which a submission would be refused.
    """

    identity: dict[str, str]
    throughput: float | None
    windows: tuple[float, ...]
    accuracy: float | None
    auc: float | None
    samples: int
    objections: tuple[str, ...]
    words: tuple[int, int, int] | None = None
    hop_us: float = 0.0
    period_us: float = 0.0


def run(
    device: DeviceUnderTest,
    items: Callable[[str], Sequence[Item]],
    mode: Mode,
    *,
    on_line: Callable[[str], None],
    count: int | None = None,
    warmups: int | None = None,
    most: int | None = None,
    emulated: str = "",
) -> Outcome:
    """Run a session with a device.

    Args:
        device: the device under test.
        items: returns the samples of the benchmark that the device reports.
        mode: "performance": five windows of many inferences; "accuracy": one inference for each sample.
        on_line: called with each line of the log.
        count: inferences in a window; None: the benchmark's.
        warmups: inferences before each window; None: the benchmark's.
        most: the largest number of samples in accuracy mode; None: all.
        emulated: what an emulated device counts as a second: an objection, which is also logged.

    Raises:
        CommunicationError: the device does not answer.
        DeviceError: it could not run the model.
        UsageError: there are no samples.
    """
    device.begin()
    identity = device.identity()
    benchmark = identity["model"]
    every = items(benchmark)

    def say(text: str) -> None:
        on_line(f"{time.strftime('%m%d.%H%M%S')} ulp-mlperf: {text}")

    notes = (f"the device is emulated: {emulated}",) if emulated else ()
    for line in notes:
        say(line)
    if benchmark == _STREAMED:
        words, hop_us, hops = _stream(device, every[:most], say)
        period_us = 1e6 * len(every[0].windows[0]) / 2 / _RATE
        return Outcome(identity, None, (), None, None, hops, notes, words, hop_us, period_us)
    if mode == "performance":
        usual_count, usual_warmups = COUNTS.get(benchmark, (10, 1))
        total = usual_count if count is None else count
        times = _performance(device, every, total, usual_warmups if warmups is None else warmups, say)
        throughput = float(np.median([total / seconds if seconds else 0.0 for seconds in times]))
        objections = () if all(seconds >= LEAST_S for seconds in times) else (f"a window took less than {LEAST_S:g} s",)
        for line in (_RULE, f"Median throughput is {throughput:>10.3f} inf./sec.", _RULE):
            say(line)
        return Outcome(identity, throughput, tuple(times), None, None, len(times), (*notes, *objections))
    selected = every[:most]
    if not selected or any(item.label is None for item in selected):
        raise UsageError(
            "the samples have no classes", hint="give a folder with y_labels.csv, or an .npz with labels or y0"
        )
    scores = _accuracy(device, selected, say)
    labels = np.array([item.label for item in selected], np.int64)
    right, area = accuracy(scores, labels), metrics.auc(scores, labels)
    say(f"Top 1% = {right:2.1f}")
    say(f"AUC = {area:.3f}" if area is not None else "AUC = not defined: a class has no sample")
    objections = () if most is None or most >= len(every) else (f"{len(selected)} of {len(every)} samples were run",)
    return Outcome(identity, None, (), right, area, len(selected), (*notes, *objections))


_THRESHOLD = 115  # of the activation, as in the reference firmware
_LATE_S = 2.0  # after a word's end; as in the runner, which adds its second twice
_AGAIN_S = 1.0  # wrong detections within this time are one


def _stream(
    device: DeviceUnderTest, items: Sequence[Item], say: Callable[[str], None]
) -> tuple[tuple[int, int, int], float, int]:
    """Send recordings hop by hop; return what was detected, missed and wrong, the mean time of a hop, and the hops."""
    right = missed = wrong = hops = busy_us = 0
    for item in items:
        say(f"Playing {item.name}")
        for command in ("stop", "start"):
            device.ask(command)
        detected = []
        for number, data in enumerate(item.windows, 1):
            device.load(data)
            lines = device.ask("extract_uart_stream", timeout_s=_TIMEOUT_S)
            laps = [int(line[len(_LAP) :]) for line in lines if line.startswith(_LAP)]
            scores = [line[len(_ACTIVATIONS) :].split(",")[0] for line in lines if line.startswith(_ACTIVATIONS)]
            if len(laps) != 2 or not scores:
                raise DeviceError("the device could not process a hop", details=lines[-5:])
            busy_us += (laps[1] - laps[0]) % 2**32
            if int(scores[0].rstrip("]")) > _THRESHOLD:
                detected.append(number * len(data) / 2 / _RATE)
        device.ask("stop")
        hops += len(item.windows)
        for start, end in item.words:
            hits = [at for at in detected if start <= at <= end + _LATE_S]
            detected = [at for at in detected if at not in hits]
            right, missed = right + bool(hits), missed + (not hits)
        others = [at for number, at in enumerate(detected) if not number or at - detected[number - 1] > _AGAIN_S]
        wrong += len(others)
        say(f"Accuracy: {right} True positives, {missed} False negatives, {wrong} False positives")
    return (right, missed, wrong), busy_us / max(hops, 1), hops


def _performance(
    device: DeviceUnderTest, items: Sequence[Item], count: int, warmups: int, say: Callable[[str], None]
) -> list[float]:
    """Return the seconds of each window."""
    times = []
    for window in range(WINDOWS):
        item = items[window % len(items)]
        say(f"Loading file {item.name} segment 0")
        device.load(item.windows[0])
        say("Load complete.")
        inferred = device.infer(count, warmups, timeout_s=_TIMEOUT_S)
        seconds = inferred.elapsed_us / 1e6
        say(f"Performance results for window {window + 1}:")
        say(f"  # Inferences : {count:>13}")
        say(f"  Runtime      : {seconds:>10.3f} sec.")
        say(f"  Throughput   : {count / seconds if seconds else 0.0:>10.3f} inf./sec.")
        say(f"  m-results    : {[*inferred.results]}")
        times.append(seconds)
    return times


def _accuracy(device: DeviceUnderTest, items: Sequence[Item], say: Callable[[str], None]) -> Scores:
    """Return a row of scores for each sample: the mean of its windows', with several classes scaled to a sum of one."""
    rows = []
    for item in items:
        scores = []
        for segment, data in enumerate(item.windows):
            say(f"Loading file {item.name} segment {segment}")
            device.load(data)
            results = np.array(device.infer(1, 0, timeout_s=_TIMEOUT_S).results, np.float64)
            say(f"  m-results    : {[*map(float, results)]}   class {item.label}")
            total = results.sum()
            scores.append(results / total if len(results) > 1 and total > 0 else results)
        rows.append(np.mean(scores, axis=0))
    return np.stack(rows)
