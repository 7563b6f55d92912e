"""`mtool boards`: the boards that mtool can build for."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from mtool.base import configuration, files
from mtool.base.errors import UsageError
from mtool.cli.output import Output, table
from mtool.stages.formatting import kilobytes

if TYPE_CHECKING:
    from mtool.boards import Board


# `mtool boards --new`: an entry for the user's own board, from questions, from options, or from Zephyr.


_NAME = re.compile(r"[A-Za-z_][\w.-]*")


def write_new(out: Output, name: str, origin: str, facts: Sequence[str], output: Path | None) -> None:
    """Write a board's entry and print how to use it.

    Raises:
        UsageError: the name is invalid, a property is missing or wrong, or the file exists.
        BoardError: the board to start from does not exist.
        BuildError: the board to start from is Zephyr's, and the tree, a module or a tool is missing.
    """
    if not name:
        raise UsageError("--from, --set and --output need --new", hint="give the new board's name: --new NAME")
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} can't be a board's name", hint="use letters, digits, _, - and .")
    project = configuration.nearest()
    path = output or (project.parent if project else Path()) / "boards" / f"{name}.yaml"
    if path.exists():
        raise UsageError(f"{path} exists already", hint="edit it, or give another file: --output FILE")
    from mtool import boards
    from mtool.boards import making

    if name in boards.shipped():
        raise UsageError(
            f"mtool has a board {name} already",
            hint=f"give yours another name: --new my_{name}; see mtool's: mtool boards {name}",
        )
    values, available = dict[str, str](), boards.load_all()
    for fact in facts:
        key, _, value = (part.strip() for part in fact.partition("="))
        if not value:
            raise UsageError(f"--set {fact} is not KEY=VALUE", hint="for example: --set cpu=cortex-m4")
        making.check(key, value, available)
        values[key] = value
    start = _start(origin)
    missing = making.lacking(values, start)
    if missing and sys.stdin.isatty() and not out.as_json:
        missing_keys = {key for group in missing for key in group}
        values |= _prompted([key for key in making.FACTS if key not in values and (not start or key in missing_keys)])
        missing = making.lacking(values, start)
    if missing:
        raise UsageError(
            f"a new board needs {' and '.join(' or '.join(group) for group in missing)}",
            details=[f"--set {key}=...   {making.FACTS[key]}" for group in missing for key in group],
            hint="or start from another board: --from BOARD, --from zephyr:NAME",
        )
    entry = making.entry_of(values, start, available)
    text = making.text_of(name, entry)
    board = boards.board_of(path, name, entry)
    files.write(path, text.encode(), follow=True)
    is_listed = path.resolve() in [file.resolve() for file in boards.files_of()]
    out.result({"file": str(path), "board": board.model_dump(mode="json")})
    out.text(f"{path}", *(f"  {line}" for line in text.splitlines()))
    bases = {region["base"] for region in entry.get("memories", {}).values()}
    if gone := [memory for memory, region in start.get("memories", {}).items() if region["base"] not in bases]:
        out.text("", f"replaced by --set: {', '.join(gone)} of {origin}")
    use = f"mtool boards {name}" if is_listed else f"mtool boards {name} --boards {path}"
    out.text("", f"see it with: {use}" + ("" if is_listed else f'; or add to mtool.toml: boards = "{path}"'))


def _start(origin: str) -> dict[str, Any]:
    """Return the entry to start from, without that board's test records."""
    if not origin:
        return {}
    from mtool import boards

    board = boards.get(origin)
    entry: dict[str, Any] = board.model_dump(mode="json", exclude={"name", "status"}, exclude_defaults=True)
    if not origin.startswith("zephyr:"):
        entry["description"] = f"a board of my own, from {origin}"
        entry["source"] = f"the entry of {origin}: {board.source}"
    for name, memory in board.memories.items():
        if memory.reads is not None:  # neither manifests nor tuning records hold it
            entry["memories"][name]["reads"] = memory.reads.model_dump(exclude_defaults=True)
    if board.draws is not None:
        entry["draws"] = board.draws.model_dump(mode="json")
    return entry


def _prompted(keys: Sequence[str]) -> dict[str, str]:
    from mtool import boards
    from mtool.boards import making

    answers: dict[str, str] = {}
    available = boards.load_all()
    for key in keys:
        if not making.is_asked(key, answers):
            continue
        while key not in answers:
            answer = typer.prompt(f"{key}: {making.FACTS[key]}", default="", show_default=False, err=True).strip()
            if not answer and key not in making.NEEDED:
                break
            try:
                if answer:
                    making.check(key, answer, available)
                    answers[key] = answer
            except UsageError as wrong:
                typer.echo(f"{wrong.what}; {wrong.hint}", err=True)
    return answers


FLASH = frozenset({"code", "weights"})
RAM = frozenset({"arena", "data", "stack", "hot_code"})


def boards(
    out: Output,
    name: str = "",
    attached: bool = False,
    watch: bool = False,
    new: str = "",
    origin: str = "",
    facts: list[str] | None = None,
    output: Path | None = None,
) -> None:
    """List the boards, show one in full, or write an entry for your own."""
    if new or origin or facts or output:
        write_new(out, new, origin, facts or (), output)
        return
    if watch or attached:
        from mtool.cli import attached as ports

        (ports.follow if watch else ports.show)(out)
        return
    from mtool import boards as registry

    if name:
        _show(out, registry.get(name))
        return
    listed, broken = list(registry.load_all().values()), registry.broken()
    if out.as_json:
        wrong = [
            {"name": bad.name, "file": str(bad.path), "what": bad.error.what, "details": list(bad.error.details)}
            for bad in broken
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
    out.text("status: the template's firmware was run, or only built, or only generated")
    for bad in broken:
        out.text("", f"{bad.name} in {bad.path} can't be used:", *(f"  {line}" for line in bad.error.details))


def capacity(board: "Board", roles: frozenset[str]) -> str:
    """Return the size of the memories that hold any of `roles`; empty where an operating system places data."""
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
            [name, ", ".join([board_name, *([board.status[name]] if name in board.status else [])])]
            for name, board_name in board.templates.items()
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
