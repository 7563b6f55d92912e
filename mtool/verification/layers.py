"""Compare every tensor that a device computes with the model's own."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from mtool.base import locks
from mtool.boards import Board
from mtool.compiler.frontend import is_tflite
from mtool.compiler.ir.graph import moved
from mtool.device.session import Device
from mtool.device.session.layers import intermediates
from mtool.device.session.verify import Tolerance
from mtool.manifest import Manifest, Operand, Operator
from mtool.stages import arrays
from mtool.stages import samples as sampling
from mtool.stages.building import build_model
from mtool.stages.compiling import Model
from mtool.stages.deployment import DEFAULT, Deployment
from mtool.stages.formatting import count
from mtool.stages.options import Options
from mtool.stages.samples import Array, Sample
from mtool.verification import reference
from mtool.verification.control_flow_check import Seen, look_inside
from mtool.verification.layer_report import Layer, Layers
from mtool.verification.layer_results import Found, layer_of
from mtool.verification.oracles import ort
from mtool.verification.rounding_ties import RoundingTies
from mtool.verification.tolerance import default_tolerance, of_float16
from mtool.verification.translation import Mistranslation, checked

CALLS = "calls"
"""The schedule of a control node (mtool.compiler.plan.control)."""


@locks.keep_locks()
def verify_layers(
    path: str | Path,
    *,
    board: str | Board,
    golden: Path | None = None,
    tolerance: Tolerance | None = None,
    samples: int = 4,
    seed: int = 0,
    options: Options | None = None,
    deployment: Deployment = DEFAULT,
) -> Layers:
    """Compile, build and run a model operator by operator, and compare each result with the model's own tensor.

    Where a result differs, the device goes on with the reference's values, so that the next operator is judged by
    what it does itself.

    Args:
        path: the ONNX or TFLite model.
        board: a board or its name.
        golden: a .npz file whose inputs x0.. to use; default: inputs drawn from `seed`.
        tolerance: what is allowed; default: that of the board.
        samples: how many to draw, without a golden file.
        seed: of the drawn samples.
        options: how to compile and which template to use.
        deployment: the project folder, and the device that runs it.

    Raises:
        BuildError: the reference, onnxruntime or LiteRT, is not installed.
        MtoolError: of the class that tells the stage, see mtool.errors.
    """
    if golden is not None:
        arrays.stored(golden)  # before all the work
    model = deployment.compile(path, board=board, options=options)
    tensors = model.manifest
    inputs: Sequence[Sample]
    if golden is not None:
        inputs, _ = sampling.golden_of(golden, tensors.inputs, tensors.outputs)
    else:
        inputs = sampling.seeded(tensors.inputs, count=samples, seed=seed)
    with deployment.open(build_model(model, deployment.folder)) as device:
        return compare_layers(device, model, inputs, tolerance)


def compare_layers(
    device: Device, model: Model, inputs: Sequence[Sample], tolerance: Tolerance | None = None
) -> Layers:
    """Run a model operator by operator on a device that is open, as `verify_layers` tells.

    Of a model with run-time sizes each sample is compared at its own.

    Raises:
        BuildError: the reference, onnxruntime or LiteRT, is not installed.
        MtoolError: of the class that tells the stage, see mtool.errors.
    """
    tensors = model.manifest
    has_rounding, mistranslated = False, dict[Mistranslation, None]()
    allowed: Tolerance | None = tolerance
    network: reference.Network | None = None
    found: dict[str, Found] = {}
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
        _compare_sequence(device, at_sizes, network, ties, samples, found, seen)
        if is_tflite(model.path):
            mistranslated |= dict.fromkeys(checked(at_sizes, network, samples))
    assert allowed is not None, "there is no sample"
    against = ort.NAME if network else reference.name_of_kernels(model.path)
    if allowed.ties and not (network or reference.is_exact(against)):
        allowed = replace(allowed, lsb=max(allowed.lsb, 1))
    layers = tuple(layer_of(row, allowed, against) for row in found.values())
    if network and not network.in_parts and len(sequences) == 1:
        rows = zip(found.values(), layers, strict=True)
        layers = tuple(_explained(model, network, inputs, row, layer, allowed) for row, layer in rows)
    has_rounding = has_rounding or any(layer.inside for layer in layers)
    counts = {output.count for output in tensors.outputs}  # which nothing but equality is enough for
    own = [index for index, output in enumerate(tensors.outputs) if output.name not in counts]
    last = [_last_write(tensors, index) for index in own]
    compared = all(operand is not None and operand.value in seen for operand in last)
    return Layers(len(inputs), against, layers, bool(tensors.states), has_rounding, compared, tuple(mistranslated))


def _sequences(model: Model, inputs: Sequence[Sample]) -> list[tuple[Model, Sequence[Sample]]]:
    """Return sequences of samples, each from the states' beginning on, and the model to compare it with.

    A TFLite model is translated to a network of fixed sizes: it is another one for other run-time sizes.
    """
    if not is_tflite(model.path):
        return [(model, inputs)]
    found: list[tuple[Model, Sequence[Sample]]] = []
    for sizes, samples in sampling.by_size(model.manifest.inputs, inputs):
        maxima = {name: most for name, most in model.options.maxima.items() if name not in sizes}
        options = replace(model.options, dims={**model.options.dims, **sizes}, maxima=maxima)
        found.append((replace(model, options=options), samples))
    return found


def _compare_sequence(
    device: Device, model: Model, network: reference.Network | None, ties: RoundingTies, inputs: Sequence[Sample],
    found: dict[str, Found], seen: set[str],
) -> None:  # fmt: skip
    """Run samples operator by operator, and add each result to `found`; `seen` are the values that are compared."""
    operators = model.manifest.operators
    wanted = [operand.source.tensor for op in operators for operand in op.writes if operand.source]
    expected = reference.intermediates(model.path, network, inputs, [*wanted, *ties.tensors], options=model.options)
    held = {*wanted} if network and network.in_parts else set()
    for sample, known in zip(inputs, expected, strict=True):
        tied_here = ties.of_sample(sample, known)
        right = known
        if network and network.in_parts:
            parts = {name: value for name, value in known.items() if name in held}
            right = reference.part_results(model.path, network, sample, parts, options=model.options)

        def correct(_: Operator, operand: Operand, array: Array, known: Sample = known) -> Array | None:
            wished = _expected(operand, known)
            return wished if wished is not None and not np.array_equal(wished, array) else None

        for operator, operand, array in intermediates(device, sample, correct=correct):
            wished = _expected(operand, right)
            if wished is None and operator.whole:
                continue  # padding that is written between rows
            row = found.setdefault(operator.whole or operand.value, Found(operator, operand))
            if wished is not None:
                seen.add(operand.value)
                accepted, tied = tied_here.accept(operand, wished, array)
                row.operand = operand
                row.expected.append(wished)
                row.actual.append(accepted)
                row.ties += tied
        for row in found.values():
            row.end_sample()


def _explained(
    model: Model, network: reference.Network, inputs: Sequence[Sample], row: Found, layer: Layer, allowed: Tolerance
) -> Layer:
    """Return a layer with what its control node computed; if that is right but for ties, so is the layer."""
    if layer.operator.schedule != CALLS or layer.difference is None or layer.difference.within:
        return layer
    inputs, network = reference.with_states(model.path, network, inputs, options=model.options)
    results = zip(inputs, row.operands, row.samples, strict=True)
    seen = [Seen(sample, at, mine) for sample, at, (known, mine) in results if not np.array_equal(known, mine)]
    inside = tuple(look_inside(model, network, layer.operator, seen, compare_layers, allowed))
    if not inside or not all(one.explain for one in inside):
        return replace(layer, inside=inside)
    found = sum(one.ties for one in inside)
    cause = count(found, "tie") if found else "rounding what is within its tolerance"
    difference = replace(layer.difference, within=True, allowed=f"the effect of {cause} inside it")
    return replace(layer, inside=inside, difference=difference, ties=layer.ties + found)


def _expected(operand: Operand, known: Sample) -> Array | None:
    """Return the reference's values for an operand, as it lies in memory; None: the model has no such tensor."""
    if operand.source is None or operand.source.tensor not in known:
        return None
    array = moved(known[operand.source.tensor], operand.source.moves)
    return array.reshape(operand.shape) if str(array.dtype) == operand.dtype else None


def _last_write(described: Manifest, index: int) -> Operand | None:
    """Return what is written last where an output of the model lies."""
    output = described.outputs[index]
    last = None
    for operand in (operand for operator in described.operators for operand in operator.writes):
        if output.arena_offset is None:
            hit = operand.memory == "outputs" and operand.index == index
        else:
            end = output.arena_offset + output.bytes
            overlaps = operand.offset < end and operand.offset + operand.bytes > output.arena_offset
            hit = (operand.memory, operand.index) == ("arena", output.pool) and overlaps
        last = operand if hit else last
    return last
