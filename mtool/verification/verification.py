"""Compare a model on a board with a golden file, or with its reference on random inputs."""

import functools
import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import numpy as np

from mtool.base import checked, locks
from mtool.base.errors import UsageError
from mtool.boards import Board
from mtool.compiler.frontend import is_tflite
from mtool.device.session import Device
from mtool.stages import samples as sampling
from mtool.stages.compiling import CompiledModel
from mtool.stages.deployment import DEFAULT, Deployment, run_samples
from mtool.stages.job import Job
from mtool.stages.options import Options
from mtool.stages.samples import Sample
from mtool.verification import reference
from mtool.verification.comparison import Report, Tolerance, check_shapes, compare, has_steps
from mtool.verification.layers import LayerReport, cause_of, compare_layers, default_tolerance, of_float16
from mtool.verification.oracles import ort
from mtool.verification.oracles.process import DiedError

log = logging.getLogger(__name__)

Opened = Callable[[], AbstractContextManager[Device]]
_FEW = 16  # samples that are all examined; of more, those that differ, if the first of them can be explained


def golden_samples(model: CompiledModel, golden: Path) -> tuple[list[Sample], list[Sample]]:
    """Return the inputs and outputs of a golden file; for a TFLite model, those of the kernels it is compared with.

    Raises:
        UsageError: an array is missing, or its shape or type differs from the model's.
    """
    tensors, rounding = model.manifest, model.options.rounding
    if not is_tflite(model.path):
        return sampling.golden_of(golden, tensors.inputs, tensors.outputs)
    is_hybrid = reference.is_hybrid(model.path, model.options)
    suffix = "_tflite_ref" if rounding == "tflite" or is_hybrid else "_tflite_xnn"
    return sampling.golden_of(golden, tensors.inputs, tensors.outputs, suffix, floats=is_hybrid)


@locks.keep_locks()
def verify(
    path: str | Path,
    *,
    board: str | Board,
    golden: Path | None = None,
    tolerance: Tolerance | None = None,
    samples: checked.Count = 4,
    seed: checked.Natural = 0,
    options: Options | None = None,
    deployment: Deployment = DEFAULT,
    on: Path | None = None,
) -> Report:
    """Compile, build and run a model, and compare its outputs with a reference.

    Args:
        path: the ONNX or TFLite model.
        board: a board or its name.
        golden: a .npz file of inputs x0.. and outputs y0.., each with a leading axis of samples; default: the outputs
            of onnxruntime with every graph optimisation off, for a TFLite model LiteRT's. Integer outputs of a TFLite
            model are y0_tflite_ref with `rounding="tflite"`, else y0_tflite_xnn, if the file has those; all outputs are
            y0_tflite_ref if float activations are quantized to 8 bits.
            If the model has states, the samples are a sequence that starts from the states' initial values; the
            reference keeps its own states.
        tolerance: the allowed differences; default: `default_tolerance`. If outputs differ by more, every operator is
            compared, as in `verify_layers`: if each is right for its own inputs, except for ties of the reference's
            float sums, these explain the differences, and the outputs are accepted.
        samples: the number of random inputs, without a golden file.
        seed: the seed of the random inputs.
        options: how to compile and which template to use.
        deployment: the project folder, and the device that runs it.
        on: the project whose firmware has the model as a module, which is run; nothing is built or flashed then. The
            name in the options is the model's name on the device.

    Returns:
        The comparison of each output; `Report.check` raises a MismatchError if one is not within the tolerance.

    Raises:
        MtoolError: of the failed stage's class, see mtool.errors.
    """
    job = Job.of(path, board, options, deployment, golden=golden, samples=samples, seed=seed, on=on)
    model = job.compile()
    expected: Sequence[Sample]
    against = ""
    if golden is not None:
        inputs, expected = golden_samples(model, golden)
    else:
        inputs = job.inputs(model.manifest)
        against, expected = reference.computed_by(model.path, inputs, options=model.options)
    prepared = job.build(model)
    outputs = run_samples(prepared, inputs, deployment)

    def opened() -> Device:
        job.refuse_module("the operators of a module can't be compared")
        return deployment.open(prepared)

    return judge(model, inputs, expected, outputs, golden=golden, against=against, tolerance=tolerance, opened=opened)


