"""`mtool check`: what a model needs and where it fits, before anything is built."""

from pathlib import Path
from typing import TYPE_CHECKING

from mtool import commands
from mtool.base import plural
from mtool.base.errors import FitError, UsageError
from mtool.base.escaping import short_name
from mtool.cli import parameters
from mtool.cli.output import Output, table
from mtool.stages import formatting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mtool.boards import Board
    from mtool.cli.console import TextTable
    from mtool.commands import Fit, FitReport
    from mtool.device.build.fit import Need
    from mtool.manifest import Claim, Manifest, Operator
    from mtool.stages.latency_estimate import LongestOperator


# What computes each operator of a model, as a table.


def claims_table(claims: "Sequence[Claim]") -> "TextTable":
    """Return a table of what computes each operator that backends were offered, and why other backends do not."""
    rows = [
        [
            short_name(claim.operator),
            claim.kind,
            f"{claim.backend} ({claim.region})" if claim.backend else "C",
            "; ".join(f"{refusal.backend}: {refusal.reason}" for refusal in claim.refusals),
        ]
        for claim in claims
    ]
    return table(("operator of the model", "", "computed by", "why not by others"), rows, folds=True)


_ALL = "all"  # the same as no --board


def check(
    out: Output,
    models: list[Path],
    board: list[str] | None = None,
    output_dir: Path | None = None,
    *,
    clock: str = "",
    options: parameters.FitOptions,
) -> None:
    """Show what a model needs and which boards it fits; nothing is built.

    Lists the model's operators, types and sizes. If some operators can't be compiled, all of them are listed (exit code
    3). The sizes of the model's data, arena, buffers and stack are exact; code size is an estimate on the high side,
    unless the project folder has a build of this model with these options. Boards that it fits are sorted by the time
    of an inference. The time is an estimate, for integer models on cores that have a table of cycles; the energy too,
    for chips whose power is known (docs/cycles.md). Ends with exit code 4 if it does not fit a named board.
    """
    from mtool import boards
    from mtool.commands.cost import hertz
    from mtool.manifest import total_arena_bytes, total_constant_bytes

    if board == [_ALL]:
        board = None
    targets = [boards.get(name) for name in board] if board else list(boards.load_all().values())
    if len(models) > 1 and not board:
        raise UsageError(
            "--board is required for several models: they can't be checked against all boards",
            hint="give --board BOARD, once for each board; --board all is for one model",
        )
    hz = hertz(clock) if clock else 0
    report = commands.check_models(models, targets, options, folder=output_dir, hz=hz)
    manifests = report.manifest.models
    fits, emulators = report.by_time, {board.name for board in targets if board.is_emulator}
    out.result(
        {
            "manifest": report.manifest.model_dump(mode="json"),
            **({"models": [model.model_dump(mode="json") for model in manifests]} if len(manifests) > 1 else {}),
            "boards": [fit.as_json() for fit in fits],
        }
    )
    for model in manifests:
        _print_model(out, model, report.fits)
    if len(manifests) > 1:  # what they share
        shared = sum(model.shared_constant_bytes for model in manifests)
        constants = f", constants {total_constant_bytes(manifests):,} B"
        once = f"{constants}, of which {shared:,} B used by several models are stored once"
        out.text(f"together   arena {total_arena_bytes(manifests):,} B{once if shared else ''}", "")
    rows = [
        [
            f"{fit.board} (emulator)" if fit.board in emulators else fit.board,
            "fits" if fit.fits else "DOES NOT FIT",
            _of(fit.flash),
            _of(fit.ram),
            "" if not fit.needs else "of a build" if fit.is_built else "estimated",
            _time(fit),
            f"{formatting.joules(energy.microjoules)} ± {energy.error:.0%}" if energy else "",
        ]
        for fit, energy in ((fit, fit.time and fit.time.energy) for fit in fits)
    ]
    out.text(table(("board", "", "flash", "RAM", "sizes", "an inference, estimated", "its energy"), rows))
    if any(len(fit.needs) > 2 for fit in fits):
        out.text("flash and RAM: of several memories, the fullest")
    if not board:
        out.text("", _verdict(report, named=False))
        return
    for fit in report.fits:
        if fit.fits and fit.needs:
            floats = [fit.software_float.line()] if fit.software_float else []
            longest = [_longest(record) for record in fit.longest if record.operator or record.unknown]
            longest += [_wait(fit.longest)] if any(model.pauses for model in manifests) else []
            clocked = [] if clock else _clock_of(boards.get(fit.board))
            shown = [*fit.lines(report.manifest), *floats, *longest, *clocked]
            out.text("", fit.board, *(f"  {line}" for line in shown))
    lacking = [fit for fit in report.fits if not fit.fits]
    if lacking:
        raise FitError(
            f"{', '.join(model.name for model in models)} {'do' if len(models) > 1 else 'does'} not fit "
            + ", ".join(fit.board for fit in lacking),
            details=[
                f"{fit.board}: {line}" if len(lacking) > 1 else line
                for fit in lacking
                for line in fit.lines(report.manifest)
            ],
            hint=lacking[0].hint(report.manifest),
        )
    out.text("", _verdict(report, named=True))


def _time(fit: "Fit") -> str:
    if fit.time is None:
        return "not known" + (f": no estimate by {_of_backends(fit.without_estimate)}" if fit.without_estimate else "")
    waits = "" if fit.time.flash_is_known else ", plus waits for its flash (unknown)"
    waits += "" if fit.time.flash_is_sure else ", with assumed flash waits"
    by_devices = fit.time.device_milliseconds
    devices = f", {by_devices:.3g} ms of it by backends' estimates" if by_devices else ""
    clock = f" at {formatting.frequency(fit.time.hz)}"
    return f"{fit.time.milliseconds:.3g} ms{clock} ± {fit.time.error:.0%}{devices}{waits}"


