"""Compare every tensor that a device computes with the reference's."""

import logging
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from mtool import boards
from mtool.base.errors import MismatchError, ModelError, MtoolError
from mtool.base.escaping import short_name
from mtool.base.option_values import Rounding
from mtool.base.plural import count
from mtool.compiler.frontend import is_tflite
from mtool.compiler.ir.graph import moved
from mtool.compiler.operators.window import CONV
from mtool.device import session
from mtool.device.session import Device
from mtool.device.session.layers import intermediates
from mtool.manifest import Manifest, Operand, Operator, Tensor
from mtool.stages import samples as sampling
from mtool.stages.building import build_model
from mtool.stages.compiling import CompiledModel, compile
from mtool.stages.formatting import samples as samples_of
from mtool.stages.samples import Array, Sample
from mtool.verification import reference
from mtool.verification.comparison import Difference, Report, Tolerance, compare
from mtool.verification.control_flow import CONTROL, NotWritten, known_values, path_of
from mtool.verification.oracles import ort
from mtool.verification.reference import operator_of
from mtool.verification.rounding_ties import RoundingTies

# Check that each operator's translation from TFLite to ONNX computes what LiteRT does.
#
# The network is cut at every tensor of the file: each operator gets LiteRT's values as inputs, so that the rounding of
# one operator does not reach the next.

# The error bounds of LiteRT's hybrid operators against float arithmetic, since they quantize activations to 8 bits.
#
# Each activation is off by at most half a step, or a whole one at the end of a range whose zero point was rounded; an
# output by that times the sum of its weights' magnitudes. Otherwise only the rounding of floats differs.


MOVES = ("Transpose", "Reshape")  # between a tensor of the file and a product's input