@locks.keep_locks()
def verify_layers(
    path: str | Path,
    *,
    board: str | Board,
    golden: Path | None = None,
    tolerance: Tolerance | None = None,
    samples: checked.Count = 4,
    seed: checked.Natural = 0,
    options: Options | None = None,
    deployment: Deployment = DEFAULT,
    on: Path | None = None,
) -> LayerReport:
    """Compile, build and run a model operator by operator, and compare each result with the model's own tensor.

    If a result differs, the device continues with the reference's values, so that the next operator is judged by its
    own result.

    Args:
        path: the ONNX or TFLite model.
        board: a board or its name.
        golden: a .npz file of inputs and outputs, as in `verify`; the whole model's outputs are compared with its
            outputs too. Default: random inputs.
        tolerance: the allowed differences; default: `default_tolerance`.
        samples: the number of random inputs, without a golden file.
        seed: the seed of the random inputs.
        options: how to compile and which template to use.
        deployment: the project folder, and the device that runs it.
        on: the package in firmware of your own, which is run; nothing is built or flashed then.

    Raises:
        BuildError: the reference, onnxruntime or LiteRT, is not installed.
        UsageError: the model is a module, which does not describe its operators.
        MtoolError: of the failed stage's class, see mtool.errors.
    """
    job = Job.of(path, board, options, deployment, golden=golden, samples=samples, seed=seed, on=on)
    job.refuse_module("the operators of a module can't be compared")
    model = job.compile()
    expected: Sequence[Sample] = ()
    if golden is None:
        inputs = job.inputs(model.manifest)
    else:
        inputs, expected = golden_samples(model, golden)
    prepared = job.build(model)
    with deployment.open(prepared) as device:
        layers = compare_layers(device, model, inputs, tolerance)
    if golden is None:
        return layers
    actual = run_samples(prepared, inputs, deployment)
    opened = functools.partial(deployment.open, prepared)
    outputs = judge(model, inputs, expected, actual, golden=golden, tolerance=tolerance, opened=opened)
    return replace(layers, outputs=outputs)


def judge(
    model: CompiledModel,
    inputs: Sequence[Sample],
    expected: Sequence[Sample],
    actual: Sequence[Sample],
    *,
    opened: Opened,
    golden: Path | None = None,
    against: str = "",
    tolerance: Tolerance | None = None,
) -> Report:
    """Compare outputs with a reference's, as `verify`.

    If the size of an output depends on data, the sizes and the valid elements are compared.

    Args:
        model: the model.
        inputs: samples.
        expected: the reference's outputs for each sample.
        actual: the device's outputs, in the same order.
        opened: opens a session with the device, to compare every operator's result on some of the samples.
        golden: the file with the expected outputs; None: they are the reference's.
        against: the reference's name, from `reference.computed_by`; default: that of the model's reference.
        tolerance: the allowed differences; default: `default_tolerance`.
    """
    tensors = model.manifest
    is_given = tolerance is not None and (tolerance.atol is not None or tolerance.rtol is not None)
    if is_given and not any(np.dtype(output.dtype).kind == "f" for output in tensors.outputs):
        log.warning("--atol and --rtol apply to floats, and all outputs are integers: use --lsb N")
    own_lsb = default_tolerance(model.path, model.options.rounding).lsb
    is_lsb_given = tolerance is not None and (tolerance.lsb > own_lsb or (tolerance.lsb > 0 and not tolerance.ties))
    if is_lsb_given and not any(map(has_steps, tensors.outputs)):
        log.warning("--lsb applies to integers of 8 bits or with a scale, and no output is one; use --atol and --rtol")
    options = model.options
    name = golden.name if golden is not None else against or reference.name_of(model.path)
    # outputs with run-time sizes, before they are padded to the same shape
    check_shapes((tensor for tensor in tensors.outputs if tensor.dims is not None), expected, actual, name)
    expected = [sampling.padded(tensors.outputs, sample) for sample in expected]
    actual = [sampling.masked(tensors.outputs, sample) for sample in actual]
    allowed = tolerance or default_tolerance(model.path, options.rounding, options.backend_steps)
    if golden is None and allowed.ties and is_tflite(model.path) and not reference.is_exact(name):
        allowed = replace(allowed, lsb=max(allowed.lsb, 1))
    allowed = of_float16(allowed, tensors)

    def compared(within: Tolerance) -> Report:
        report = compare(tensors.outputs, expected, actual, tolerance=within, reference=name)
        return replace(report, sequence=bool(tensors.states))

    steps = allowed.grid_steps or 0
    exact = compared(replace(allowed, grid_steps=steps))
    if exact.ok or not reference.is_installed(model.path):
        return exact if exact.ok else compared(allowed)
    if not allowed.ties or is_tflite(model.path):
        exact = _within_own_spread(model, inputs, compared, allowed)
    elif golden is not None and not _is_of_the_reference(model, inputs, expected):
        return compared(allowed)
    if exact.ok or not allowed.ties:
        return exact
    counts = {output.count for output in tensors.outputs}
    if any(output.name in counts and not output.within for output in exact.outputs):
        return exact
    differing = list(inputs)  # in a sequence, each depends on the one before it
    if not tensors.states and len(inputs) > _FEW:
        strict = replace(allowed, grid_steps=steps)
        pairs = zip(expected, actual, strict=True)
        within = [compare(tensors.outputs, [one], [other], tolerance=strict, reference=name).ok for one, other in pairs]
        differing = [sample for sample, is_fine in zip(inputs, within, strict=True) if not is_fine] or differing
    return _explained(model, exact, opened, allowed, differing) or exact


