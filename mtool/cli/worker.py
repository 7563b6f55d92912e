"""`mtool worker`: share this computer's boards for tuning."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mtool.base.errors import UsageError
from mtool.cli.app import GroupedCommand
from mtool.cli.output import Output

_OWN = {"--port": "--port", "-p": "--port", "--probe": "--probe"}


class InOrder(GroupedCommand):
    """A command that assigns each --port and --probe to the --board before it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Give each board one port and one probe, empty if not given, so that the three lists have equal lengths."""
        return super().parse_args(ctx, aligned(args))


COMMAND_CLASS = InOrder


def aligned(args: Sequence[str]) -> list[str]:
    """Return arguments in which each --board is followed by one --port and one --probe.

    Raises:
        UsageError: one of these comes before any board, or twice after the same board.
    """
    result: list[str] = []
    device: dict[str, str] | None = None
    rest = list(args)

    def ended() -> None:
        for name, value in (device or {}).items():
            result.extend([name, value])

    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        if name in ("--board", "-b", *_OWN) and not equals and rest:
            value = rest.pop(0)
        if name in ("--board", "-b"):
            ended()
            device = {"--port": "", "--probe": ""}
            result += ["--board", value]
        elif name in _OWN:
            if device is None or device[_OWN[name]]:
                raise UsageError(
                    f"{name} {value} does not belong to a board",
                    hint="give it after its board: --board B --port P --board B2 --probe S",
                )
            device[_OWN[name]] = value
        else:
            result.append(word)
    ended()
    return result


def worker(
    out: Output,
    scheduler: str,
    board: list[str] | None = None,
    port: list[str] | None = None,
    probe: list[str] | None = None,
    builds: int | None = None,
    name: str = "",
    hang: float = 600.0,
    host: str = "",
    insecure: bool = False,
    flash_command: str = "",
    power: str = "",
    tls_ca: Path | None = None,
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
) -> None:
    """Let others tune on this computer's boards. A worker runs whatever its scheduler sends: use TLS."""
    from mtool.commands import Deployment
    from mtool.tuning.farm.security import Tls
    from mtool.tuning.farm.worker import work

    places = zip(board or [], port or [], probe or [], strict=True)
    held = [(name_, Deployment(None, port_, probe_, flash_command, power)) for name_, port_, probe_ in places]
    count = int(not held) if builds is None else builds
    tls = Tls(tls_ca, tls_cert, tls_key)
    work(scheduler, held, builds=count, tls=tls, name=name, hang_s=hang, host=host, insecure=insecure)
    out.note("the worker has ended")
