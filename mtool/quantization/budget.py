"""Bits chosen for a budget: by what fewer bits change in the outputs, and what they save on the board.

On the calibration data, each layer's weights are rounded to 4 and to 2 bits while all others keep 8, and the change of
the outputs is measured; the compiler's estimates give the bytes and the time of each choice. Steps with the least
change for what they save, one after another, lead from 8 bits to the smallest model. Models along this way are really
quantized, compiled and evaluated. Where accuracy is lacking, tensors of activations get 16 bits, those first that
change the outputs most, and then layers stay in float.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from mtool.base import plural
from mtool.base.errors import FitError, UsageError
from mtool.base.tensors import Sample
from mtool.boards import Board
from mtool.quantization import rounding
from mtool.quantization.rounding import FLOAT as FLOAT
from mtool.quantization.rounding import Layer, Pairs, Walk
from mtool.stages.fitting import check
from mtool.stages.formatting import kilobytes
from mtool.stages.options import Options
from mtool.verification import reference
from mtool.verification.oracles.quantizer import flat, sqnr_db

Listener = Callable[[int, int], None]
WIDE = 8  # bits of a weight, unless fewer are requested
_FEWER = (4, 2)
_MOST_DB = 150.0  # of equal outputs
_SAMPLES = 64  # that the effect of a layer's bits is measured with
_GRID = 5  # models that are tried from 8 bits to the fewest, besides those that are tried for a limit
_TRIES = 3  # for a limit, between two models of the grid
_LOST = 0.005  # of the accuracy with 8 bits, and
_LEAST_DB, _LOST_DB = 20.0, 3.0  # of the outputs where there are no labels, for the default
_EXAMPLE = "--budget flash=64K,ms=30,accuracy=-0.5"
_SIZE = "a size such as 64K"
_COSTS: Mapping[str, Callable[[Any], str]] = {"flash": kilobytes, "ram": kilobytes, "ms": "{:.3g} ms".format}
_EXPECTED = {
    "flash": _SIZE, "ram": _SIZE, "ms": "milliseconds", "accuracy": "a change in percentage points, 0 or less",
    "sqnr": "decibels",
}  # fmt: skip


# The budget, and a model's figures to compare with it.


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of a quantized model; None: there is no such limit.

    flash, ram: bytes of the fullest memory for code and weights, and for data, as `mtool check` estimates them.
    ms: milliseconds of an inference, estimated too.
    accuracy: the change of the accuracy in percentage points, 0 or less.
    sqnr: the least ratio of signal and difference of an output, in decibels.
    """

    flash: int | None = None
    ram: int | None = None
    ms: float | None = None
    accuracy: float | None = None
    sqnr: float | None = None

    @property
    def costs(self) -> dict[str, float]:
        """The limits of flash, RAM and time, by name."""
        return {name: most for name in ("flash", "ram", "ms") if (most := getattr(self, name))}

    @classmethod
    def parse(cls, text: str) -> "Budget":
        """Read a budget as it is written for --budget.

        Raises:
            UsageError: a limit is unknown, given twice, or not a number of its kind.
        """
        values: dict[str, Any] = {}
        for part in text.split(","):
            name, value = (text.strip() for text in part.partition("=")[::2])
            if name not in cls.__dataclass_fields__ or name in values:
                why = "is given twice" if name in values else "is not a limit"
                limits = ", ".join(cls.__dataclass_fields__)
                raise UsageError(f"--budget {text}: {name!r} {why}", details=[f"limits: {limits}"], hint=_EXAMPLE)
            size = re.fullmatch(r"(\d+(?:\.\d+)?) ?(?:([KM])(?:B|iB)?|B?)", value)
            number = re.fullmatch(r"(-?\d+(?:\.\d+)?) ?(?:ms|%|dB)?", value)
            if name in ("flash", "ram") and size:
                values[name] = int(float(size[1]) * {None: 1, "K": 1 << 10, "M": 1 << 20}[size[2]])
            elif name not in ("flash", "ram") and number and (float(number[1]) <= 0) == (name == "accuracy"):
                values[name] = float(number[1])
            else:
                raise UsageError(f"--budget {text}: {name} has to be {_EXPECTED[name]}; found {value!r}", hint=_EXAMPLE)
        return cls(**values)

    def __str__(self) -> str:
        """Return it as it is written for --budget."""
        limits = {name: value for name in self.__dataclass_fields__ if (value := getattr(self, name)) is not None}
        write = {"flash": kilobytes, "ram": kilobytes}
        texts = (f"{name}={write.get(name, '{:g}'.format)(value)}" for name, value in limits.items())
        return ",".join(texts).replace(" ", "")


