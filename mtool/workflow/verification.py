"""Compare a model on a board with a golden file, or with its reference on inputs drawn from a seed."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from mtool import locks
from mtool.boards import Board
from mtool.frontend import Rounding, is_tflite
from mtool.session.verify import Report, Tolerance, compare
from mtool.workflow import counted, reference
from mtool.workflow import samples as sampling
from mtool.workflow.execution import run_samples
from mtool.workflow.place import ANYWHERE, Place
from mtool.workflow.samples import Sample
from mtool.workflow.stages import Model, Options, build_model, compile

log = logging.getLogger(__name__)


def default_tolerance(board: Board, model: Path | None = None, rounding: Rounding = "onnx") -> Tolerance:
    """Return what a board is held to: integers equal where it has an FPU, else within one step.

    A TFLite model is held to LiteRT's: to its reference kernels exactly with their rounding, to others within a step.
    """
    if rounding == "tflite":
        return Tolerance(lsb=0)
    one = "fpu" not in board.features or (model is not None and is_tflite(model))
    return Tolerance(lsb=int(one))


def golden_suffix(model: Path, rounding: Rounding) -> str:
    """Return what the outputs of a golden file may be named with behind y0, y1 …: "" for an ONNX model."""
    if not is_tflite(model):
        return ""
    return "_tflite_ref" if rounding == "tflite" else "_tflite_xnn"


@locks.keeping()
def verify(
    path: str | Path,
    *,
    board: str | Board,
    golden: Path | None = None,
    tolerance: Tolerance | None = None,
    samples: int = 4,
    seed: int = 0,
    options: Options | None = None,
    place: Place = ANYWHERE,
) -> Report:
    """Compile, build and run a model, and compare its outputs with a reference.

    Args:
        path: the ONNX or TFLite model.
        board: a board or its name.
        golden: a .npz file of inputs x0.. and outputs y0.., each with a leading axis of samples; default:
            onnxruntime's outputs, with every graph optimisation off; LiteRT's of a TFLite model. Integer outputs of a
            TFLite model are y0_tflite_ref with `rounding="tflite"`, else y0_tflite_xnn, if the file has those.
            Where the model has states, the samples are a sequence, from the states' initial values on; the reference
            is fed with its own.
        tolerance: what is allowed; default: that of the board, and for a float output on a quantisation grid
            as many steps as the reference differs from itself with and without its optimisations, at least one.
        samples: how many to draw, without a golden file.
        seed: of the drawn samples.
        options: how to compile and which template to use.
        place: where the project lies, and which device runs it.

    Returns:
        How each output compares; `Report.check` raises a MismatchError if one is not within the tolerance.

    Raises:
        MtoolError: of the class that tells the stage, see mtool.errors.
    """
    model = compile(path, board=board, options=options)
    tensors = model.manifest
    expected: Sequence[Sample]
    if golden is not None:
        suffix = golden_suffix(model.path, model.options.rounding)
        inputs, expected = sampling.golden_of(golden, tensors.inputs, tensors.outputs, suffix)
    else:
        inputs = sampling.seeded(tensors.inputs, count=samples, seed=seed)
        expected = reference.outputs(model.path, inputs, options=model.options)
    found = run_samples(build_model(model, place.folder), inputs, place)
    name = golden.name if golden is not None else reference.name_of(model.path)
    return judge(model, inputs, expected, found, name=name, tolerance=tolerance)


def judge(
    model: Model,
    inputs: Sequence[Sample],
    expected: Sequence[Sample],
    found: Sequence[Sample],
    *,
    name: str,
    tolerance: Tolerance | None = None,
) -> Report:
    """Compare outputs with a reference's, with the tolerance that `verify` tells.

    Where the size of an output depends on data, only what is there is compared, and how much that is.
    """
    tensors = model.manifest
    expected = [counted.filled(tensors.outputs, sample) for sample in expected]
    found = [counted.blanked(tensors.outputs, sample) for sample in found]
    allowed = tolerance or default_tolerance(model.board, model.path, model.options.rounding)
    report = compare(tensors.outputs, expected, found, tolerance=allowed, reference=name)
    report = replace(report, sequence=bool(tensors.states))
    if report.ok or allowed.grid_steps is not None or not reference.is_installed(model.path):
        return report
    steps = _steps_of_the_reference(model, inputs)
    if steps <= 1:
        return report
    own = reference.name_of(model.path)
    log.warning("%s's own outputs differ by %d LSB with its optimisations: so much is allowed", own, steps)
    wider = compare(tensors.outputs, expected, found, tolerance=replace(allowed, grid_steps=steps), reference=name)
    return replace(wider, sequence=report.sequence)


def _steps_of_the_reference(model: Model, inputs: Sequence[Sample]) -> int:
    """Return how exactly the reference itself knows the float outputs that stand on a grid, in steps."""
    outputs = [output for output in model.manifest.outputs if output.dtype.startswith("float")]
    grids = [(output.name, output.scale[0]) for output in outputs if output.scale and len(output.scale) == 1]
    return max((reference.own_spread(model.path, inputs, name, step, model.options) for name, step in grids), default=0)
