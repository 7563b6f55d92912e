"""Tasks, and the schedules that tuning results choose for a model."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from graphs import model
from onnx import helper

from mtool import boards
from mtool.base.errors import UsageError
from mtool.compiler.backends import BackendSpec
from mtool.compiler.compilation import compile_model, plan_model
from mtool.compiler.plan import Choice
from mtool.compiler.request import Request
from mtool.compiler.tuned.record import setup_of
from mtool.compiler.tuned.results import TuningResults
from mtool.compiler.tuned.tasks import Task, tasks_of
from tests.compiler.tuned.pointwise import network

BOARD = boards.get("mps2_an386")
BACKEND = """
from mtool.compiler.backends import Backend, Pattern, Product

class Npu(Backend):
    name = "npu"
    patterns = (Pattern("Conv"),)

    def compile(self, region, folder):
        return Product(body="    npu();", headers=("npu.h",), files={"npu.h": b"/" * 20000})
"""


def tasks(path: Path) -> list[Task]:
    return [task for task in tasks_of(*plan_model(path, BOARD)) if task.record.op == "conv2d"]


def test_layers_that_differ_in_weights_and_scales_alone_are_one_task(tmp_path: Path) -> None:
    found = tasks(network(tmp_path / "a.onnx"))
    assert [len(task.nodes) for task in found] == [1, 2, 1]
    again = tasks(network(tmp_path / "b.onnx", scale=0.5))
    assert [task.record.key for task in again] == [task.record.key for task in found]


def test_layers_of_other_shapes_are_other_tasks(tmp_path: Path) -> None:
    keys = {task.record.key for task in tasks(network(tmp_path / "a.onnx"))}
    assert not keys & {task.record.key for task in tasks(network(tmp_path / "b.onnx", channels=12))}


def schedules(path: Path, known: TuningResults, **given: Choice) -> dict[str, str]:
    manifest = compile_model(path, BOARD, Request(tuning_results=known, schedules=given)).manifest
    return {operator.name: operator.schedule for operator in manifest.operators if operator.label.startswith("conv2d")}


def test_every_node_of_a_task_gets_the_fastest_candidate_and_the_user_comes_first(tmp_path: Path) -> None:
    path = network(tmp_path / "a.onnx")
    _, twice, _ = tasks(path)
    known = TuningResults(ranked={twice.record.key: ("dsp_pointwise:unroll=8", "c99_patch")})
    plain = schedules(path, TuningResults())
    first, second = twice.nodes
    expected = {**plain, first: "dsp_pointwise:unroll=8", second: "dsp_pointwise:unroll=8"}
    assert schedules(path, known) == expected
    assert schedules(path, known, **{second: Choice("c99_patch")}) == {**expected, second: "c99_patch"}


def test_what_a_backend_computes_is_not_a_task_however_much_c_it_brings(tmp_path: Path) -> None:
    path = network(tmp_path / "a.onnx")
    (tmp_path / "npu.py").write_text(BACKEND)
    _, twice, _ = tasks(path)
    known = TuningResults(ranked={twice.record.key: ("dsp_pointwise:unroll=8",)})
    request = Request(
        tuning_results=known, backends=(BackendSpec(str(tmp_path / "npu.py"), options={"only": "conv1"}),)
    )
    found = [one.schedule for one in compile_model(path, BOARD, request).manifest.operators]
    assert found.count("c99_call") == 1 and found.count("dsp_pointwise:unroll=8") == len(twice.nodes) - 1


def test_a_point_is_one_of_the_model_itself(tmp_path: Path) -> None:
    path = network(tmp_path / "a.onnx")
    with pytest.raises(UsageError, match="no point arena of this model"):
        schedules(path, TuningResults(whole={"0" * 64: {}}, point="arena"))


@pytest.mark.parametrize("gone", ["gone", "dsp_pointwise:spin=2", "dsp_pointwise:unroll=5", "dsp_plane", "a:b:c==,"])
def test_a_candidate_that_is_no_more_is_skipped_with_a_note(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, gone: str
) -> None:
    path = network(tmp_path / "a.onnx")
    _, twice, _ = tasks(path)
    known = TuningResults(ranked={twice.record.key: (gone, "c99_patch")})
    assert [*schedules(path, known).values()][1:3] == ["c99_patch", "c99_patch"]
    assert f"tuned schedule {gone} is skipped" in caplog.text


def test_what_was_measured_in_the_whole_model_comes_first_for_that_model(tmp_path: Path) -> None:
    path, other = network(tmp_path / "a.onnx"), network(tmp_path / "b.onnx", scale=0.5)
    _, twice, _ = tasks(path)
    model_hash = compile_model(path, BOARD).manifest.model_hash
    key = twice.record.key
    known = TuningResults(ranked={key: ("dsp_pointwise:unroll=8",)}, whole={model_hash: {key: "c99_patch"}})
    assert [*schedules(path, known).values()][1:3] == ["c99_patch"] * 2
    assert [*schedules(other, known).values()][1:3] == ["dsp_pointwise:unroll=8"] * 2


def test_builds_are_taken_and_constants_lie_in_ram_where_the_whole_model_was_measured_so(tmp_path: Path) -> None:
    """Another model may have no room for them: it takes the next."""
    path, other = network(tmp_path / "a.onnx"), network(tmp_path / "b.onnx", scale=0.5)
    _, twice, _ = tasks(path)
    model_hash = compile_model(path, BOARD).manifest.model_hash
    key, best = twice.record.key, "c99_patch:opt=O3,weights=ram"
    known = TuningResults(ranked={key: (best, "c99_patch:opt=O3")}, whole={model_hash: {key: best}})
    assert [*schedules(path, known).values()][1:3] == [best] * 2
    assert [*schedules(other, known).values()][1:3] == ["c99_patch:opt=O3"] * 2


def test_the_setup_distinguishes_boards_clocks_and_memories() -> None:
    setup = setup_of(BOARD, "baremetal")
    faster = BOARD.model_copy(update={"clock_hz": BOARD.clock_hz * 2})
    assert setup == setup_of(BOARD, "baremetal") != setup_of(faster, "baremetal")
    assert setup.unit == "instructions" and setup.memories["code"].startswith("ssram1 ")


def test_what_the_planner_adds_is_not_a_task(tmp_path: Path) -> None:
    """States that are swapped are copied, by nodes of the planner's that no schedule can be asked for."""
    nodes = [helper.make_node("Neg", ["a"], ["c"]), helper.make_node("Abs", ["b"], ["d"])]
    path = tmp_path / "swap.onnx"
    onnx.save(model(nodes, {"a": (np.float32, (64,)), "b": (np.float32, (64,))}, ["c", "d"]), path)
    plan, names = plan_model(path, BOARD, Request(states=(("d", "a"), ("c", "b"))))
    added = {step.node.name for step in plan.steps} - names
    assert added
    assert not added & {node for task in tasks_of(plan, names) for node in task.nodes}
