"""A trial has the same C as the model."""

from pathlib import Path

import onnx
import pytest
import sliding

from mtool import boards
from mtool.compiler import codegen
from mtool.compiler.compilation import plan_model, target_of
from mtool.compiler.kernels.concat import Concat
from mtool.compiler.tuned.tasks import tasks_of
from mtool.stages.options import Options
from mtool.tuning.candidates import space_of
from mtool.tuning.trial import Share, trial_of

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits_int8.onnx"


@pytest.mark.slow
def test_a_tile_that_a_schedule_chooses_is_the_models_in_a_trial_of_many() -> None:
    """What a byte of code is worth follows from the products of a model, and a trial has those of all candidates."""
    board = boards.get("mps2_an385")
    target = target_of(board)
    plan, names = plan_model(DIGITS, board, Options(partial="never"))
    spaces = [space_of(task, target) for task in tasks_of(plan, names)]
    trial = trial_of([Share(space, space.candidates) for space in spaces], target)
    steps = {step.node.name: step for step in trial.plan.steps}
    for space, of_task in zip(spaces, trial.tasks, strict=True):
        node, graph = space.task.step.node, space.task.graph
        for name, candidate in zip(of_task.candidates, space.candidates, strict=True):
            own = candidate.schedule.emit(node, graph, target)
            found = steps[name].schedule.emit(steps[name].node, trial.plan.graph, target)
            assert (found.body, found.arguments) == (own.body, own.arguments), (name, candidate.text)


def test_rows_that_are_appended_to_a_state_are_no_task(tmp_path: Path) -> None:
    board, path = boards.get("mps2_an386"), tmp_path / "slides.onnx"
    proto, slide = sliding.network(2)
    onnx.save(proto, path)
    plan, names = plan_model(path, board, Options(partial="never", slides=(slide,)))
    joins = [step.node for step in plan.steps if isinstance(step.node.attrs, Concat) and step.node.attrs.appends]
    tasks = tasks_of(plan, names)
    assert joins and not {node.title for node in joins}.intersection(*(task.nodes for task in tasks))
    spaces = [space_of(task, target_of(board)) for task in tasks]
    trial = trial_of([Share(space, space.candidates) for space in spaces], target_of(board))
    codegen.generate(trial.plan, "trial", "0" * 64)