@dataclass(frozen=True, slots=True)
class Bits:
    """The bits of a model: of the weights of each layer, by its node's name, and the activations that have 16."""

    weights: Mapping[str, int]
    wide: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Describe them in a few words: "8 bits", "4 bits: 7, 2 bits: 3; 16-bit activations: 2"."""
        counts = Counter(self.weights.values())
        parts = [f"{'float' if bits == FLOAT else f'{bits} bits'}: {counts[bits]}" for bits in sorted(counts)[::-1]]
        weights = parts[0].partition(":")[0] if len(parts) == 1 else ", ".join(parts)
        return weights + (f"; 16-bit activations: {len(self.wide)}" if self.wide else "")


@dataclass(frozen=True, slots=True)
class Score:
    """The accuracy of a model (None: its outputs are not classes), and the least SQNR of its outputs."""

    accuracy: float | None
    sqnr_db: float


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a model on a board, estimated; None: unknown, as on this computer.

    of_layers: each layer's part of the flash, and of the milliseconds.
    """

    flash: int | None = None
    ram: int | None = None
    ms: float | None = None
    of_layers: Mapping[str, tuple[float, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Point:
    """A model that was quantized, compiled and evaluated; `weight_bytes` are those of its packed weights alone."""

    bits: Bits
    weight_bytes: int
    cost: Cost
    score: Score
    model: onnx.ModelProto = field(compare=False, repr=False)

    def describe(self, of_float: float | None) -> str:
        """Return its figures in a line."""
        cost, score = self.cost, self.score
        parts = [str(self.bits), f"weights {kilobytes(self.weight_bytes)}"]
        parts += [f"{name} {kilobytes(size)}" for name, size in (("flash", cost.flash), ("RAM", cost.ram)) if size]
        parts += [f"{cost.ms:.3g} ms"] if cost.ms else []
        if score.accuracy is not None and of_float is not None:
            parts.append(f"accuracy {score.accuracy:.1%} ({100 * (score.accuracy - of_float):+.1f})")
        return ", ".join([*parts, f"SQNR {score.sqnr_db:.1f} dB"])


def price(path: Path, board: Board, options: Options) -> Cost:
    """Return the cost of a model on a board, as `mtool check` estimates it."""
    if not board.memories:
        return Cost()
    report = check(path, [board], options)
    (fit,) = report.fits
    ms = fit.time.milliseconds if fit.time else None
    sizes, times = defaultdict[str, dict[str, int]](dict), defaultdict[str, float](float)
    for operator, share in zip(report.manifest.operators, fit.shares, strict=True):
        for name in operator.origins:
            sizes[name][operator.whole or operator.name] = operator.constant_bytes
            times[name] += share * (ms or 0.0)
    of_layers = {name: (float(sum(size.values())), times[name]) for name, size in sizes.items()}
    flash, ram = (None if need is None else need.bytes for need in (fit.flash, fit.ram))
    return Cost(flash, ram, ms, of_layers)


def least_sqnr(before: Sequence[Sample], after: Sequence[Sample]) -> float:
    """Return the least ratio of signal and difference of a model's outputs, in decibels."""
    pairs = ([flat([sample[name] for sample in run]) for run in (before, after)] for name in before[0])
    return min((_MOST_DB if (sqnr := sqnr_db(*pair)) is None else sqnr for pair in pairs), default=_MOST_DB)


# The search.


@dataclass(frozen=True, slots=True)
class Start:
    """The float model, the one of 8 bits, calibration data, and a folder where models may be written."""

    floats: onnx.ModelProto
    integers: onnx.ModelProto
    samples: Sequence[Sample]
    folder: Path

    def with_bits(self, bits: Bits, listener: Listener = lambda done, total: None) -> onnx.ModelProto:
        """Return the model with these bits.

        Raises:
            UsageError: it has no such layer or tensor, or that can't have other bits.
        """
        model = self.copy()
        tensors = {name for group in rounding.activations_of(model) for name in group}
        rounding.widen(model, {*bits.wide})
        layers = {layer.node.name: layer for layer in rounding.layers_of(model, self.floats)}
        unknown = sorted([*(bits.weights.keys() - layers.keys()), *({*bits.wide} - tensors)])
        missing = [name for name in layers if name not in bits.weights]
        if unknown or missing:
            raise UsageError(
                f"the model has no {unknown[0]!r} whose bits can be chosen"
                if unknown
                else f"the recipe lacks the bits of {plural.count(len(missing), 'layer')}: {', '.join(missing[:4])}",
                details=[f"its layers: {', '.join(sorted(layers)[:4])}"],
                hint="use the recipe with the model and the options that it was made for",
            )
        for number, (layer, pairs) in enumerate(self.inputs(model, [*layers.values()])):
            layer_bits = bits.weights[layer.node.name]
            if layer_bits == FLOAT:
                rounding.keep_float(model, self.floats, layer)
            else:
                rounding.put(model, layer, *rounding.fitted(layer, pairs, (layer_bits,)))
            listener(number + 1, len(layers))
        return model

    def inputs(self, model: onnx.ModelProto, layers: Sequence[Layer]) -> Iterator[tuple[Layer, Pairs]]:
        """Yield each layer, and the samples of its input in both models; the layer may change before the next."""
        before = Walk(self.floats, [layer.before.input[0] for layer in layers], self.samples, self.folder)
        after = Walk(model, [layer.node.input[0] for layer in layers], self.samples, self.folder)
        for layer in layers:
            original, read = layer.before.input[0], layer.node.input[0]
            yield layer, list(zip(before.at(original), after.at(read), strict=True))
            before.forget(original)
            after.forget(read)

    @property
    def layers(self) -> list[Layer]:
        """The layers whose bits can be chosen."""
        return rounding.layers_of(self.integers, self.floats)

    def copy(self) -> onnx.ModelProto:
        """Return a copy of the model of 8 bits."""
        model = onnx.ModelProto()
        model.CopyFrom(self.integers)
        return model


@dataclass(frozen=True, slots=True)
class Bench:
    """How models are measured: their accuracy by `judge`, and their cost by `price`.

    of_float: the float model's accuracy; None: the outputs are not classes.
    is_labelled: the accuracy is by labels; else it is the agreement with the float model.
    samples: the number of samples that it is of.
    measure: what the accuracy is, in words.
    """

    judge: Callable[[onnx.ModelProto], Score]
    price: Callable[[onnx.ModelProto], Cost]
    of_float: float | None
    is_labelled: bool
    samples: int
    measure: str = ""


class Search:
    """The bits of a model: within limits of its cost the most accurate, otherwise the smallest that is accurate."""

    def __init__(self, source: Start, bench: Bench, budget: Budget | None, listener: Listener) -> None:
        """Measure the model of 8 bits.

        Args:
            source: the model.
            bench: how it is measured.
            budget: the limits; None: half a percentage point less than with 8 bits, or without labels the outputs' SQNR
                with 8 bits less 3 dB, or 20 dB if that is less.
            listener: called with the numbers of steps that are done and of all.

        Raises:
            UsageError: the budget limits something that is not known.
        """
        self.source, self.bench, self.listener = source, bench, listener
        self.layers = source.layers
        self.points: dict[str, Point] = {}
        self.samples = source.samples[:: max(len(source.samples) // _SAMPLES, 1)][:_SAMPLES]
        self.expected = self._outputs(source.floats)
        self.done, self.total = 0, (2 + _GRID + _TRIES) * len(self.layers)
        first = self.tried(self.state(WIDE))
        if budget is not None:
            self.budget = budget
            self._check_known(first)
            least = None if budget.accuracy is None else (bench.of_float or 0) + budget.accuracy / 100
            self.least, self.least_db = least, budget.sqnr
        else:
            self.budget = Budget()
            self.least = first.score.accuracy - _LOST if bench.is_labelled and first.score.accuracy else None
            self.least_db = None if self.least is not None else min(_LEAST_DB, first.score.sqnr_db - _LOST_DB)

    def _check_known(self, first: Point) -> None:
        if unknown := [name for name in self.budget.costs if getattr(first.cost, name) is None]:
            raise UsageError(
                f"--budget {self.budget}: there is no estimate of {unknown[0]} for this model and board",
                hint="name a board: --board BOARD; mtool check shows what is known of it",
            )
        if self.budget.accuracy is not None and self.bench.of_float is None:
            raise UsageError(
                f"--budget {self.budget}: the outputs are not classes, and the data have no labels",
                hint="limit the outputs' SQNR: sqnr=20",
            )

    def state(self, bits: int) -> Bits:
        """Return the same bits for all layers."""
        return Bits({layer.node.name: bits for layer in self.layers})

    def tried(self, bits: Bits) -> Point:
        """Return a model with these bits, quantized and measured."""
        key = repr((sorted(bits.weights.items()), sorted(bits.wide)))
        if key not in self.points:
            model = self.source.with_bits(bits, lambda done, total: self._step())
            cost, score = self.bench.price(model), self.bench.judge(model)
            self.points[key] = Point(bits, self.total_bytes(bits), cost, score, model)
        return self.points[key]

    def _step(self) -> None:
        self.done += 1
        self.total = max(self.total, self.done)
        self.listener(self.done, self.total)

    def excess(self, point: Point) -> dict[str, float]:
        """Return the excess of a model over each limit of its cost, relative to the limit."""
        limits = self.budget.costs.items()
        return {name: has / most - 1 for name, most in limits if (has := getattr(point.cost, name) or 0) > most}

    def lacks(self, point: Point) -> float:
        """Return the accuracy that a model lacks: percentage points, or decibels; 0: nothing."""
        score = point.score
        points = 0.0 if self.least is None else 100 * (self.least - (score.accuracy or 0))
        decibels = 0.0 if self.least_db is None else self.least_db - score.sqnr_db
        return lack if (lack := max(points, decibels)) > 1e-9 else 0.0

    def choice(self) -> tuple[Point, tuple[Point, ...]]:
        """Choose a model; return it, and the front: those tried that no other is as good as in everything.

        Raises:
            FitError: no model is within the budget.
        """
        way = self._way()
        size = np.array([self.total_bytes(bits) for bits in way])
        grid = sorted({int(np.argmin(np.abs(size - at))) for at in np.linspace(size[0], size[-1], _GRID)})

        def is_before(number: int) -> bool:
            """Whether a step is before the one to choose: it costs too much, or is accurate enough."""
            point = self.tried(way[number])
            return bool(self.excess(point)) if self.budget.costs else not self.lacks(point)

        before = {number: is_before(number) for number in grid}
        after = next((number for number in grid if not before[number]), grid[-1])
        last = max((number for number in grid if number < after), default=0)
        for _ in range(_TRIES):
            if after - last > 1:
                middle = (last + after) // 2
                last, after = (middle, after) if is_before(middle) else (last, middle)
        self.tried(self.state(4))
        best = self.best()
        if self.lacks(best) and not self.excess(best):
            best = self._more(best)
        if self.lacks(best) or self.excess(best):
            raise self._none()
        self.listener(self.total, self.total)
        return best, self._front(best)

    def best(self) -> Point:
        """Return the model that exceeds the costs least, lacks least, and is the most accurate or smallest.

        Accuracies within a standard error or one sample of the highest are equal: then the highest SQNR counts.
        """

        def misses(point: Point) -> tuple[float, float]:
            return sum(self.excess(point).values()), self.lacks(point)

        least = min(map(misses, self.points.values()))
        best = [point for point in self.points.values() if misses(point) == least]
        if not self.budget.costs:
            return min(best, key=lambda point: point.weight_bytes)
        top = max(point.score.accuracy or 0.0 for point in best)
        noise = max(1, (self.bench.samples * top * (1 - top)) ** 0.5) / self.bench.samples + 1e-9
        equal = [point for point in best if (point.score.accuracy or 0.0) >= top - noise]
        return min(equal, key=lambda point: (-round(point.score.sqnr_db, 1), point.weight_bytes))

    def weight_bytes(self, bits: Bits) -> dict[str, float]:
        """Return the bytes of each layer's weights, packed."""
        return {layer.node.name: layer.weights.size * bits.weights[layer.node.name] / 8 for layer in self.layers}

    def total_bytes(self, bits: Bits) -> int:
        """Return the bytes of all layers' weights."""
        return round(sum(self.weight_bytes(bits).values()))

    def _way(self) -> list[Bits]:
        """Return models from 8 bits to the fewest, each with fewer in one more layer: the best step after each."""
        noise, price = self.sensitivity()
        way = [self.state(WIDE)]
        while True:
            now = way[-1].weights
            steps = [
                (max(noise[name][bits] - noise[name][now[name]], 0.0) / saved, name, bits)
                for name in now
                for bits in _FEWER
                if bits < now[name] and (saved := price[name][now[name]] - price[name][bits]) > 0
            ]
            if not steps:
                return way
            _, name, bits = min(steps)
            way.append(Bits({**now, name: bits}))

    def sensitivity(self) -> tuple[dict[str, dict[int, float]], dict[str, dict[int, float]]]:
        """Return each layer's effect on the outputs for each number of bits, and its cost, a sum of parts of limits."""
        source, names = self.source, [layer.node.name for layer in self.layers]
        base = self._noise(source.integers)
        noise = {name: {WIDE: base} for name in names}
        uniform = {bits: source.copy() for bits in _FEWER}
        for layer, pairs in source.inputs(source.integers, self.layers):
            for bits, fit in zip(_FEWER, rounding.fitted(layer, pairs, _FEWER), strict=True):
                trial = source.copy()
                for model in (trial, uniform[bits]):
                    rounding.put(model, layer, fit)
                noise[layer.node.name][bits] = self._noise(trial)
            self._step()
        price: dict[str, dict[int, float]] = {name: {} for name in names}
        for bits, model in {WIDE: source.integers, **uniform}.items():
            state = self.state(bits)
            cost, layer_bytes = self.bench.price(model), self.weight_bytes(state)
            for name in names:
                flash, ms = cost.of_layers.get(name, (layer_bytes[name], 0.0))
                limits = self.budget.costs
                parts = [part / limits[limit] for limit, part in (("flash", flash), ("ms", ms)) if limit in limits]
                price[name][bits] = sum(parts) if parts else flash
        return noise, price

    def _noise(self, model: onnx.ModelProto) -> float:
        """Return the change of the outputs, as a part of their power, on some calibration data."""
        return float(10 ** (-least_sqnr(self.expected, self._outputs(model)) / 10))

    def _outputs(self, model: onnx.ModelProto) -> list[Sample]:
        path = self.source.folder / "trial.onnx"
        onnx.save(model, str(path))
        return reference.outputs(path, self.samples)

    def _more(self, point: Point) -> Point:
        """Return a model with the first that is accurate enough of 1, 2, 4… changes to more bits, or the last."""
        bits, changes = point.bits, []
        for tensors in rounding.activations_of(self.source.integers):
            trial = self.source.copy()
            rounding.widen(trial, set(tensors))
            changes.append((False, self._noise(trial), tensors))
        for layer in self.layers:
            trial = self.source.copy()
            rounding.keep_float(trial, self.source.floats, layer)
            changes.append((True, self._noise(trial), (layer.node.name,)))
        changes.sort()
        of_activations = len(changes) - len(self.layers)
        counts = {of_activations, len(changes), *(1 << power for power in range(len(changes).bit_length()))}
        for count in sorted(counts - {0}):
            changed = [(name, is_layer) for is_layer, _, names in changes[:count] for name in names]
            floats = {name: FLOAT for name, is_layer in changed if is_layer}
            wide = tuple(name for name, is_layer in changed if not is_layer)
            point = self.tried(Bits({**bits.weights, **floats}, wide))
            if not self.lacks(point) or self.excess(point):
                break
        return point

    def _front(self, chosen: Point) -> tuple[Point, ...]:
        def costs(point: Point) -> tuple[float, ...]:
            cost = point.cost
            return (cost.flash or point.weight_bytes, cost.ram or 0, cost.ms or 0, -point.score.sqnr_db)

        by_cost = {costs(point): point for point in self.points.values()}
        worse = {row for row in by_cost for other in by_cost if row != other and all(np.array(other) <= np.array(row))}
        return tuple(by_cost[point] for point in sorted({*by_cost.keys() - worse, costs(chosen)})[::-1])

    def _none(self) -> FitError:
        """Return the error with the models that were tried, and the nearest."""
        nearest = self.best()
        over = []
        for name in self.excess(nearest):
            has, most = (_COSTS[name](getattr(figures, name)) for figures in (nearest.cost, self.budget))
            over.append(f"{name}: {has} of {most}")
        if lack := self.lacks(nearest):
            over.append(f"SQNR: {lack:.2g} dB less" if self.least is None else f"accuracy: {lack:.2g} points less")
        tried = [f"tried: {point.describe(self.bench.of_float)}" for point in self._front(nearest)]
        return FitError(
            f"no model is within the budget {self.budget}",
            details=[*tried, f"the nearest: {nearest.describe(self.bench.of_float)}", f"it needs {', '.join(over)}"],
            hint="raise the limits to those of the nearest model, or choose a larger board",
        )
