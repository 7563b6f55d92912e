"""`mtool replay` and `mtool record`: recordings through the program of an application, and from its sensor."""

from pathlib import Path

from mtool.base import plural
from mtool.cli.output import Output, table


def replay(out: Output, clips: list[Path], board: str = "", port: str = "", probe: str = "") -> None:
    """Send recordings through an application's program on a board.

    The detections are compared with those on this computer.

    Ends with exit code 9 if the detections differ from those on this computer, or from labels beside the recordings;
    with 4 if a hop takes longer than the time to the next one.
    """
    from mtool.commands import replaying, user_project

    run = replaying.replay(user_project.require(), clips, board=board, port=port, probe=probe)
    out.result(
        {
            "board": run.board,
            "hops": run.hops,
            "hop_ms": run.hop_ms,
            **run.figures(),
            "is_estimated": run.is_estimated,
            "clips": {
                str(item.clip.path): [{"keyword": each.keyword, "at_s": each.at_s} for each in item.detections]
                for item in run.heard
            },
        }
    )
    out.text(table(("recording", "detected"), [[item.clip.path.name, replaying.shown(item)] for item in run.heard]))
    about = "about " if run.is_estimated else ""
    out.text(
        f"{plural.count(run.hops, 'hop')} of {run.hop_ms:g} ms on {run.board}: {run.missed} missed, duty cycle "
        f"{about}{run.duty:.1%}, longest {about}{run.worst_ms:.3g} ms"
    )
    run.check_host()
    run.check_labels()
    run.check_in_time()


def record(
    out: Output, output: Path = Path("clips/recorded.wav"), seconds: float = 10.0, port: str = "", probe: str = ""
) -> None:
    """Record what the sensor of an application's board gives."""
    from mtool.commands import replaying, user_project

    length, lost = replaying.record(user_project.require(), output, seconds=seconds, port=port, probe=probe)
    out.result({"file": str(output), "seconds": length, "lost_hops": lost})
    out.text(
        f"{output}: {length:.2f} s"
        + (f", {plural.count(lost, 'hop')} lost: the port is slower than the sensor" if lost else "")
    )
