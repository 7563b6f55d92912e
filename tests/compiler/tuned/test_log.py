"""The tuning log: appended records are read back, whatever else the file contains."""

import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from mtool.base.errors import UsageError
from mtool.compiler.tuned import record as tuning_log
from mtool.compiler.tuned.results import TuningResults
from tests.compiler.tuned.records import SETUP, TARGET, measurement, whole

HASH = "0" * 64


def test_what_is_appended_is_read_again_in_its_order(tmp_path: Path) -> None:
    path = tmp_path / "new" / "tuning.jsonl"
    records = [measurement("c99_rows", 3.0, 1.0, 2.0), measurement("dsp_rows:unroll=8"), whole({"k": "dsp_rows"})]
    for record in records:
        tuning_log.append(path, record)
    read = tuning_log.read([path])
    assert [*read.measurements, *read.plans] == records
    assert read.measurements[0].median == 2.0


def test_a_log_may_come_through_a_pipe_and_an_endless_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tuning_log.append(tmp_path / "a.jsonl", measurement("a", 1.0))
    reading, writing = os.pipe()
    os.write(writing, (tmp_path / "a.jsonl").read_bytes())
    os.close(writing)
    assert len(tuning_log.read([Path(f"/dev/fd/{reading}")]).measurements) == 1
    os.close(reading)
    monkeypatch.setattr(tuning_log, "MAX_FILE_BYTES", 1000)
    with pytest.raises(UsageError, match="/dev/zero is a device, not a file"):
        tuning_log.read([Path("/dev/zero")])


def test_logs_are_merged_by_concatenation_and_no_measurement_counts_twice(tmp_path: Path) -> None:
    one, two, both = (tmp_path / f"{name}.jsonl" for name in ("one", "two", "both"))
    first, second = measurement("a", 1.0), measurement("b", 2.0)
    tuning_log.append(one, first)
    tuning_log.append(two, second)
    tuning_log.append(two, first)
    both.write_bytes(one.read_bytes().rstrip() + two.read_bytes())  # no end of line between them
    for paths in ([one, two], [both], [tmp_path]):
        assert {record.id for record in tuning_log.read(paths).measurements} == {first.id, second.id}
        assert len(tuning_log.read(paths).measurements) == 2


@pytest.mark.parametrize("left", [1, 20, 200])
def test_a_cut_line_is_skipped_with_a_warning_and_what_follows_is_a_line_of_its_own(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, left: int
) -> None:
    path = tmp_path / "tuning.jsonl"
    tuning_log.append(path, measurement("a", 1.0))
    tuning_log.append(path, measurement("b", 1.0))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[1][:left])
    tuning_log.append(path, measurement("c", 1.0))
    with caplog.at_level(logging.WARNING):
        read = tuning_log.read([path])
    assert [record.candidate for record in read.measurements] == ["a", "c"]
    assert "line 2 is truncated" in caplog.text


@pytest.mark.parametrize("version", [2, "1", None, True, 1.5])
def test_an_unknown_schema_is_refused_by_its_name(tmp_path: Path, version: Any) -> None:
    path = tmp_path / "tuning.jsonl"
    line = {**json.loads(measurement("a", 1.0).model_dump_json()), "schema_version": version}
    path.write_text(json.dumps(line) + "\n")
    with pytest.raises(UsageError, match=f"line 1 has schema {version!r}; this mtool supports schema 1"):
        tuning_log.read([path])


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("surprise", 1),
        ("times", [-1.0]),
        ("times", ["x"]),
        ("times", []),
        ("times", [1e308, 1e308]),
        ("status", "fine"),
        ("key", "../x"),
        ("kind", "other"),
    ],
)
def test_a_record_that_breaks_the_schema_is_refused_with_its_line_and_key(tmp_path: Path, key: str, value: Any) -> None:
    path = tmp_path / "tuning.jsonl"
    tuning_log.append(path, measurement("a", 1.0))
    line = {**json.loads(measurement("a", 1.0).model_dump_json()), key: value}
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")
    with pytest.raises(UsageError, match="line 2 is not a record of schema 1") as refused:
        tuning_log.read([path])
    assert key in str(refused.value) or "other" in str(refused.value)


@pytest.mark.parametrize("key", ["times", "default_times"])
def test_a_plan_without_times_is_refused(tmp_path: Path, key: str) -> None:
    path = tmp_path / "tuning.jsonl"
    path.write_text(json.dumps({**json.loads(whole({}).model_dump_json()), key: []}) + "\n")
    with pytest.raises(UsageError, match="line 1 is not a record of schema 1"):
        tuning_log.read([path])


@pytest.mark.parametrize("text", ["NaN", "[" * 5000, "\x00", "[1]", '{"times": Infinity}', "x" * (1 << 20)])
def test_what_is_not_an_object_of_json_is_skipped(tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "tuning.jsonl"
    path.write_text(f"{text}\n")
    assert tuning_log.read([path]).measurements == ()
    assert "line 1 is truncated or not JSON" in caplog.text


def test_missing_logs_are_reported(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no tuning log"):
        tuning_log.read([tmp_path / "none.jsonl"])
    with pytest.raises(UsageError, match="contains no tuning log"):
        tuning_log.read([tmp_path])


def test_the_fastest_right_candidate_of_the_exact_target_and_setup_is_known() -> None:
    other_clock = SETUP.model_copy(update={"clock_hz": 80_000_000})
    other_compiler = TARGET.model_copy(update={"compiler": "arm-none-eabi-gcc 13.1.0"})
    records = [
        measurement("slow", 9.0),
        measurement("fast", 3.0, 3.0, 90.0),
        measurement("wrong", status="wrong"),
        measurement("elsewhere", 1.0, setup=other_clock),
        measurement("otherwise", 1.0, target=other_compiler),
        measurement("baseline", 1.0, baseline=True),
        measurement("again", 1.0),
        measurement("again", 5.0),
    ]
    known = TuningResults.of(tuning_log.Log.of(records), TARGET, SETUP)
    assert [*known.ranked.values()] == [("fast", "again", "slow")]
    assert not TuningResults.of(
        tuning_log.Log.of(records), TARGET, SETUP.model_copy(update={"template": "zephyr"})
    ).ranked


def test_the_last_plan_of_a_model_counts() -> None:
    read = tuning_log.Log.of([whole({"k": "first"}), whole({"k": "last"})])
    assert TuningResults.of(read, TARGET, SETUP).whole == {HASH: {"k": "last"}}


def test_a_record_of_which_the_disk_takes_a_part_is_refused(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    path, limits = tmp_path / "tuning.jsonl", resource.getrlimit(resource.RLIMIT_FSIZE)
    tuning_log.append(path, measurement())
    size = path.stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, limits[1]))  # as a full disk does, in the middle of a line
    try:
        with pytest.raises(UsageError, match=r"tuning\.jsonl can't be written"):
            tuning_log.append(path, measurement())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.stat().st_size == size + 100
