"""`mtool check`: what a model needs and where it fits, before anything is built."""

import dataclasses
from typing import Annotated

import typer

from mtool import boards as known
from mtool.build.fit import advice
from mtool.cli import parameters
from mtool.cli.output import Output, table
from mtool.compiler import Fit, check_model
from mtool.errors import FitError
from mtool.manifest import Manifest
from mtool.text import short_name
from mtool.workflow import wording


def check(
    out: Output,
    model: parameters.ModelFile,
    board: Annotated[
        list[str] | None,
        typer.Option("--board", "-b", metavar="BOARD", help="May be repeated; default: all.", show_default=False),
    ] = None,
    options: parameters.ModelOptions = parameters.DEFAULTS,
) -> None:
    """Tell what a model needs and which boards it fits.

    Lists its operators, types and sizes, and everything in it that can't be compiled (exit code 3). Ends with
    exit code 4 if it does not fit a board that was named.
    """
    boards = [known.get(name) for name in board] if board else list(known.load_all().values())
    report = check_model(model, boards, options)
    out.result(
        {
            "manifest": report.manifest.model_dump(mode="json"),
            "boards": [{**dataclasses.asdict(fit), "fits": fit.fits} for fit in report.fits],
        }
    )
    _print_model(out, report.manifest)
    rows = [
        [
            fit.board,
            "fits" if fit.fits else "DOES NOT FIT",
            _of(fit.flash_bytes, fit.flash_limit_bytes),
            _of(fit.ram_bytes, fit.ram_limit_bytes),
        ]
        for fit in report.fits
    ]
    out.text(table(("board", "", "constants, of flash", "arena, of RAM"), rows))
    lacking = [fit for fit in report.fits if not fit.fits] if board else []
    if lacking:
        raise FitError(
            f"{model.name} does not fit {', '.join(fit.board for fit in lacking)}",
            details=[line for fit in lacking for line in _lines(fit)],
            hint=_hint(report.manifest, lacking[0]),
        )


def _print_model(out: Output, manifest: Manifest) -> None:
    inputs = ", ".join(f"{short_name(tensor.name)} {wording.tensor(tensor)}" for tensor in manifest.inputs)
    outputs = ", ".join(f"{short_name(tensor.name)} {wording.tensor(tensor)}" for tensor in manifest.outputs)
    out.text(f"{manifest.model_file}   {inputs} -> {outputs}")
    out.text(
        f"  {wording.amount(manifest.macs)} MACs, {wording.amount(manifest.parameters)} parameters, "
        f"constants {manifest.constant_bytes:,} B, "
        f"arena {manifest.arena_bytes:,} B (bound {manifest.arena_bound_bytes:,} B)"
    )
    rows = [
        [str(operator.index), operator.label, operator.shape, operator.schedule, f"{operator.macs:,}"]
        for operator in manifest.operators
    ]
    out.text(table(("#", "operator", "shape", "schedule", "MACs"), rows, right=(0, 4)), "")


def _of(needed: int, there: int | None) -> str:
    return wording.kilobytes(needed) + (f" of {wording.kilobytes(there)}" if there is not None else "")


def _hint(manifest: Manifest, fit: Fit) -> str:
    board = known.get(fit.board)
    needed = {name: count for role, count in fit.lacking.items() if (name := board.region_for(role)) is not None}
    return advice(manifest, board, needed)


def _lines(fit: Fit) -> list[str]:
    return [
        f"{fit.board}: {name} {_of(needed, there)}"
        for name, needed, there in (
            ("flash", fit.flash_bytes, fit.flash_limit_bytes),
            ("ram", fit.ram_bytes, fit.ram_limit_bytes),
        )
    ]
