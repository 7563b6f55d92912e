"""Tuning on an emulated board: measurements, failures, and how a compilation uses them."""

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import altered
import pytest

import mtool
from mtool.base.errors import UsageError
from mtool.cli import app
from mtool.compiler.backends.spec import parse
from mtool.compiler.ir import Graph, Node
from mtool.compiler.kernels import registry
from mtool.compiler.kernels.target import Target
from mtool.compiler.plan import Choice
from mtool.compiler.tuned import record as tuning_log
from mtool.compiler.tuned.record import Measurement
from mtool.stages.deployment import Deployment
from mtool.stages.options import Options
from mtool.tuning.search import Search
from mtool.tuning.tuning import Tuned
from mtool.tuning.whole import Measured, TriedPlan, Whole

pytestmark = pytest.mark.skipif(
    any(shutil.which(program) is None for program in ("arm-none-eabi-gcc", "cmake", "ninja", "qemu-system-arm")),
    reason="the toolchain or the emulator is not installed",
)

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits_int8.onnx"
BOARD = "mps2_an386"
NODE = "dense_5"
BACKEND = """
from mtool.compiler.backends import Backend, Product
class Own(Backend):
    name = "own"
    def refusal(self, operation, context):
        return "" if operation.kind == "Pool" else "not for it"
    def compile(self, region, folder):
        return Product(body="    /* elsewhere */")
"""


class Dear(altered.Altered):
    """A schedule that the planner never takes by itself."""

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        return 1.0  # the estimate by which it is tried first

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        return node.op == "dense"