def _explained(
    model: CompiledModel, report: Report, opened: Opened, allowed: Tolerance, differing: Sequence[Sample]
) -> Report | None:
    """Return a report that accepts the differences, if each operator is right except for ties; else None."""
    try:
        first = differing if model.manifest.states else differing[:_FEW]
        with opened() as device:
            layers = compare_layers(device, model, first, allowed)
            if layers.explain and len(first) < len(differing):
                layers = compare_layers(device, model, differing, allowed)
    # a project of an earlier version, which does not describe its operators' writes; or LiteRT crashes
    except (UsageError, DiedError) as refused:
        log.info("the operators can't be compared: %s", refused.what)
        return None
    if not layers.explain:
        return None
    effect = f"the effect of {cause_of(layers.ties)} before it"
    path, options = model.path, model.options
    if is_tflite(path) and reference.has_hybrid(path, options) and not reference.is_hybrid(path, options):
        effect = "the effect of LiteRT's quantization of activations to 8 bits; each operator alone is right"
    outputs = [output if output.within else replace(output, within=True, allowed=effect) for output in report.outputs]
    return replace(report, outputs=tuple(outputs), ties=layers.ties)


def _is_of_the_reference(model: CompiledModel, inputs: Sequence[Sample], expected: Sequence[Sample]) -> bool:
    """Return whether expected outputs are the reference's, computed here or on another processor.

    There, and with optimisations, it adds floats in another order; differences of that size are allowed.
    """
    outputs = model.manifest.outputs
    actual = reference.outputs(model.path, inputs, options=model.options)
    actual = [sampling.padded(outputs, sample) for sample in actual]
    if compare(outputs, expected, actual, tolerance=Tolerance(grid_steps=0), reference=ort.NAME).ok:
        return True
    steps = _steps_of_the_reference(model, inputs)
    return compare(outputs, expected, actual, tolerance=Tolerance(lsb=steps, grid_steps=steps), reference=ort.NAME).ok


def _within_own_spread(
    model: CompiledModel, inputs: Sequence[Sample], compared: Callable[[Tolerance], Report], allowed: Tolerance
) -> Report:
    """Allow an output on a grid the steps by which the reference differs from itself, at least one.

    This includes the integers of a TFLite model with ONNX's rounding: LiteRT's default kernels round nearly that way.
    """
    report = compared(allowed)
    integers = is_tflite(model.path) and model.options.rounding == "onnx"
    if report.ok or allowed.grid_steps is not None:
        return report
    steps = _steps_of_the_reference(model, inputs)
    if steps <= 1:
        return report
    name = reference.name_of(model.path)
    log.warning("allowing %d LSB: %s's own outputs differ by that with its optimisations", steps, name)
    lsb = max(steps, allowed.lsb) if integers else allowed.lsb
    return compared(replace(allowed, grid_steps=steps, lsb=lsb))


def _steps_of_the_reference(model: CompiledModel, inputs: Sequence[Sample]) -> int:
    """Return the steps by which the reference's own outputs on a grid vary."""
    steps = {
        output.name: output.scale[0] if output.dtype.startswith("float") else 1.0
        for output in model.manifest.outputs
        if output.scale and len(output.scale) == 1
    }
    return reference.spread_of_reference(model.path, inputs, steps, model.options)