def _clock_of(board: "Board") -> list[str]:
    """Return a note if the board's clock, which times are for, is not the one that its framework sets by default."""
    if "clock-frequency" not in str(board.port.get("overlay", "")):
        return []
    return [f"times are for {formatting.frequency(board.clock_hz)}, the clock that mtool's overlay for Zephyr sets"]


def _of_backends(names: "Sequence[str]") -> str:
    return f"the backend{'s' * (len(names) > 1)} {', '.join(names)}"


def _longest(record: "LongestOperator") -> str:
    if record.unknown:
        return f"longest operator of {record.model}: not known: no estimate by {_of_backends(record.unknown)}"
    time = "" if record.time is None else f", {record.time.milliseconds:.3g} ms ± {record.time.error:.0%}"
    return f"longest operator of {record.model}: {record.operator}, {record.share:.0%} of an inference{time}"


def _wait(models: "Sequence[LongestOperator]") -> str:
    """Return a line about what the most urgent model waits for."""
    first, *others = models
    unknown = sorted({backend for other in others for backend in other.unknown})
    if unknown:
        return f"{first.model} waits for others: not known: no estimate by {_of_backends(unknown)}"
    most = max(others, key=lambda other: other.stretch_instructions)  # times are not known of each
    time = "" if most.stretch is None else f", {most.stretch.milliseconds:.3g} ms ± {most.stretch.error:.0%}"
    return f"{first.model} waits for at most {most.stretch_share:.0%} of an inference of {most.model}{time}"


def _print_model(out: Output, manifest: "Manifest", fits: "Sequence[Fit]") -> None:
    """Print a model's summary; for several boards without schedules, which differ from board to board."""
    sizes = f"constants {manifest.constant_bytes:,} B, {formatting.arena(manifest)}"
    if len(fits) > 1 and fits[0].arena_bytes:
        constants, arena = ([fit.constant_bytes for fit in fits], [fit.arena_bytes for fit in fits])
        sizes = f"constants {_range(constants)}, arena {_range(arena)}"
    inputs = ", ".join(f"{short_name(tensor.name)} {formatting.tensor(tensor)}" for tensor in manifest.inputs)
    outputs = ", ".join(f"{short_name(tensor.name)} {formatting.tensor(tensor)}" for tensor in manifest.outputs)
    out.text(f"{manifest.model_file}   {inputs} -> {outputs}")
    out.text(f"  {formatting.amount(manifest.macs)} MACs, {formatting.amount(manifest.parameters)} parameters, {sizes}")
    rows = operator_rows(manifest.operators)
    if len(fits) > 1:
        out.text(table(("#", "operator", "shape", "MACs"), [[*row[:3], row[4]] for row in rows], right=(0, 3)), "")
    else:
        out.text(table(("#", "operator", "shape", "schedule", "MACs"), rows, right=(0, 4)), "")
    if manifest.claims:
        out.text(claims_table(manifest.claims), "")


def _range(sizes: "Sequence[int]") -> str:
    """Write the smallest and the largest size over all boards."""
    least, most = min(sizes), max(sizes)
    return f"{least:,} B" if least == most else f"{least:,} to {most:,} B, depending on the board"


def operator_rows(operators: "Sequence[Operator]") -> list[list[str]]:
    """Return a row for each operator: its number, label, shape, schedule and MACs.

    The parts of an operator that is computed by rows share a row, and so do equal operators in sequence.
    """
    groups: list[list[Operator]] = []
    of_whole: dict[str, list[Operator]] = {}
    for operator in operators:
        before = groups[-1][0] if groups else None
        if operator.whole in of_whole:
            of_whole[operator.whole].append(operator)
        elif before and not operator.whole and not before.whole and _looks(before) == _looks(operator):
            groups[-1].append(operator)
        else:
            groups.append([operator])
            if operator.whole:
                of_whole[operator.whole] = groups[-1]
    rows = []
    for group in groups:
        first, last = group[0], group[-1]
        number = str(first.index) if len(group) == 1 else f"{first.index}-{last.index}"
        parts = f" in {plural.count(len(group), 'part')}" if first.whole else f", {len(group)} times"
        label = first.label + (parts if len(group) > 1 else "")
        rows.append([number, label, first.shape, first.by, f"{sum(operator.macs for operator in group):,}"])
    return rows


def _looks(operator: "Operator") -> tuple[str, str, str, int]:
    return operator.label, operator.shape, operator.by, operator.macs


def _verdict(report: "FitReport", *, named: bool) -> str:
    """Return the last line: which boards the model fits."""
    model = ", ".join(short_name(model.model_file) for model in report.manifest.models)
    fitting = [fit.board for fit in report.fits if fit.fits]
    if named:
        return f"{model} {'fit' if len(report.manifest.models) > 1 else 'fits'} {', '.join(fitting)}"
    verb = "fits" if len(fitting) == 1 else "fit"
    return f"{len(fitting)} of {len(report.fits)} boards {verb} {model}; for details: mtool check MODEL --board BOARD"


def _of(need: "Need | None") -> str:
    return "" if need is None else f"{formatting.kilobytes(need.bytes)} of {formatting.kilobytes(need.limit_bytes)}"
