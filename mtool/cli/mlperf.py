"""`mtool mlperf`: EEMBC's runner for MLPerf Tiny, on the project that you are in."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from mtool.base import files
from mtool.base.errors import UsageError
from mtool.cli.output import Output, table
from mtool.stages import formatting

if TYPE_CHECKING:
    from mtool.boards import Board
    from mtool.stages.latency_estimate import LatencyEstimate


def mlperf(
    out: Output,
    data: Path,
    mode: Literal["performance", "accuracy"] = "performance",
    board: str = "",
    count: int | None = None,
    warmups: int | None = None,
    samples: int | None = None,
    log: Path = Path("build/mlperf/log.txt"),
    port: str = "",
    probe: str = "",
) -> None:
    """Measure throughput or accuracy as EEMBC's runner for MLPerf Tiny does.

    For the streaming wake word: detections and the duty cycle.

    Run it in a project of the type mlperftiny (docs/own-project.md). A board that is not emulated is flashed first.
    """
    from mtool import boards
    from mtool.commands import flashing, user_project
    from mtool.commands.replaying import board_time
    from mtool.plugins import mlperf
    from mtool.plugins.mlperf import DeviceUnderTest
    from mtool.stages import arrays
    from mtool.stages.latency_estimate import emulated_time

    project = user_project.require()
    if project.type != "mlperftiny":
        raise UsageError(
            f"this project's type is {project.type}",
            details=["expected mlperftiny, whose firmware answers EEMBC's commands"],
            hint="start one with: mtool new FOLDER --type mlperftiny",
        )
    if not data.exists():
        raise UsageError(
            f"there is no file or folder {data}",
            hint="--data takes a folder with y_labels.csv and its files, or an .npz with x0 and labels",
        )
    if not data.is_dir():
        arrays.stored(data)  # fails before all the work
    files.check_writable(log, makes_folder=True)
    name = board or project.board
    job = project.job_for(name, port=port, probe=probe)
    if job.options.program is None:
        raise UsageError(f"{name} can't run the project's program", details=["its template is for another language"])
    target = boards.get(name)
    lines: list[str] = []

    def show(line: str) -> None:
        lines.append(line)
        out.note(line)

    with flashing.open_program(job) as (prepared, transport):
        device = DeviceUnderTest(transport, lambda who, text: lines.append(f"[{who}]: {text}"))
        manifest = prepared.manifest
        tensor = manifest.inputs[0]
        try:
            outcome = mlperf.run(
                device,
                lambda benchmark: mlperf.read(data, benchmark, tensor),
                mode,
                on_line=show,
                count=count,
                warmups=warmups,
                most=samples,
                emulated=_seconds_of(target),
            )
        finally:
            files.write(log, ("\n".join(lines) + "\n").encode(), follow=True)
    time = None
    if target.emulator is not None and outcome.throughput:
        time = emulated_time(1e9 / outcome.throughput, target, manifest)
    duty, is_estimated = None, False
    if outcome.words:
        scale, is_estimated = board_time(target)
        duty = 1e6 * scale * outcome.hop_us / outcome.period_us
    out.result(
        {
            "board": name,
            "is_emulated": target.emulator is not None,
            "milliseconds_estimated": time and time.milliseconds,
            "milliseconds_error": time and time.error,
            "mode": mode,
            "device": outcome.identity,
            "throughput_per_s": outcome.throughput,
            "windows_s": [*outcome.windows],
            "accuracy_percent": outcome.accuracy,
            "auc": outcome.auc,
            "samples": outcome.samples,
            "words": outcome.words and dict(zip(("detected", "missed", "wrong"), outcome.words, strict=True)),
            "duty_cycle": duty,
            "objections": [*outcome.objections],
            "log": str(log),
        }
    )
    rows = [["benchmark", outcome.identity["model"]], ["log", str(log)]]
    if outcome.words and duty is not None:
        right, missed, wrong = outcome.words
        where = f" at {formatting.frequency(target.clock_hz)}, estimated" if is_estimated and target.clock_hz else ""
        rows.insert(1, ["wake words", f"{right} of {right + missed} detected, {wrong} wrong detections"])
        rows.insert(2, ["duty cycle", f"{duty:.3f}{where}"])
    elif outcome.throughput is not None:
        emulated = " by the emulator's clock" if target.emulator is not None else ""
        median = f"{outcome.throughput:,.3f} inferences a second{emulated}, the median of {outcome.samples}"
        rows.insert(1, ["throughput", median])
        if target.emulator is not None and not target.emulator.is_the_firmware:
            rows.insert(2, ["on the board", "not known" if time is None else _estimate(time)])
    else:
        rows.insert(1, ["accuracy", f"{outcome.accuracy:.1f}% of {outcome.samples} samples"])
        rows.insert(2, ["AUC", "not defined" if outcome.auc is None else f"{outcome.auc:.3f}"])
    rows += [["not for a submission", objection] for objection in outcome.objections]
    out.text(table(("", ""), rows))


def _seconds_of(board: "Board") -> str:
    """Return the length of a second on an emulated board, as text; "": the board is not emulated."""
    if board.emulator is None:
        return ""
    if board.emulator.is_the_firmware:
        return "its seconds are this computer's"
    if board.timer is not None and board.timer.unit == "instructions":
        return "its seconds are 1,000,000,000 instructions each, whatever the board's clock"
    return "its seconds are counted cycles at the board's clock"


def _estimate(time: "LatencyEstimate") -> str:
    error = f" ± {time.error:.0%}" if time.error else ""
    return f"about {time.milliseconds:.3g} ms{error} an inference at {formatting.frequency(time.hz)}, estimated"
