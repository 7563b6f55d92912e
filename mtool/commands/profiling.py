"""Profile every operator of a model."""

from pathlib import Path

from mtool.base import locks
from mtool.boards import Board
from mtool.commands.first_run import compare_first_run
from mtool.device.session.profile import Profile
from mtool.stages import samples as sampling
from mtool.stages.deployment import DEFAULT, Deployment, run_samples
from mtool.stages.options import Options


@locks.keep_locks()
def bench_layers(
    path: str | Path,
    *,
    board: str | Board,
    repeat: int = 3,
    options: Options | None = None,
    deployment: Deployment = DEFAULT,
    fill: str = "random",
) -> Profile:
    """Compile, build and run a model, and time each operator on the device.

    Args:
        path: the ONNX or TFLite model.
        board: a board or its name.
        repeat: inferences, over which each operator's median is taken.
        options: how to compile and which template to use.
        deployment: the project folder, and the device that runs it.
        fill: what the inputs are filled with: "zeros", "ones", "random", or a file (workflow.filling).

    Raises:
        MtoolError: of the class that tells the stage, see mtool.errors.
    """
    sampling.check_fill(fill)
    model = deployment.compile(path, board=board, options=options)
    prepared = deployment.build(model)
    inputs = sampling.filled(prepared.manifest.inputs, fill)[0]
    with deployment.open(prepared) as device:
        profile = device.profile(inputs, repeat=repeat)
    compare_first_run(model, prepared, deployment, inputs, lambda: run_samples(prepared, [inputs], deployment)[0])
    return profile
