"""`mtool bench`: what a model costs on a board."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mtool import commands
from mtool.base.errors import UsageError
from mtool.cli import parameters
from mtool.cli.output import Output, table

if TYPE_CHECKING:
    from mtool.commands import Clock, Cost
    from mtool.device.cycles import Estimate
    from mtool.device.session.profile import Profile

_BAR = 20  # columns of the longest bar


def bench(
    out: Output,
    model: parameters.ModelFile,
    board: parameters.BoardName = parameters.HOST,
    number: Annotated[int, typer.Option("--number", min=1, help="Inferences between two readings of the timer.")] = 1,
    repeat: Annotated[int, parameters.repeat("Readings, of which the median counts.")] = 3,
    min_repeat_ms: Annotated[
        float, typer.Option("--min-repeat-ms", min=0, help="How long a reading takes at least; --number grows for it.")
    ] = 0.0,
    fill: parameters.Fill = "random",
    cooldown_ms: Annotated[
        float, typer.Option("--cooldown-ms", min=0, help="A pause between readings, for a board that grows hot.")
    ] = 0.0,
    repeats_to_cooldown: Annotated[
        int, typer.Option("--repeats-to-cooldown", min=1, help="Readings between two pauses.")
    ] = 1,
    zero_time_limit: Annotated[
        int, typer.Option("--zero-time-limit", min=0, help="How often --number may grow while the timer reads zero.")
    ] = 100,
    function: Annotated[
        str,
        typer.Option(
            "--function", metavar="NAME", help="Time this operator alone, by its number in --layers or its name."
        ),
    ] = "",
    layers: Annotated[bool, typer.Option("--layers", help="Measure each operator by itself.")] = False,
    *,
    on: parameters.OnDevice = None,
    options: parameters.ProjectOptions,
    deployment: parameters.ProjectDeployment,
    cycles: Annotated[bool, typer.Option("--cycles", help="Estimate cycles, from what the emulator runs.")] = False,
    clock: Annotated[
        list[str] | None,
        typer.Option(
            "--clock",
            metavar="BOARD|HZ",
            help="With --cycles: milliseconds on this board, at this frequency (120MHz), or both (BOARD@80MHz); may be "
            "repeated.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Measure instructions (or time), flash, RAM, stack; estimate cycles."""
    from mtool import boards
    from mtool.device.session import Readings

    if clock and not cycles:
        raise UsageError("--clock is for estimates of cycles", hint="give --cycles too")
    if layers and cycles:
        raise UsageError("--layers and --cycles are two tables", hint="--cycles has a row for each operator too")
    if function and (layers or cycles):
        raise UsageError("--function is one time, --layers and --cycles are tables", hint="give one of them")
    readings = Readings(number, repeat, min_repeat_ms, zero_time_limit, cooldown_ms, repeats_to_cooldown)
    if on is not None:
        from mtool.stages.job import board_of

        if function or layers or cycles:
            raise UsageError("--on is for a model that was loaded, whose operators have no C here")
        board_of(on, board)
    if function:
        timing = commands.time_function(
            model, function, board=board, readings=readings, options=options, deployment=deployment
        )
        out.result({"board": board, "function": function, **asdict(timing), "median": timing.median})
        out.text(f"{function}  {timing}")
        return
    if layers:
        profile = commands.bench_layers(
            model, board=board, repeat=repeat, options=options, deployment=deployment, fill=fill
        )
        _print_layers(out, profile, board)
        return
    clocks = commands.clocks(clock or (), boards.get(board))
    cost = commands.bench(
        model,
        board=commands.standing_for(boards.get(board), clock or ()),
        number=number,
        repeat=repeat,
        min_repeat_ms=min_repeat_ms,
        cooldown_ms=cooldown_ms,
        repeats_to_cooldown=repeats_to_cooldown,
        zero_time_limit=zero_time_limit,
        options=options,
        deployment=deployment,
        cycles=cycles,
        clocks=clocks,
        fill=fill,
        on=on,
    )
    if cost.cycles is None:
        out.result({**cost.as_json(), **({} if on else _first_run(cost))})
        out.text(table((cost.model, cost.board), commands.comparison([cost])))
    else:
        _print_cycles(out, cost, cost.cycles, clocks)


def _first_run(cost: "Cost") -> dict[str, Any]:
    return {"first_run": None if cost.first_run is None else cost.first_run.as_json()}


def _print_cycles(out: Output, cost: "Cost", estimate: "Estimate", clocks: "Sequence[Clock]") -> None:
    milliseconds = {at.name: estimate.milliseconds(at) for at in clocks}
    out.result({**cost.as_json(), "milliseconds": milliseconds, **_first_run(cost)})
    rows = [*commands.comparison([cost]), *commands.cycle_rows(estimate, cost.macs, clocks)]
    out.text(table((cost.model, cost.board), rows))
    out.text("", table(("instructions", "executed", "share"), commands.mix_rows(estimate), right=(1, 2)))
    for what, parts in (("operator", estimate.operators), ("function alone", estimate.functions)):
        headings = commands.part_headings(what, estimate)
        out.text("", table(headings, commands.part_rows(parts, estimate), right=range(1, len(headings))))


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
