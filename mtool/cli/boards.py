"""`mtool boards`: what can be built for."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mtool.cli import completion, parameters
from mtool.cli.output import Output, table
from mtool.stages.formatting import kilobytes

if TYPE_CHECKING:
    from mtool.boards import Board

FLASH = frozenset({"code", "weights"})
RAM = frozenset({"arena", "data", "stack"})


def boards(
    out: Output,
    name: Annotated[
        str,
        typer.Argument(
            metavar="[BOARD]", help="Show this one in full.", show_default=False, autocompletion=completion.boards
        ),
    ] = "",
    attached: Annotated[bool, typer.Option("--attached", help="List what is plugged in instead.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Keep reporting what is plugged in and out.")] = False,
    new: Annotated[
        str,
        typer.Option(
            "--new",
            metavar="NAME",
            help="Write an entry for a board of your own, by questions or by --from and --set.",
            show_default=False,
        ),
    ] = "",
    origin: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="BOARD",
            help="With --new: begin with what is known of this one; zephyr:NAME reads the Zephyr tree.",
            show_default=False,
            autocompletion=completion.boards,
        ),
    ] = "",
    facts: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="With --new: a fact of it: cpu=cortex-m4, flash=0x08000000:1MiB, ram=0x20000000:64KiB, "
            "clock=168MHz, zephyr=NAME; may be repeated.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        parameters.output_file("FILE", "With --new: the file to write; default: boards/NAME.yaml."),
    ] = None,
) -> None:
    """List the boards, or show one in full; or write an entry for one of your own."""
    if new or origin or facts or output:
        from mtool.cli import new_board

        new_board.write(out, new, origin, facts or (), output)
        return
    if watch or attached:
        from mtool.cli import attached as ports

        (ports.follow if watch else ports.show)(out)
        return
    from mtool import boards as known

    if name:
        _show(out, known.get(name))
        return
    listed, broken = list(known.load_all().values()), known.broken()
    if out.as_json:
        wrong = [
            {"name": one.name, "file": str(one.path), "what": one.error.what, "details": list(one.error.details)}
            for one in broken
        ]
        out.result({"boards": [board.model_dump(mode="json") for board in listed], "broken": wrong})
    rows = [
        [
            board.name,
            board.cpu,
            " ".join(sorted(board.features)),
            capacity(board, FLASH),
            capacity(board, RAM),
            ", ".join(f"{template} {board.status.get(template, '')}" for template in board.templates),
            board.description,
        ]
        for board in listed
    ]
    headings = ("board", "cpu", "features", "flash", "ram", "status by template", "")
    out.text(table(headings, rows, right=(3, 4)))
    for one in broken:
        out.text("", f"{one.name} of {one.path} can't be used:", *(f"  {line}" for line in one.error.details))


def capacity(board: "Board", roles: frozenset[str]) -> str:
    """Return the size of the memories that hold any of `roles`; empty where an operating system places things."""
    total = sum(memory.size for memory in board.memories.values() if roles & set(memory.holds))
    return kilobytes(total) if total else ""


def _show(out: Output, board: "Board") -> None:
    out.result({"board": board.model_dump(mode="json")})
    facts = [
        ["description", board.description],
        ["cpu", " ".join([board.cpu, *sorted(board.features)])],
        ["clock", f"{board.clock_hz / 1e6:g} MHz" if board.clock_hz else ""],
        *(
            [name, f"0x{memory.base:08x}  {kilobytes(memory.size)}  {', '.join(memory.holds)}"]
            for name, memory in board.memories.items()
        ),
        ["toolchain", " ".join([board.toolchain, *board.cflags])],
        *(
            [name, ", ".join([own, *([board.status[name]] if name in board.status else [])])]
            for name, own in board.templates.items()
        ),
        ["flash with", ", ".join(board.flash)],
        ["usb", f"{', '.join(board.usb.ids)} at {board.usb.uart} baud" if board.usb and board.usb.ids else ""],
        ["emulator", board.emulator.program if board.emulator else ""],
        ["timer", f"{board.timer.kind}, counts {board.timer.unit}" if board.timer else ""],
        ["source", board.source],
    ]
    out.text(board.name)
    for label, fact in facts:
        if fact:
            out.text(f"  {label:<12} {fact}")
