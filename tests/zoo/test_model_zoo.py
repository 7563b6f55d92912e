"""A folder of models is tried: loaded ones are compared with onnxruntime, refusals are reported, nothing is repeated.

The models are written here: one that is right, one with an unknown operator, one whose dimension is open, and
one that stops the process that tries it.
"""

import os
import signal
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import onnx
import pytest
import toy
from onnx import TensorProto, helper

from mtool.base.errors import ModelError
from mtool.verification.comparison import Difference, Report
from scripts import model_zoo
from tests.fuzzing import forks
from tests.zoo import names, page, results, trial
from tests.zoo.results import Found, Row, State

BOARDS = ("host",)
TABLE = [names.Origin("someone/models", "deep/toy.onnx", options="--state s:before")]


def one_operator(kind: str, first: int | str) -> onnx.ModelProto:
    """Return a model of one operator, on a tensor whose first dimension is given."""
    puts = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [first, 4]) for name in "xy"]
    graph = helper.make_graph([helper.make_node(kind, ["x"], ["y"])], "one", puts[:1], puts[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    models = tmp_path_factory.mktemp("zoo") / "models"
    (models / "deep").mkdir(parents=True)
    toy.write(models / "deep" / "toy.onnx")
    onnx.save(one_operator("Frobnicate", 1), models / "refused.onnx")
    (models / "README.md").write_text("not a model")
    return models


def tried(folder: Path, version: str, *, older: bool = False) -> list[page.Tried]:
    state = State(folder.parent / "state" / "zoo.jsonl", version, older=older)
    return model_zoo.tried(folder, state, chosen=BOARDS, table=TABLE)


@pytest.fixture(scope="module")
def models(folder: Path) -> list[page.Tried]:
    return tried(folder, "1")


def test_a_right_model_and_a_refused_one(models: list[page.Tried]) -> None:
    assert all(list(model.rows) == ["onnx"] for model in models)
    rows = {model.origin.path: model.rows["onnx"] for model in models}
    right, refused = rows["deep/toy.onnx"], rows["refused.onnx"]
    assert right.outcome in ("equal", "within") and right.loads and right.states == 1 and right.macs == 16
    assert right.boards["host"].samples == trial.STEPS and right.boards["host"].arena_bytes
    assert right.cpu_s > 0 and right.options == "--state s:before"
    assert refused.outcome == "refused" and not refused.loads and not refused.boards
    assert refused.refused == "refused.onnx is not a valid ONNX model" and "Frobnicate" in refused.details[0]


def test_what_is_known_is_not_tried_again(
    folder: Path, models: list[page.Tried], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def recorded(jobs: Sequence[model_zoo.Job], processes: int) -> Iterator[tuple[model_zoo.Job, Row]]:
        asked.extend(job.path.name for job in jobs)
        yield from ((job, Row(refused="tried again")) for job in jobs)

    monkeypatch.setattr(model_zoo, "run_all", recorded)
    assert tried(folder, "1") == tried(folder, "2", older=True) == models
    assert not asked
    assert {row.refused for model in tried(folder, "2") for row in model.rows.values()} == {"tried again"}
    assert sorted(asked) == ["refused.onnx", "toy.onnx"]


def test_the_page(folder: Path, models: list[page.Tried]) -> None:
    text = page.page(models, BOARDS)
    assert "1 of 2 load (50%), 1 are right" in text
    (cells,) = [line.split(" | ") for line in text.splitlines() if "deep/toy.onnx |" in line]
    assert cells[0] == "| someone/models" and cells[2] == f"{(folder / 'deep/toy.onnx').stat().st_size:,}"
    assert cells[3] == "16" and cells[4].startswith(("equal, 1 state", "within, 1 state"))
    assert "- deep/toy.onnx: `--state s:before`" in text
    assert "- refused.onnx: refused.onnx is not a valid ONNX model; No Op registered for Frobnicate" in text
    assert str(folder.parent) not in text


def test_a_board_that_it_is_not_built_for_is_a_failure() -> None:
    found = {"host": Found("equal"), "m4": Found("failed", "no compiler"), "m0": Found("too large", "9 KB of 8 KB")}
    row = Row(boards=found)
    assert row.outcome == "failed" and Row(boards={**found, "m4": Found("built", "9 MACs")}).outcome == "equal"
    text = page.page([page.Tried(TABLE[0], 1, {"onnx": row})], ["host", "m4", "m0"])
    assert "| failed: no compiler | too large: 9 KB of 8 KB |" in text and "- `m0`: 1 too large" in text
    assert "## Models that fail" in text


@pytest.mark.slow
def test_dimensions_are_those_that_are_suggested(tmp_path: Path) -> None:
    path = tmp_path / "open.onnx"
    onnx.save(one_operator("Exp", "n"), path)
    row = trial.tried(path, "onnx", BOARDS, tmp_path / "projects")
    assert row.options == "--dim n=1" and row.outcome in ("equal", "within")


@pytest.mark.parametrize(
    ("hint", "words"),
    [
        ("give --dim a=1 --dim 'b c=2'; it can be compiled with these", "--dim a=1 --dim 'b c=2'"),
        ("give --dim a=N, with the sizes that the model was trained for", ""),
        ("make inputs constants: --const a=...", ""),
    ],
)
def test_a_suggestion_without_sizes_is_none(hint: str, words: str) -> None:
    assert trial.suggested(ModelError("a dimension has no value", hint=hint)) == words


def test_what_stops_the_process_is_reported(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = model_zoo.Job(folder / "refused.onnx", "onnx", BOARDS, "", forks.Limits(1, None))

    def dies(*_: object) -> Row:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError

    def breaks(*_: object) -> Row:
        raise KeyError("a bug")

    monkeypatch.setattr(trial, "tried", dies)
    assert model_zoo.run(job).outcome == "slow"  # as the limit of CPU time ends it
    monkeypatch.setattr(trial, "tried", breaks)
    row = model_zoo.run(job)
    assert row.outcome == "traceback" and row.details == ("KeyError: 'a bug'",) and not row.loads


def test_a_line_that_was_cut_off_is_not_a_result(tmp_path: Path) -> None:
    path = tmp_path / "zoo.jsonl"
    State(path, "1").add("a", "a.onnx", Row(boards={"host": Found("equal")}))
    State(path, "1").add("b", "b.onnx", Row(refused="no"))
    path.write_text(path.read_text()[:-20] + "\n")
    state = State(path, "1")
    assert state.get("a") == Row(boards={"host": Found("equal")}) and state.get("b") is None


def test_the_origin_is_the_row_that_is_most_alike(tmp_path: Path) -> None:
    table = [
        names.Origin("a/one", "v1/net.tflite", 3),
        names.Origin("a/two", "v1/net.tflite", 3),
        names.Origin("a/two", "v2/net.tflite", 3),
        names.Origin("a/two", "v2/net.tflite", 4),
    ]
    for path, expected in (("two/v2/net.tflite", table[2]), ("one/net.tflite", table[0])):
        file = tmp_path / path
        file.parent.mkdir(parents=True)
        file.write_bytes(b"abc")
        assert names.origin(file, tmp_path, table) == expected
    assert names.origin(file, tmp_path, []) == names.Origin("one", "net.tflite", 3)


def test_outcomes_report_the_worst_output_and_the_worst_board() -> None:
    same = Difference("a", "int8", 8, 0, 0.0, 0, "1 LSB", True, (), "")
    near = replace(same, name="b", differing=2, max_abs=1.0, max_lsb=1)
    wrong = replace(near, name="c", max_abs=9.0, max_lsb=9, within=False)
    assert trial.verdict(Report(1, "LiteRT", (same,))) == ("equal", "")
    assert trial.verdict(Report(1, "LiteRT", (same, near))) == ("within", "2 of 16 by 1 LSB at most")
    assert trial.verdict(Report(1, "LiteRT", (near, wrong))) == ("differs", "4 of 16 by 9 LSB at most")
    boards = {"host": Found("equal"), "a": Found("within"), "b": Found("too large")}
    assert Row(boards=boards).outcome == "within"
    assert Row(boards={**boards, "c": Found("differs")}).outcome == "differs"
    rows = [("onnx", Row(boards=boards)), ("onnx", Row(refused="no")), ("onnx", Row(stopped="slow"))]
    assert results.summary(rows) == ["onnx: 1 of 3 load (33%), 1 are right (0 equal, 1 within), 1 refused, 1 slow"]


def test_what_python_and_templates_keep_compiled_is_not_a_source(tmp_path: Path) -> None:
    for name in ("boards.yaml", "mtool/a.py", "crt/a.h", "project_templates/a"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    before = results.sources_version(tmp_path)
    cache = tmp_path / "mtool" / "__pycache__"
    cache.mkdir()
    (cache / "a.c.j2.cpython-311.bytecode").write_bytes(b"1")
    assert results.sources_version(tmp_path) == before
    (tmp_path / "mtool" / "a.py").write_text("")
    assert results.sources_version(tmp_path) != before
