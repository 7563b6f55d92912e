"""The pytest plugin and `mtool test`: passes, failures, recorded figures, and exit codes."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from own import begin, line

from mtool.base.errors import BuildError, FitError, MismatchError, UsageError
from mtool.cli import app, test
from mtool.commands.cost import Cost
from mtool.plugins.testing import growth, model

COST = Cost("m", "b", 1, None, 0, 0, 0, 0, 0, 0, 0, stack_bound_unknown="f calls a function through a pointer")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("own") / "p"
    assert begin(folder, line(folder.parent / "line.onnx")) == 0
    np.savez(folder / "tests" / "labelled.npz", x=np.eye(12, dtype=np.float32)[:4], labels=[0, 1, 2, 9])
    return folder


def run(project: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    argv = [sys.executable, "-W", "ignore", "-m", *words]
    return subprocess.run(argv, cwd=project, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_a_project_is_tested(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(project)
    assert app.invoke(["test", "--record", "--json", "--log", "board.log"]) == 0
    reported = json.loads(capsys.readouterr().out)
    assert (reported["board"], reported["passed"], reported["failed"]) == ("host", 3, 0)
    assert reported["figures"]["accuracy"] == 0.75, "three of the four labels are right"
    recorded = json.loads((project / "figures.json").read_text())
    assert recorded["boards"]["host"] == reported["figures"]
    assert any({"time_us", "code_bytes"} <= {*figures} for figures in recorded["operators"]["host"].values())
    log = (project / "board.log").read_text()
    assert " > " in log and " < " in log, "what went over the channel"
    (project / "limits.toml").write_text("[host]\nflash_bytes = 10\naccuracy = 0.8\n")
    failed = run(project, "pytest", "-p", "mtool.plugins.testing.plugin", "--mtool-board=host", "-q", "tests")
    assert failed.returncode == 1 and "2 failed, 1 passed" in failed.stdout
    assert "expected at most 10 (limits.toml)" in failed.stdout and "expected at least 0.8" in failed.stdout
    assert "Traceback" not in failed.stdout and "def test" not in failed.stdout
    (project / "limits.toml").write_text("[mps2_an386]\nflash_bytes = 10\n")
    passed = run(project, "pytest", "-p", "mtool.plugins.testing.plugin", "--mtool-board=host", "-q", "tests")
    assert "limits.toml has no limits for host; it has them for mps2_an386" in passed.stdout


def test_the_exit_code_is_that_of_what_failed() -> None:
    watch = test.Watch()
    watch.counts["failed"] = 2
    watch.errors = [BuildError("no compiler"), BuildError("no compiler")]
    assert isinstance(test.error_of(1, watch), BuildError)
    watch.errors = [BuildError("no compiler"), FitError("too large")]
    assert isinstance(test.error_of(1, watch), MismatchError)
    watch.errors = [BuildError("no compiler")]
    assert isinstance(test.error_of(1, watch), MismatchError), "the other one was no error of mtool's"
    assert isinstance(test.error_of(5, watch), UsageError)


def test_what_has_grown_is_shown_by_operator(tmp_path: Path) -> None:
    (tmp_path / "limits.toml").write_text("[b]\nworse_percent = 1\nflash_bytes = 10\n")
    before = {"a (conv2d)": {"instructions": 900.0, "code_bytes": 8}, growth.REST: {"instructions": 100.0}}
    found = model.Limits(tmp_path, "b", {}, {})
    found.seen["instructions"] = 1000
    found.operators.update(before)
    model.record(found)
    after = {
        "a (conv2d)": {"instructions": 1000.0, "code_bytes": 8},
        "new (dense)": {"instructions": 300.0, "code_bytes": 5},
        growth.REST: {"instructions": 90.0},
    }
    cost = replace(COST, instructions=1390, flash_code_bytes=13, operators=after)
    with pytest.raises(MismatchError) as caught:
        model.load(tmp_path, "b").check(cost)
    assert [*caught.value.details][2:] == [
        "grown since figures.json was recorded:",
        "  instructions    new (dense): 300, new",
        "  instructions    a (conv2d): 1,000, was 900",
        "  code_bytes      new (dense): 5, new",
    ]
    with pytest.raises(MismatchError, match=r"what has grown is not known: figures.json has no operators for c"):
        model.Limits(tmp_path, "c", {"flash_bytes": 10}, {}).check(cost)
    (tmp_path / "figures.json").write_text('{"schema_version": 1, "boards": {}, "operators": {"b": {"a": 1}}}')
    with pytest.raises(UsageError, match="has no figures"):
        model.load(tmp_path, "b")


def test_figures_may_not_fall_behind_the_last(tmp_path: Path) -> None:
    (tmp_path / "limits.toml").write_text("[b]\nworse_percent = 1\n")
    figures = {"instructions": 1000, "accuracy": 0.9, "time_us": 10}
    found = model.Limits(tmp_path, "b", {}, {})
    found.seen.update(figures)
    model.record(found)
    other = model.Limits(tmp_path, "c", {}, {})
    other.seen["instructions"] = 5
    model.record(other)

    def check(**values: float) -> None:
        model.load(tmp_path, "b").check_figures(values)

    check(instructions=1010, accuracy=0.8911, time_us=99)
    check(instructions=1, accuracy=1.0)
    with pytest.raises(MismatchError, match=r"1\.10% worse than 1,000"):
        check(instructions=1011)
    with pytest.raises(MismatchError, match=r"worse than 0\.9"):
        check(accuracy=0.89)
    model.load(tmp_path, "b", records=True).check_figures({"instructions": 2000})
    (tmp_path / "limits.toml").write_text("[b]\nstack_bytes = 300\n")
    with pytest.raises(MismatchError, match=r"stack_bytes   301, expected at most 300"):
        check(stack_bytes=301)
    with pytest.raises(MismatchError, match=r"has a limit on b, but is not known\n.*\bf calls a function"):
        model.load(tmp_path, "b").check(COST)
    model.load(tmp_path, "b").check(replace(COST, stack_bound_bytes=300, stack_bound_unknown=""))
    for text, said in (
        ("x = 1", "is not in a table"),
        ("[b]\ninstructions = -1", "must be 0 or more"),
        ("[b]\nram_bytes = true", "must be 0 or more"),
        ("[b", "is not TOML"),
        ("[netduinox]\nstack_bytes = 2", r"unknown board 'netduinox'\n.*did you mean netduino2\?"),
    ):
        (tmp_path / "limits.toml").write_text(text)
        with pytest.raises(UsageError, match=said):
            model.load(tmp_path, "b")
    (tmp_path / "limits.toml").write_text("[netduinox]\nstack_bytes = 2")
    with pytest.raises(UsageError, match=r"did you mean netduinoplus2\?"):
        model.load(tmp_path, "netduinoplus2")
    (tmp_path / "limits.toml").write_text("[netduino2]\nstack_bytes = 2")
    assert model.load(tmp_path, "b").others == ("netduino2",)
    (tmp_path / "figures.json").write_text('{"schema_version": 1, "boards": {"b": {"accuracy": "high"}}}')
    (tmp_path / "limits.toml").unlink()
    with pytest.raises(UsageError, match="has no figures"):
        model.load(tmp_path, "b")
