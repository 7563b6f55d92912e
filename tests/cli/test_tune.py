"""`mtool tune` as users call it: its output, its errors, and interruptions."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import onnx
import pytest
from onnx import TensorProto, helper

from mtool import boards
from mtool.cli import app
from mtool.compiler.tuned import record as tuning_log
from mtool.stages.tuned import target_and_setup, tuning_results_for
from mtool.tuning.candidates import Space
from mtool.tuning.search import Progress, Row
from mtool.tuning.tuning import Tuned
from mtool.tuning.whole import Measured, Whole
from tests.compiler.tuned.records import SETUP, TARGET, TASK, measurement, whole

DIGITS = str(Path(__file__).parents[2] / "examples" / "digits" / "digits_int8.onnx")
Captured = pytest.CaptureFixture[str]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "tuning.jsonl"
    counted = SETUP.model_copy(update={"board": "other", "unit": "instructions", "clock_hz": 0})
    for record in (
        measurement("c99_rows", 2e6, 2.1e6, 1.9e6),
        measurement("dsp_rows:unroll=8", 1e6, 1e6, 1e6),
        measurement("bad", status="wrong", reason="2 of 2 elements differ"),
        measurement("c99_rows", 500.0, setup=counted),
        whole({"k": "dsp_rows"}, model="m\x1b[31m.onnx", times=(3e6,), default_times=(4e6,)),
    ):
        tuning_log.append(path, record)
    return path


def test_tuning_results_are_shown_by_target_and_confidence(log: Path, capsys: Captured) -> None:
    assert app.invoke(["tune", "--show", str(log)]) == 0
    shown = capsys.readouterr().out
    assert "b at 120 MHz, cortex-m4, arm-none-eabi-gcc 12.2.1 -mthumb, baremetal" in shown
    assert "dsp_rows:unroll=8" in shown and "1.000 ms" in shown and "100.0%" in shown and "1 wrong" in shown
    assert "500 instructions" in shown
    assert "4.000 ms -> 3.000 ms   saved 25.0%" in shown
    assert "\x1b" not in shown


def test_tuning_results_as_json(log: Path, capsys: Captured) -> None:
    assert app.invoke(["tune", "--show", str(log.parent), "--json"]) == 0
    shown: Any = json.loads(capsys.readouterr().out)
    assert [target["setup"]["board"] for target in shown["targets"]] == ["b", "other"]
    (task,) = shown["targets"][0]["tasks"]
    assert task["best"] == {"candidate": "dsp_rows:unroll=8", "median": 1e6}
    assert (task["candidates"], task["failed"], task["lead"]) == (3, {"wrong": 1}, 1.0)
    assert shown["targets"][0]["plans"][0]["median"] == 3e6


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["tune"], "the model's path is missing"),
        (["tune", DIGITS, "--show", "x.jsonl"], "--show can't be combined with a model"),
        (["tune", "--show", "missing.jsonl"], "there is no tuning log missing.jsonl"),
        (["tune", DIGITS, "-o", "/dev/full"], "/dev/full is not a regular file"),
        (["tune", DIGITS, "-o", "."], ". is not a regular file"),
        (["tune", DIGITS, "-o", "nowhere/t.jsonl"], "nowhere/t.jsonl can't be written"),
        (["tune", DIGITS, "-o", DIGITS], "would overwrite"),
        (["tune", DIGITS, "--trials", "-1"], "'--trials': expected at least 0"),
        (["tune", DIGITS, "-b", "mps2_an386", "--objective", "time"], "can't be tuned for time"),
        (["tune", DIGITS, "--objective", "tme"], "did you mean time?"),
        (["tune", DIGITS, "--tls-ca", "ca.pem"], "need --scheduler"),
        (["tune", DIGITS, "--power", "it's off"], "the power command can't be read"),
        (["tune", DIGITS, "--flash-command", " "], "the flash command contains no program"),
        (["tune", "missing.onnx"], "there is no file missing.onnx"),
        (["compile", DIGITS, "--tuned", "missing.jsonl"], "there is no tuning log missing.jsonl"),
        (["compile", DIGITS, "--tuned", ""], "--tuned is empty"),
    ],
)
def test_errors_are_reported(
    arguments: list[str], expected: str, capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert app.invoke(arguments) == 2
    assert expected in capsys.readouterr().err
    assert [*tmp_path.iterdir()] == []


def test_a_model_without_a_choice_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    relu = helper.make_node("Relu", ["x"], ["y"])
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy")
    onnx.save(helper.make_model(helper.make_graph([relu], "g", [x], [y])), "relu.onnx")
    assert app.invoke(["tune", "--no-builds", "relu.onnx", "--board", "host"]) == 0
    assert "no operator of the model has more than one schedule" in capsys.readouterr().out


def test_logs_of_mtool_toml_are_used_and_one_of_another_target_is_reported(
    log: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(log.parent)
    (log.parent / "mtool.toml").write_text('tuned = "tuning.jsonl"\n')
    below = log.parent / "below"
    below.mkdir()
    monkeypatch.chdir(below)
    assert app.invoke(["compile", DIGITS]) == 0
    reported = capsys.readouterr().err
    assert "no measurements for host with cc" in reported
    assert "there are some for b with arm-none-eabi-gcc 12.2.1, other with arm-none-eabi-gcc 12.2.1" in reported


def test_results_with_other_flags_or_another_clock_are_reported_as_such(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    target, setup = target_and_setup(boards.get("host"), "", {})
    other = target.model_copy(update={"flags": (*target.flags, "opt=-O9")})
    slower = setup.model_copy(update={"clock_hz": 32_000_000})
    for record in (
        measurement("a", 1.0, target=other, setup=setup),
        measurement("a", 1.0, target=target, setup=slower),
    ):
        tuning_log.append(tmp_path / "t.jsonl", record)
    tuning_results_for(boards.get("host"), [tmp_path / "t.jsonl"], "", {}, warns=False)
    assert not caplog.text
    tuning_results_for(boards.get("host"), [tmp_path / "t.jsonl"], "", {})
    assert "(opt=-O9)" in caplog.text and "(at 32 MHz)" in caplog.text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tuned = 3", "tuned can't be 3"),
        ("tuned = [3]", 'expected: tuned = ["..", ".."]'),
        ("port = {}", 'expected: port = ".."'),
        ("options = 3", "expected: [options]"),
        ("tunes = 'x'", "did you mean tuned?"),
    ],
)
def test_errors_in_mtool_toml_are_reported(
    text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    (tmp_path / "mtool.toml").write_text(text)
    monkeypatch.chdir(tmp_path)
    assert app.invoke(["compile", DIGITS]) == 2
    assert said in capsys.readouterr().err


def test_an_mtool_toml_that_another_user_may_have_written_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    path = tmp_path / "mtool.toml"
    path.write_text("power = 'anything'")
    path.chmod(0o666)
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    assert app.invoke(["compile", DIGITS]) == 2
    assert "could be another user's" in capsys.readouterr().err


def test_a_run_that_is_stopped_says_where_its_measurements_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    import mtool.tuning.tuning

    def stopped(*arguments: Any, listener: Any, **given: Any) -> None:
        listener(type("Progress", (), {"measured": 3, "phase": "", "rows": {}}))
        raise KeyboardInterrupt

    monkeypatch.setattr(mtool.tuning.tuning, "tune", stopped)
    monkeypatch.chdir(tmp_path)
    assert app.invoke(["tune", DIGITS, "-o", "mine.jsonl"]) == 130
    assert "results so far are in mine.jsonl" in capsys.readouterr().err


def test_the_plan_of_untried_tasks_the_trials_and_a_reason_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    import mtool.tuning.tuning

    ok, wrong = measurement("fast", 10.0), measurement("slow", status="wrong", reason="2 of 2 elements differ")
    tried = {"conv": {"fast": ok, "slow": wrong}, "dense": {}, "pool": {"slow": wrong}}
    rows = {}
    for name, measured in tried.items():
        task = SimpleNamespace(nodes=[name], record=TASK)
        space = SimpleNamespace(task=task, candidates=[1] * 22, default=SimpleNamespace(text="x"))
        rows[name] = Row(cast(Space, space), measured)
    progress = Progress(rows, "instructions", measured=3, trials=6, phase="measuring")
    plan = Measured({"conv": "fast"}, (10.0,), 100)

    def done(*arguments: Any, listener: Any, **given: Any) -> Tuned:
        listener(progress)
        return Tuned("m", TARGET, SETUP, progress, Whole(plan, plan, "0" * 64), Path("t.jsonl"))

    monkeypatch.setattr(mtool.tuning.tuning, "tune", done)
    monkeypatch.chdir(tmp_path)
    assert app.invoke(["tune", DIGITS, "--trials", "6"]) == 0
    shown = capsys.readouterr()
    in_plan = {row.split()[0]: row.rstrip() for row in shown.out.splitlines() if "/22" in row}
    assert in_plan["conv"].endswith("the best")
    assert in_plan["dense"].endswith("the default, not tried") and in_plan["pool"].endswith("  the default")
    assert "failed    first conv with slow: wrong: 2 of 2 elements differ" in shown.out
    assert "3 of 6 trials" in shown.err