class HybridBounds:
    """The bounds of a network's products of float activations and dequantized weights.

    `hybrid` are the names of the operators that dequantize weights, `blocks` of those whose weights have a scale for
    each block: LiteRT's reference kernel does not compute them.
    """

    def __init__(self, graph: onnx.GraphProto) -> None:
        self._makers = {name: node for node in graph.node for name in node.output}
        self._held = {tensor.name: tensor for tensor in graph.initializer}
        dequantized = [node for node in graph.node if node.op_type == "DequantizeLinear"]
        self.hybrid = {operator_of(node) for node in dequantized if node.input[0] in self._held}
        in_blocks = [node for node in dequantized if any(attr.name == "block_size" for attr in node.attribute)]
        self.blocks = {operator_of(node) for node in in_blocks}
        self._products = {}
        for node in graph.node:
            weights = self._makers.get(node.input[1]) if node.op_type in (CONV, "Gemm") else None
            if weights is None or weights.op_type != "DequantizeLinear" or operator_of(node) in self.blocks:
                continue
            if weights.input[0] in self._held:
                self._products[operator_of(node)] = (node, weights)

    def of(self, operator: str, tensors: Mapping[str, Array], output: Array) -> Array | None:
        """Return the error bound of each element of an operator's output; None: it is not such a product.

        Args:
            operator: its name.
            tensors: LiteRT's tensors, by name.
            output: the operator's output, channels last.
        """
        product_and_weights = self._products.get(operator)
        if product_and_weights is None:
            return None
        product, weights = product_and_weights
        source = product.input[0]
        while source not in tensors and source in self._makers and self._makers[source].op_type in MOVES:
            source = self._makers[source].input[0]
        reach = self._reach(weights)
        if source not in tensors or output.shape[-1:] != reach.shape:
            return None
        depth = int(np.prod(self._held[weights.input[0]].dims[1:]))
        rows = len(tensors[source]) if product.op_type == CONV else tensors[source].size // max(depth, 1)
        x = np.asarray(tensors[source], np.float64).reshape(rows, -1)
        low, high = x.min(axis=1, initial=0), x.max(axis=1, initial=0)
        off = np.maximum(np.maximum(high, -low) / 254, (high - low) / 255)
        bound: Array = (off[:, None, None] * reach).repeat(max(output.size // max(rows * reach.size, 1), 1), axis=1)
        return bound.reshape(output.shape) if bound.size == output.size else None

    def _reach(self, weights: onnx.NodeProto) -> Array:
        """Return the sum of the weights' magnitudes for each output channel."""
        data = numpy_helper.to_array(self._held[weights.input[0]]).astype(np.float64)
        scale, point = (numpy_helper.to_array(self._held[name]).astype(np.float64) for name in weights.input[1:3])
        sizes = [-1 if dim == 0 and scale.size > 1 else 1 for dim in range(data.ndim)]
        real = (data - point.reshape(sizes)) * scale.reshape(sizes)
        reach: Array = np.abs(real).reshape(len(data), -1).sum(axis=1)
        return reach


STEPS = {8: 4, 16: 64}
"""By the bits of a grid: the steps by which LiteRT's tables and shifts may differ from the rounded result."""
RELATIVE = 1e-4
"""The same for floats, relative to the tensor's largest value."""
HYBRID = 2e-2
"""The same for recurrent operators with integer weights whose activations LiteRT quantizes to 8 bits.

For others there is a bound: `HybridBounds`.
"""
NOTHING = 1e-30
"""Smaller differences are ignored: converters give a grid of 1e-37 to tensors that were always 0.

LiteRT's shifts do not reach such grids, so that its integers there are wrong.
"""


@dataclass(frozen=True, slots=True)
class Mistranslation:
    """An operator whose translation differs from LiteRT; `words` says by how much."""

    operator: str
    words: str


def mistranslations(
    model: CompiledModel, network: reference.Network | None, samples: Sequence[Sample]
) -> tuple[Mistranslation, ...]:
    """Compare the translation of each operator of a TFLite model with LiteRT, on the first sample.

    States have their initial values. A network that can't be cut in parts counts as a mistranslation.

    Raises:
        BuildError: onnxruntime or LiteRT is not installed.
    """
    if network is None or not samples:
        return ()
    graph = network.proto.graph
    bounds, names = HybridBounds(graph), [name for node in graph.node for name in node.output]
    try:
        (tensors,) = reference.intermediates(model.path, None, samples[:1], names, options=model.options)
        parts = reference.part_results(model.path, network, samples[0], tensors, options=model.options)
    except ModelError as refused:
        return (Mistranslation("the network", f"can't be compared operator by operator: {refused.what}"),)
    result = []
    for name, (operator, computed) in parts.items():
        if operator in bounds.blocks:
            continue
        bound = bounds.of(operator, {**samples[0], **tensors}, tensors[name])
        relative = HYBRID if operator in bounds.hybrid and bound is None else RELATIVE
        step = network.steps.get(name, 1.0)
        words = _difference(tensors[name], computed, relative, step, bound)
        if words:
            result.append(Mistranslation(operator, f"{name}: {words}"))
    return tuple(result)


def _difference(expected: Array, actual: Array, relative: float, step: float, bound: Array | None = None) -> str:
    """Return an operator's error as text, if it is larger than LiteRT's own; else "".

    `step` is the real value of an integer step; `bound` is an additional error bound of each element.
    """
    if expected.shape != actual.shape or expected.dtype != actual.dtype:
        return f"expected {expected.dtype}{list(expected.shape)}, found {actual.dtype}{list(actual.shape)}"
    if not expected.size:
        return ""
    if expected.dtype.kind == "f":
        finite = np.isfinite(expected) & np.isfinite(actual)
        if not np.array_equal(expected[~finite], actual[~finite], equal_nan=True):
            return "other elements are not finite"
        off = np.abs(expected[finite].astype(np.float64) - actual[finite])
        allowed = np.full(off.shape, relative * max(float(np.abs(expected[finite]).max(initial=0)), 1e-3))
        if bound is not None:
            allowed += bound[finite]
        worst = int(np.argmax(off - allowed)) if off.size else 0
        return f"by {off[worst]:.3g}, allowed: {allowed[worst]:.3g}" if (off > allowed).any() else ""
    steps = STEPS.get(8 * expected.dtype.itemsize, 0) if expected.dtype.kind in "iu" else 0
    furthest = int(np.abs(expected.astype(np.int64) - actual.astype(np.int64)).max())
    return f"by {furthest} LSB, allowed: {steps}" if furthest > steps and furthest * step > NOTHING else ""


log = logging.getLogger(__name__)

# The comparison of all operators' results with the reference's: its summary, its JSON, its error.


@dataclass(frozen=True, slots=True)
class LayerComparison:
    """The comparison of an operator's result over all samples.

    `difference` is None if the model has no such tensor. `ties` counts elements that are rounded the other way because
    the reference's float sum is not exact (mtool.verification.rounding_ties); they don't count as differing. `inside`
    compares the operators inside a control node whose result differs, for each sample
    (mtool.verification.control_flow).
    """

    operator: Operator
    tensor: str
    difference: Difference | None
    ties: int
    inside: tuple["LayerReport", ...] = ()

    def describe(self) -> str:
        """Return the operator's description for people."""
        origins = f' "{short_name(self.operator.origins[-1])}"' if self.operator.origins else ""
        by = f"{'backend' if self.operator.backend else 'schedule'} {self.operator.by}"
        return f"operator {self.operator.index}, {self.operator.label}{origins} ({by})"


_OTHER_MODEL = "the golden file is of another model, or of other inputs"


@dataclass(frozen=True, slots=True)
class LayerReport:
    """The comparison of all operators over `samples` samples; `sequence`: the states carry over from each to the next.

    `has_rounding`: the model rounds to integers, so that values within their tolerance may be steps apart later.
    `complete`: the last writer of each output was compared. `mistranslated`: operators of a TFLite model whose
    translation to ONNX differs from LiteRT. `outputs` compares the whole model's outputs with a golden file's; None:
    there is no file.
    """

    samples: int
    reference: str
    layers: tuple[LayerComparison, ...]
    sequence: bool = False
    has_rounding: bool = False
    complete: bool = True
    mistranslated: tuple[Mistranslation, ...] = ()
    outputs: Report | None = None

    @property
    def ties(self) -> int:
        """The number of elements, of all operators, that are rounded the other way."""
        return sum(layer.ties for layer in self.layers)

    @property
    def explain(self) -> bool:
        """Whether outputs differ only because of rounding: each operator is right for its own inputs."""
        compared = [layer.difference for layer in self.layers if layer.difference]
        inexact = any(result.differing for result in compared)
        right = self.complete and not self.diverging and not self.mistranslated
        return right and self.has_rounding and (self.ties > 0 or inexact)

    @property
    def diverging(self) -> tuple[LayerComparison, ...]:
        """The layers that differ by more than allowed, in the order of execution."""
        return tuple(layer for layer in self.layers if layer.difference and not layer.difference.within)

    def summary(self) -> str:
        """Return a line with the numbers of operators that are equal, within the tolerance, or not compared."""
        by_operator: dict[int, list[Difference | None]] = {}  # the results of an operator
        for layer in self.layers:
            by_operator.setdefault(layer.operator.index, []).append(layer.difference)
        compared = [[result for result in results if result is not None] for results in by_operator.values()]
        equal = sum(1 for results in compared if results and not any(result.differing for result in results))
        within = sum(1 for results in compared if any(result.differing for result in results))
        missing = sum(1 for results in by_operator.values() if None in results)
        parts = [f"{count(equal, 'operator')} equal, bit for bit"]
        if within:
            parts.append(f"{within} within the tolerance")
        if missing:
            parts.append(f"{missing} with a result that the model does not have")
        if self.ties:
            parts.append(f"except {count(self.ties, 'tie')} (halfway between two steps)")
        return f"{', '.join(parts)}, over {samples_of(self.samples, sequence=self.sequence)}"

    def as_json(self) -> dict[str, Any]:
        """Return the comparison as plain values."""
        rows = [
            {
                "index": layer.operator.index,
                "name": layer.operator.name,
                "tensor": layer.tensor,
                "schedule": layer.operator.by,
                "ties": layer.ties,
                "inside": [part.as_json() for part in layer.inside],
                "difference": None if layer.difference is None else asdict(layer.difference),
            }
            for layer in self.layers
        ]
        return {
            "ok": not self.diverging and not self.mistranslated and (self.outputs is None or self.outputs.ok),
            "samples": self.samples,
            "sequence": self.sequence,
            "reference": self.reference,
            "ties": self.ties,
            "mistranslated": [asdict(fault) for fault in self.mistranslated],
            "layers": rows,
            "outputs": None if self.outputs is None else self.outputs.as_json(),
        }

    def check(self) -> None:
        """Raise unless every operator and each of the outputs is within its tolerance.

        Raises:
            MismatchError: names the first operator that diverges, with its histogram, or that is mistranslated; or the
                outputs differ from the golden file's.
        """
        if self.mistranslated:
            raise MismatchError(
                f"{self.mistranslated[0].operator} computes something else than in LiteRT",
                details=[fault.words for fault in self.mistranslated],
                hint="report it with the model; --rounding tflite may avoid it",
            )
        if not self.diverging:
            if self.outputs is not None:
                self.outputs.check(f"every operator matches {self.reference}: {_OTHER_MODEL}")
            return
        first = self.diverging[0]
        assert first.difference is not None
        details = first.difference.lines()
        inner = next((part for part in first.inside if part.diverging), None)
        if inner is not None:
            worst = inner.diverging[0]
            assert worst.difference is not None
            details.append(f"inside it, {worst.describe()} is the first to diverge:")
            details.append(f"  {worst.difference.worst}")
        others = len(self.diverging) - 1
        if others:
            verb = "diverges" if others == 1 else "diverge"
            details.append(f"{count(others, 'other operator')} also {verb}, each given the reference's inputs")
        raise MismatchError(f"{first.describe()} is the first to diverge from {self.reference}", details=details)


# An operator's results over all samples, with the reference's.


@dataclass(slots=True)
class OperatorResults:
    """An operator's results for each sample, expected and actual, with the operand at its run-time sizes.

    `operand` has the sizes of the last sample.
    """

    operator: Operator
    operand: Operand
    samples: list[tuple[Array, Array]] = field(default_factory=list)
    operands: list[Operand] = field(default_factory=list)
    ties: int = 0


def layer_of(row: OperatorResults, allowed: Tolerance, against: str) -> LayerComparison:
    """Return the comparison of an operator's results with the reference's."""
    operand = row.operand
    if not row.operator.backend:
        allowed = replace(allowed, of_backends=0)
    tensor = operand.source.tensor if operand.source else operand.value
    if not row.samples:
        return LayerComparison(row.operator, tensor, None, 0)
    described = Tensor(
        name=tensor, c_name="", dtype=operand.dtype, shape=operand.shape, bytes=operand.bytes, arena_offset=None
    )
    expected, actual = (
        [{tensor: array} for array in _of_one_shape(arrays)] for arrays in zip(*row.samples, strict=True)
    )
    report = compare([described], expected, actual, tolerance=allowed, reference=against)
    return LayerComparison(row.operator, tensor, report.outputs[0], row.ties)


def _of_one_shape(arrays: Sequence[Array]) -> list[Array]:
    """Return arrays of different run-time sizes padded with zeros to the largest."""
    if len({array.shape for array in arrays}) == 1:
        return list(arrays)
    largest = tuple(map(max, zip(*(array.shape for array in arrays), strict=True)))
    return [
        np.pad(array, [(0, most - size) for most, size in zip(largest, array.shape, strict=True)]) for array in arrays
    ]


# The default tolerance of a model's outputs.


FLOAT16 = 2.0**-10
"""The tolerance of a float16 model, relative to the largest magnitude and to each value: a step of float16."""


def default_tolerance(model: Path | None = None, rounding: Rounding = "onnx", of_backends: int = 0) -> Tolerance:
    """Return a model's default tolerance: integers are equal except for ties, on every board and grid.

    A TFLite model is compared with LiteRT: exactly with its reference kernels if it uses their rounding, else within a
    step.

    Args:
        model: the model file.
        rounding: how integers are rounded.
        of_backends: the steps by which backends' integers may differ from mtool's own.
    """
    of_rounding = int(model is not None and is_tflite(model) and rounding != "tflite")
    return Tolerance(lsb=of_rounding, of_backends=of_backends)


def of_float16(tolerance: Tolerance, manifest: Manifest) -> Tolerance:
    """Return the tolerance with a step of float16 as default for a model with float16 tensors.

    onnxruntime keeps values between operators in float32, and rounds only where a float16 tensor is needed; a device
    rounds every tensor that it stores.
    """
    kinds = {tensor.dtype for tensor in (*manifest.inputs, *manifest.outputs)}
    kinds |= {operand.dtype for operator in manifest.operators for operand in (*operator.reads, *operator.writes)}
    if "float16" not in kinds:
        return tolerance
    atol, rtol = (FLOAT16 if value is None else value for value in (tolerance.atol, tolerance.rtol))
    return replace(tolerance, atol=atol, rtol=rtol)


CALLS = "calls"
"""The schedule of a control node (mtool.compiler.plan.whole)."""


def compare_layers(
    device: Device, model: CompiledModel, inputs: Sequence[Sample], tolerance: Tolerance | None = None
) -> LayerReport:
    """Run a model operator by operator on an open device, as `verify_layers`.

    Each sample is compared at its own run-time sizes.

    Raises:
        BuildError: the reference, onnxruntime or LiteRT, is not installed.
        MtoolError: of the failed stage's class, see mtool.errors.
    """
    tensors = model.manifest
    has_rounding, wrong = False, dict[Mistranslation, None]()
    allowed: Tolerance | None = tolerance
    network: reference.Network | None = None
    by_name: dict[str, OperatorResults] = {}
    seen: set[str] = set()
    sequences = _sequences(model, inputs)
    for number, (at_sizes, samples) in enumerate(sequences):
        if number:
            device.reset_state()
        network = reference.network(model.path, at_sizes.options)
        if allowed is None:
            steps = model.options.backend_steps
            allowed = default_tolerance(None if network else model.path, model.options.rounding, steps)
        allowed = of_float16(allowed, tensors)
        ties = RoundingTies(network.proto if network and allowed.ties else None, tensors.operators)
        has_rounding = has_rounding or ties.has_rounding or is_tflite(model.path)
        _compare_sequence(device, at_sizes, network, ties, samples, by_name, seen)
        if is_tflite(model.path):
            windows = reference.whole_windows(samples, at_sizes.options)
            wrong |= dict.fromkeys(mistranslations(at_sizes, network, windows))
    assert allowed is not None, "there is no sample"
    against = ort.NAME if network else reference.name_of_kernels(model.path)
    if allowed.ties and not (network or reference.is_exact(against)):
        allowed = replace(allowed, lsb=max(allowed.lsb, 1))
    layers = tuple(layer_of(row, allowed, against) for row in by_name.values())
    if network and not network.in_parts and len(sequences) == 1:
        rows = zip(by_name.values(), layers, strict=True)
        layers = tuple(_explained(model, network, inputs, row, layer, allowed) for row, layer in rows)
    has_rounding = has_rounding or any(layer.inside for layer in layers)
    counts = {output.count for output in tensors.outputs}  # which have to be equal
    indices = [index for index, output in enumerate(tensors.outputs) if output.name not in counts]
    last = [_last_write(tensors, index) for index in indices]
    compared = all(operand is not None and operand.value in seen for operand in last)
    return LayerReport(len(inputs), against, layers, bool(tensors.states), has_rounding, compared, tuple(wrong))


def _sequences(model: CompiledModel, inputs: Sequence[Sample]) -> list[tuple[CompiledModel, Sequence[Sample]]]:
    """Return sequences of samples, each starting from the initial states, and the model to compare each with.

    A TFLite model is translated to a network of fixed sizes, one for each choice of run-time sizes.
    """
    if not is_tflite(model.path):
        return [(model, inputs)]
    sequences: list[tuple[CompiledModel, Sequence[Sample]]] = []
    for sizes, samples in sampling.by_size(model.manifest.inputs, inputs):
        maxima = {name: most for name, most in model.options.maxima.items() if name not in sizes}
        options = replace(model.options, dims={**model.options.dims, **sizes}, maxima=maxima)
        sequences.append((replace(model, options=options), samples))
    return sequences


def _compare_sequence(
    device: Device,
    model: CompiledModel,
    network: reference.Network | None,
    ties: RoundingTies,
    inputs: Sequence[Sample],
    results: dict[str, OperatorResults],
    seen: set[str],
) -> None:
    """Run samples operator by operator, add the results to `results` and the compared values to `seen`."""
    names = [*sorted(ties.held), *ties.tensors]
    expected = reference.intermediates(model.path, network, inputs, names, options=model.options)
    windows = reference.whole_windows(inputs, model.options)
    for sample, window, tensors in zip(inputs, windows, expected, strict=True):
        tied_here = ties.of_sample(window, tensors)
        right = tensors
        if network and network.in_parts:
            held = {name: value for name, value in tensors.items() if name in ties.held}
            computed = reference.part_results(model.path, network, window, held, options=model.options)
            right = {**held, **{name: result for name, (_, result) in computed.items()}}

        def correct(_: Operator, operand: Operand, array: Array, tensors: Sample = tensors) -> Array | None:
            value = _expected(operand, tensors)
            return value if value is not None and not np.array_equal(value, array) else None

        parts: dict[str, list[tuple[Array, Array]]] = {}  # of results that are computed a few rows at a time
        for operator, operand, array in intermediates(device, sample, correct=correct):
            reference_value, name = _expected(operand, right), operator.whole or operand.value
            if reference_value is None and operator.whole:
                continue  # padding that is written between rows
            row = results.setdefault(name, OperatorResults(operator, operand))
            if reference_value is not None:
                seen.add(operand.value)
                accepted, tied = tied_here.accept(operand, reference_value, array)
                row.operand = operand
                row.ties += tied
                parts.setdefault(name, []).append((reference_value, accepted))
        for name, pairs in parts.items():
            columns = zip(*pairs, strict=True)
            whole, mine = (np.concatenate(rows, axis=1) if len(rows) > 1 else rows[0] for rows in columns)
            results[name].operands.append(results[name].operand)
            results[name].samples.append((whole, mine))


def _explained(
    model: CompiledModel,
    network: reference.Network,
    inputs: Sequence[Sample],
    row: OperatorResults,
    layer: LayerComparison,
    allowed: Tolerance,
) -> LayerComparison:
    """Return a layer with the comparison inside its control node; if that is right except for ties, so is the layer."""
    if layer.operator.schedule != CALLS or layer.difference is None or layer.difference.within:
        return layer
    inputs = reference.whole_windows(inputs, model.options)
    inputs, network = reference.with_states(model.path, network, inputs, options=model.options)
    results = zip(inputs, row.operands, row.samples, strict=True)
    differing = [(sample, at, mine) for sample, at, (right, mine) in results if not np.array_equal(right, mine)]
    inside = _inside(model, network, layer.operator, differing, allowed)
    if not inside or not all(comparison.explain for comparison in inside):
        return replace(layer, inside=inside)
    ties = sum(comparison.ties for comparison in inside)
    difference = replace(layer.difference, within=True, allowed=f"the effect of {cause_of(ties)} inside it")
    return replace(layer, inside=inside, difference=difference, ties=layer.ties + ties)


def cause_of(ties: int) -> str:
    """Return why outputs differ although each operator is right for its own inputs."""
    return count(ties, "tie") if ties else "rounding differences within the tolerance"


# Inside a control node. A device runs an If or a Loop in one step, so that the operators inside are not visible. If its
# result differs, the path of the run is written out (mtool.verification.control_flow), compiled for the same core and
# run operator by operator, from the reference's inputs of the node. It uses the bodies' own kernels, so it has to give
# the device's own result; then the explanation for one holds for the other.


def _inside(
    model: CompiledModel,
    network: reference.Network,
    operator: Operator,
    differing: Sequence[tuple[Sample, Operand, Array]],
    allowed: Tolerance,
) -> tuple[LayerReport, ...]:
    """Return the comparison of the operators on a control node's path, for each result that differs.

    Empty if a path is too long, or its result differs from the device's own.

    Args:
        model: the node's model.
        network: the model's ONNX network, with states as inputs.
        operator: the control node.
        differing: for each: the sample, the node's result at its run-time sizes, and the device's values.
        allowed: the allowed differences.
    """
    nodes = [node for node in network.proto.graph.node if node.op_type in CONTROL]
    name_of = operator_of if is_tflite(model.path) else attrgetter("name")  # of a TFLite model: with a number appended
    node = next((node for node in nodes if {name_of(node), *node.output} & {*operator.origins} - {""}), None)
    try:
        title = f"inside_{operator.name}"
        if node is None:
            return ()
        return tuple(_path_compared(model, network, node, *case, allowed, title) for case in differing)
    except (NotWritten, MtoolError) as failed:
        log.info("the operators inside %s can't be compared: %s", operator.name, failed)
        return ()


def _path_compared(
    model: CompiledModel, network: reference.Network, node: onnx.NodeProto, sample: Sample, operand: Operand,
    actual: Array, allowed: Tolerance, title: str,
) -> LayerReport:  # fmt: skip
    assert operand.source is not None
    proto = path_of(model, network, node, operand.source.tensor, sample)
    board = model.board if model.board.emulator or model.board.cpu == "host" else boards.get("host")
    nothing: dict[str, Any] = {name: {} for name in ("dims", "constants", "state_values", "maxima", "schedules")}
    options = replace(model.options, **nothing, states=(), slides=(), pools=(), natural_maxima=True)
    feeds = known_values(model, network, [value.name for value in proto.graph.input], sample)
    with tempfile.TemporaryDirectory(prefix="mtool-inside-") as folder:
        source = Path(folder) / f"{title}.onnx"
        source.write_bytes(proto.SerializeToString())
        inner = compile(source, board=board, options=options)
        with session.open(build_model(inner, Path(folder) / "project").folder) as device:
            output = device.run(feeds)[proto.graph.output[0].name]
            layers = compare_layers(device, inner, [feeds], allowed)
    whole = moved(output, operand.source.moves)
    same = str(whole.dtype) == str(actual.dtype) and _is_same(whole.reshape(actual.shape), actual)
    if not same and not layers.diverging:
        raise NotWritten(f"{node.name or operand.source.tensor} differs from its operators run one by one")
    return layers


def _is_same(a: Array, b: Array) -> bool:
    """Return whether two results are equal; floats may differ by the rounding of fused operations."""
    if a.dtype.kind != "f":
        return np.array_equal(a, b)
    return np.allclose(a, b, rtol=1e-5, atol=1e-6, equal_nan=True)


def _expected(operand: Operand, tensors: Sample) -> Array | None:
    """Return the reference's values of an operand, in its memory layout; None: the model has no such tensor."""
    if operand.source is None or operand.source.tensor not in tensors:
        return None
    array = moved(tensors[operand.source.tensor], operand.source.moves)
    return array.reshape(operand.shape) if str(array.dtype) == operand.dtype else None


def _last_write(manifest: Manifest, index: int) -> Operand | None:
    """Return the operand that is written last at the place of a model output."""
    output = manifest.outputs[index]
    last = None
    for operand in (operand for operator in manifest.operators for operand in operator.writes):
        if output.arena_offset is None:
            hit = operand.memory == "outputs" and operand.index == index
        else:
            end = output.arena_offset + output.bytes
            overlaps = operand.offset < end and operand.offset + operand.bytes > output.arena_offset
            hit = (operand.memory, operand.index) == ("arena", output.pool) and overlaps
        last = operand if hit else last
    return last
