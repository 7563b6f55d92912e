"""Compare a model on a board with a golden file, or with onnxruntime on inputs drawn from a seed."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from mtool.boards import Board
from mtool.session.verify import Report, Tolerance, compare
from mtool.workflow import reference
from mtool.workflow import samples as sampling
from mtool.workflow.execution import run_samples
from mtool.workflow.samples import Sample
from mtool.workflow.stages import Model, Options, build_model, compile

log = logging.getLogger(__name__)


def default_tolerance(board: Board) -> Tolerance:
    """Return what a board is held to: integers equal where it has an FPU, else within one step."""
    return Tolerance(lsb=0 if "fpu" in board.features else 1)


def verify(
    path: str | Path,
    *,
    board: str | Board,
    golden: Path | None = None,
    tolerance: Tolerance | None = None,
    samples: int = 4,
    seed: int = 0,
    folder: Path | None = None,
    options: Options | None = None,
    port: str = "",
    probe: str = "",
) -> Report:
    """Compile, build and run a model, and compare its outputs with a reference.

    Args:
        path: the ONNX model.
        board: a board or its name.
        golden: a .npz file of inputs x0.. and outputs y0.., each with a leading axis of samples; default:
            onnxruntime's outputs, with every graph optimisation off.
        tolerance: what is allowed; default: that of the board, and for a float output on a quantisation grid
            as many steps as onnxruntime differs from itself with and without its optimisations, at least one.
        samples: how many to draw, without a golden file.
        seed: of the drawn samples.
        folder: the project folder; default: build/<model>-<board>.
        options: how to compile and which template to use.
        port: the serial port of the board; default: its emulator, MTOOL_PORT, mtool.toml, the single match.
        probe: the USB serial number of the board or its probe, or the beginning of it.

    Returns:
        How each output compares; `Report.check` raises a MismatchError if one is not within the tolerance.

    Raises:
        MtoolError: of the class that tells the stage, see mtool.errors.
    """
    model = compile(path, board=board, options=options)
    tensors = model.manifest
    expected: Sequence[Sample]
    if golden is not None:
        inputs, expected = sampling.golden_of(golden, tensors.inputs, tensors.outputs)
    else:
        inputs = sampling.seeded(tensors.inputs, count=samples, seed=seed)
        expected = reference.outputs(Path(path), inputs, constants=model.options.constants)
    found = run_samples(build_model(model, folder), inputs, port=port, probe=probe)
    name = golden.name if golden is not None else reference.NAME
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
    """Compare outputs with a reference's, with the tolerance that `verify` tells."""
    tensors = model.manifest
    allowed = tolerance or default_tolerance(model.board)
    report = compare(tensors.outputs, expected, found, tolerance=allowed, reference=name)
    if report.ok or allowed.grid_steps is not None or not reference.version():
        return report
    steps = _steps_of_the_reference(model, inputs)
    if steps <= 1:
        return report
    log.warning("onnxruntime's own outputs differ by %d LSB with its optimisations: so much is allowed", steps)
    return compare(tensors.outputs, expected, found, tolerance=replace(allowed, grid_steps=steps), reference=name)


def _steps_of_the_reference(model: Model, inputs: Sequence[Sample]) -> int:
    """Return how exactly onnxruntime itself knows the float outputs that stand on a grid, in steps."""
    outputs = [output for output in model.manifest.outputs if output.dtype.startswith("float")]
    grids = [(output.name, output.scale[0]) for output in outputs if output.scale and len(output.scale) == 1]
    constants = model.options.constants
    return max((reference.own_spread(model.path, inputs, name, step, constants) for name, step in grids), default=0)