@pytest.fixture
def spoilt(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Add schedules to dense layers: one that does nothing, one that has no end, one that reads where nothing is."""
    kernel = registry.KERNELS["dense"]
    sound = kernel.schedules[0]
    bad = {
        "idle": lambda body: "if (sizeof(int32_t) == 4u) {\n    return;\n}\n" + body,
        "endless": lambda body: "for (volatile int32_t n = 0;; ++n) {\n}\n" + body,
        "crash": lambda body: "*(volatile int32_t *)0x70000000u = 1;\n" + body,
        "refused": lambda body: "this is no C;\n" + body,
    }
    added = [Dear(name, sound, NODE, alter) for name, alter in bad.items()]
    for one in added:
        monkeypatch.setattr(one, "cost", lambda node, graph, target: 1e9)
    monkeypatch.setitem(registry.KERNELS, "dense", dataclasses.replace(kernel, schedules=(*kernel.schedules, *added)))
    yield


def tuned(folder: Path, **given: object) -> Tuned:
    deployment = Deployment(folder / "trials")
    given = {"builds": False, **given}
    return mtool.tune(DIGITS, board=BOARD, output=folder / "t.jsonl", deployment=deployment, **given)  # type: ignore[arg-type]


@pytest.mark.long
@pytest.mark.slow
def test_what_is_wrong_hangs_crashes_or_is_not_a_c_costs_itself_alone(
    tmp_path: Path, spoilt: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mtool.device.rpc.window.PATIENCE_S", 1.0)
    monkeypatch.setattr("mtool.tuning.tuning.space_of", _dense_alone())
    found = tuned(tmp_path)
    (row,) = found.progress.rows.values()
    reported = {text: one.status for text, one in row.measured.items() if one.status != "ok"}
    assert reported == {"idle": "wrong", "endless": "timeout", "crash": "fault", "refused": "unbuildable"}
    assert "10 of 10 elements differ" in row.measured["idle"].reason
    assert row.best is not None and row.best.status == "ok"
    assert len(row.measured) == len(row.space.candidates)
    assert found.whole is not None and found.whole.best.median <= found.whole.default.median


def _dense_alone() -> object:
    from mtool.tuning import candidates

    def few(task: object, target: Target) -> candidates.Space:
        space = candidates.space_of(task, target)  # type: ignore[arg-type]
        wanted = ("dsp_rows", "c99_rows", "idle", "endless", "crash", "refused")
        some = tuple(one for one in space.candidates if one.text in wanted)
        return dataclasses.replace(space, candidates=some or space.candidates[:1])

    return few


@pytest.mark.long
def test_what_was_measured_is_used_and_never_measured_again(tmp_path: Path) -> None:
    first = tuned(tmp_path, trials=9)
    assert first.progress.measured == 9 and first.progress.firmwares == 1
    assert json.loads(json.dumps(first.as_json())) == first.as_json()
    assert first.whole is not None and first.whole.best.median <= first.whole.default.median
    second = tuned(tmp_path, trials=4)
    assert (second.progress.reused, second.progress.measured) == (9, 4)
    read = tuning_log.read([tmp_path / "t.jsonl"])
    assert len({one.key for one in read.measurements}) == len(read.measurements) == 13
    options = Options(tuned=(tmp_path,))
    compiled = mtool.compile(DIGITS, board=BOARD, options=options)
    schedules = {one.name: one.schedule for one in compiled.manifest.operators}
    assert second.whole is not None
    for key, row in second.progress.rows.items():
        for node in row.space.task.nodes:
            assert schedules[node] == second.whole.best.choices.get(key, schedules[node])
    mtool.verify(DIGITS, board=BOARD, options=options, deployment=Deployment(tmp_path / "v")).check()


@pytest.mark.slow
def test_times_are_those_of_the_operators_in_the_model(tmp_path: Path) -> None:
    found = tuned(tmp_path, trials=6)
    profile = mtool.bench_layers(DIGITS, board=BOARD, deployment=Deployment(tmp_path / "bench"))
    times = {one.name: one.median for one in profile.operators}
    rows = [row for row in found.progress.rows.values() if row.default is not None]
    assert len(rows) >= 4
    for row in rows:
        assert row.default is not None
        assert row.default.median == pytest.approx(times[row.space.task.nodes[0]], rel=0.01, abs=120)


@pytest.mark.slow
@pytest.mark.long
def test_a_killed_run_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    command = [
        sys.executable,
        "-m",
        "mtool",
        "-q",
        "tune",
        str(DIGITS),
        "-b",
        BOARD,
        "-o",
        str(path),
        "--trials",
        "40",
        "--no-builds",
    ]
    with subprocess.Popen([*command, "-d", str(tmp_path / "trials")], env=dict(os.environ)) as process:
        deadline = time.monotonic() + 300
        while not (path.exists() and path.read_bytes().count(b"\n") >= 5) and time.monotonic() < deadline:
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
    before = tuning_log.read([path]).measurements
    assert before
    found = tuned(tmp_path, trials=3)
    assert found.progress.reused == len(before)
    after = tuning_log.read([path]).measurements
    assert len({one.key for one in after}) == len(after) == len(before) + found.progress.measured


def test_what_a_board_can_not_measure_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="can't be tuned for time"):
        tuned(tmp_path, objective="time")
    with pytest.raises(UsageError, match="can't estimate cycles"):
        mtool.tune(DIGITS, board="host", objective="cycles", output=tmp_path / "t.jsonl")
    with pytest.raises(UsageError, match="trials is -1"):
        tuned(tmp_path, trials=-1)
    assert not (tmp_path / "t.jsonl").exists()


@pytest.mark.slow
def test_what_is_given_to_a_schedule_or_a_backend_is_not_tuned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest is; and the plan in the log has the schedules that were given."""
    monkeypatch.setattr(Search, "run", lambda self: None)
    plan = Measured({"0" * 20: "c99_patch"}, (1.0,), 100)
    monkeypatch.setattr("mtool.tuning.tuning.best_whole", lambda *given, **named: Whole(plan, plan, "0" * 64))

    def nodes(**given: object) -> set[str]:
        found = tuned(tmp_path, options=Options(**given))  # type: ignore[arg-type]
        return {node for row in found.progress.rows.values() for node in row.space.task.nodes}

    everything = nodes()
    assert everything - nodes(schedules={"conv_2": Choice("dsp_patch", {"unroll": "8"})}) == {"conv_2"}
    last = tuning_log.read([tmp_path / "t.jsonl"]).plans[-1]
    assert sorted(last.choices.values()) == ["c99_patch", "dsp_patch:unroll=8"]
    with pytest.raises(UsageError, match="unknown node"):
        nodes(schedules={"conv_9": Choice("dsp_patch")})
    (tmp_path / "own.py").write_text(BACKEND)
    of_c = nodes(backends=(parse(str(tmp_path / "own.py")),))
    kinds = [{node.partition("_")[0] for node in some} for some in (everything, of_c)]
    assert kinds == [{"conv", "pool", "dense"}, {"conv", "dense"}]


@pytest.mark.parametrize(
    ("outcome", "why"),
    [
        ({"median": 1.25}, "the whole model is 25.0% slower with it"),
        ({"median": 1.0}, "the whole model is no faster with it"),
        ({"failed": "its outputs differ from the default plan's"}, "its outputs differ from the default plan's"),
        (None, "not measured in the whole model"),
    ],
)
def test_why_a_plan_has_not_the_fastest_is_known(outcome: dict[str, Any] | None, why: str) -> None:
    plan = Measured({"a": "fast", "b": "default"}, (1.0,), 100)
    tried = () if outcome is None else (TriedPlan({"a": "fast", "b": "fast"}, **outcome),)
    whole = Whole(plan, plan, "0" * 64, (), tried)
    assert whole.why_not("a", "fast") == "" and whole.why_not("b", "default") == ""
    assert whole.why_not("b", "fast") == why


@pytest.mark.slow
def test_the_table_has_what_the_plan_took_and_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All tasks but one have their fastest candidate in the plan that was taken."""
    monkeypatch.chdir(tmp_path)

    def run(search: Search) -> None:
        for row in search.progress.rows.values():
            for candidate in row.space.candidates[:2]:
                median = 9.0 if candidate.text == row.space.default.text else 3.0
                found = SimpleNamespace(candidate=candidate.text, median=median, times=(median,), status="ok")
                row.measured[candidate.text] = cast(Measurement, found)

    def best_whole(*given: Any, **_: Any) -> Whole:
        rows = [row for row in given[3].rows.values() if row.best is not None]
        fastest = {row.space.task.record.key: row.best.candidate for row in rows}
        (dense,) = [row for row in rows if NODE in row.space.task.nodes]
        taken = {**fastest, dense.space.task.record.key: "the_default"}
        tried = (TriedPlan(fastest, 1.25),)
        return Whole(Measured(taken, (1.0,), 100), Measured(taken, (2.0,), 100), "0" * 64, (), tried)

    monkeypatch.setattr(Search, "run", run)
    monkeypatch.setattr("mtool.tuning.tuning.best_whole", best_whole)
    assert app.invoke(["tune", str(DIGITS), "--board", BOARD, "--no-builds"]) == 0
    shown = capsys.readouterr().out
    rows = [line for line in shown.splitlines() if line.split()[1:] and "/" in line]
    said = "dense_5 does not use the fastest: the whole model is 25.0% slower with it"
    assert "in the plan" in shown and said in shown and shown.count("does not use the fastest") == 1
    assert [line.split()[-1] for line in rows if line.startswith("dense")] == ["the_default"]
    assert all(line.rstrip().endswith("the best") for line in rows if not line.startswith("dense"))
