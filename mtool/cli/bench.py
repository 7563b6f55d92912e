"""`mtool bench`: what a model costs on a board."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from mtool.base.errors import UsageError
from mtool.cli import parameters
from mtool.cli.output import Output, table

if TYPE_CHECKING:
    from mtool.device.session.profile import Profile

_BAR = 20  # columns of the longest bar


def bench(
    out: Output,
    model: Path,
    board: str = parameters.HOST,
    number: int = 1,
    repeat: int = 3,
    min_repeat_ms: float = 0.0,
    fill: str = "random",
    cooldown_ms: float = 0.0,
    repeats_to_cooldown: int = 1,
    zero_time_limit: int = 100,
    function: str = "",
    layers: bool = False,
    *,
    on: Path | None = None,
    elf: Path | None = None,
    options: parameters.ProjectOptions,
    deployment: parameters.ProjectDeployment,
    cycles: bool = False,
    clock: list[str] | None = None,
) -> None:
    """Measure instructions (or time), flash, RAM, stack; estimate cycles."""
    from mtool import boards
    from mtool.commands import cost as costs
    from mtool.device.session import Readings
    from mtool.stages.job import Job, board_of, own_firmware

    if clock and not cycles:
        raise UsageError("--clock needs --cycles: it sets the clock of the cycle estimate", hint="add --cycles")
    if layers and cycles:
        raise UsageError("--layers and --cycles can't be combined", hint="--cycles has a row for each operator too")
    if function and (layers or cycles):
        raise UsageError("--function can't be combined with --layers or --cycles", hint="give one of them")
    readings = Readings(number, repeat, min_repeat_ms, zero_time_limit, cooldown_ms, repeats_to_cooldown)
    on = on or own_firmware(model, deployment)
    if on is not None:
        board = board_of(on, board)
        if cycles:
            raise UsageError("--cycles can't be combined with --on: cycles are estimated in an emulator")
    if elf is not None and (function or layers):
        raise UsageError("--elf can't be combined with --function or --layers: they do not show the stack")
    if function:
        timing = costs.time_function(Job(model, board, options, deployment, on=on), function, readings)
        out.result({"board": board, "function": function, **asdict(timing), "median": timing.median})
        out.text(f"{function}  {timing}")
        return
    if layers:
        profile = costs.bench_layers(
            model, board=board, repeat=repeat, options=options, deployment=deployment, fill=fill, on=on
        )
        _print_layers(out, profile, board)
        return
    target = boards.get(board)
    clocks = costs.clocks(clock or (), target)
    job = Job(model, costs.standing_for(target, clock or ()), options, deployment, fill=fill, on=on)
    cost = costs.bench_job(job, readings, clocks if cycles else None, elf=elf)
    estimate, first = cost.cycles, cost.first_run
    milliseconds = {} if estimate is None else {at.name: estimate.milliseconds(at) for at in clocks}
    compared = {} if on else {"first_run": None if first is None else first.as_json()}
    out.result({**cost.as_json(), **({} if estimate is None else {"milliseconds": milliseconds}), **compared})
    rows = costs.comparison([cost])
    if estimate is None:
        out.text(table((cost.model, cost.board), rows))
        return
    out.text(table((cost.model, cost.board), [*rows, *costs.cycle_rows(estimate, cost.macs, clocks)]))
    out.text("", table(("instructions", "executed", "share"), costs.mix_rows(estimate), right=(1, 2)))
    for what, parts in (("operator", estimate.operators), ("function alone", estimate.functions)):
        headings = costs.part_headings(what, estimate)
        out.text("", table(headings, costs.part_rows(parts, estimate), right=range(1, len(headings))))


def _print_layers(out: Output, profile: "Profile", board: str) -> None:
    out.result({"board": board, **profile.as_json()})
    most = max((operator.median for operator in profile.operators), default=0.0) or 1.0
    rows = [
        [
            str(operator.index),
            operator.title,
            operator.shape,
            operator.by,
            f"{operator.median:,.0f}",
            "" if operator.per_mac is None else f"{operator.per_mac:.2f}",
            f"{profile.share(operator):.1%}",
            f"{operator.bytes:,}",
            "█" * round(_BAR * operator.median / most),
        ]
        for operator in profile.operators
    ]
    heads = ("#", "operator", "shape", "schedule", profile.unit, "/MAC", "share", "bytes", "")
    out.text(table(heads, rows, right=(0, 4, 5, 6, 7)))
    out.text(f"all operators {profile.total:,.0f}, the model as a whole {profile.whole:,.0f} {profile.unit}")
