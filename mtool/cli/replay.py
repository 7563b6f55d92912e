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

    found = replaying.replay(user_project.require(), clips, board=board, port=port, probe=probe)
    out.result(
        {
            "board": found.board,
            "hops": found.hops,
            "hop_ms": found.hop_ms,
            **found.figures(),
            "is_estimated": found.is_estimated,
            "clips": {
                str(one.clip.path): [{"keyword": each.keyword, "at_s": each.at_s} for each in one.detections]
                for one in found.heard
            },
        }
    )
    out.text(table(("recording", "detected"), [[one.clip.path.name, replaying.shown(one)] for one in found.heard]))
    about = "about " if found.is_estimated else ""
    out.text(
        f"{plural.count(found.hops, 'hop')} of {found.hop_ms:g} ms on {found.board}: {found.missed} missed, duty cycle "
        f"{about}{found.duty:.1%}, longest {about}{found.worst_ms:.3g} ms"
    )
    found.check_host()
    found.check_labels()
    found.check_in_time()


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
