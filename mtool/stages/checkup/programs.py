"""Programs and packages: compilers, emulators, flash tools, references, as items."""

import shutil
from pathlib import Path

from mtool.base import distribution
from mtool.base.errors import FlashError, MtoolError
from mtool.boards import Board
from mtool.device import flash
from mtool.device.build import toolchains
from mtool.device.build.arduino import TOOLS
from mtool.device.build.toolchains import Toolchain
from mtool.stages.checkup.item import Item

_CORE_TIMEOUT_S = 30.0


def toolchain(name: str, *, required: bool) -> Item:
    """Return a set of programs of mtool.device.build.toolchains, or a program that it knows nothing of."""
    known = toolchains.known().get(
        name, Toolchain(name, "its programs", (name,), f"install {name}, and put it on PATH")
    )
    found = toolchains.check(known)
    lacks = f"without {' and '.join(found.missing)}" if found.missing and found.version else ""
    there = " ".join(filter(None, [found.version, lacks]))
    return Item(name, there, known.purpose, known.install if found.missing else "", required)


def references() -> list[Item]:
    """Return what outputs are compared with."""
    rows = (
        ("onnxruntime", "onnxruntime", "mtool verify without a golden file", "verify"),
        ("LiteRT", "ai-edge-litert", "mtool verify of a .tflite file", "litert"),
    )
    found = {name: distribution.version_of(package) for name, package, _, _ in rows}
    return [
        Item(name, found[name], needed, "" if found[name] else distribution.install(extra))
        for name, _, needed, extra in rows
    ]


def runner(name: str) -> Item | None:
    """Return a flash tool; None: it has no program of its own."""
    one = flash.RUNNERS[name]
    program, found, install = one.program(), "", one.install
    if not program:
        return None
    if shutil.which(program):
        try:
            found, install = ".".join(map(str, one.probe_version())) or "there", ""
        except FlashError as wrong:
            found = wrong.what.removeprefix(f"{program} is ")
    return Item(Path(program).name, found, f"mtool flash --runner {name}", install)


def flash_tools(board: Board, template: str) -> list[Item]:
    """Return the tools that flash a board. One is required, the first that is installed or else the first of all."""
    items: list[tuple[str, Item]] = []
    for name in flash.runners_of(board, template):
        item = runner(name)
        inner = inner_runner(board, name)
        if item is not None and not item.install and inner is not None and inner.install:
            item = Item(f"{inner.name} for {item.name}", inner.found, item.needed, inner.install)
        if item is not None:
            items.append((name, item))
    if not items:
        return []
    chosen = next((name for name, item in items if not item.install), items[0][0])
    return [Item(item.name, item.found, item.needed, item.install, required=name == chosen) for name, item in items]


def inner_runner(board: Board, name: str) -> Item | None:
    """Return the tool that a framework's runner needs itself (west: {runner: openocd})."""
    inner = str(board.flash.get(name, {}).get("runner", ""))
    return runner(inner) if name != inner and inner in flash.RUNNERS else None


def sketch(board: Board | None) -> list[Item]:
    """Return what builds an Arduino sketch for a board: one of the tools that can, with what it needs itself.

    Without a board it is the tools that can build for some.
    """
    port = board.port if board is not None else {"platformio": "", "core": "avr"}
    can = {"arduino-cli": True, "platformio": "platformio" in port, "cmake": port.get("core") == "avr"}
    names = [name for name, able in can.items() if able]
    items = []
    for name in names:
        tool = TOOLS[name]
        there = shutil.which(tool.program)
        item = Item(name, "there" if there else "", "Arduino sketches", "" if there else tool.install)
        if board is not None and there and name == "arduino-cli" and (core := _missing_core(board)):
            item = Item(name, f"without the core {core}", item.needed, f"arduino-cli core install {core}")
        avr = board.toolchain if board is not None else "avr-gcc"
        if there and name == "cmake" and (compiler := toolchain(avr, required=False)).install:
            item = Item(name, f"without {avr}", item.needed, compiler.install)
        items.append(item)
    chosen = next((one.name for one in items if not one.install), items[0].name)
    return [Item(one.name, one.found, one.needed, one.install, required=one.name == chosen) for one in items]


def _missing_core(board: Board) -> str:
    """Return the core of a board that arduino-cli has not installed; "": it has, or can't tell."""
    from mtool.base import proc

    core = ":".join(board.templates.get("arduino", "").split(":")[:2])
    try:
        argv = [TOOLS["arduino-cli"].program, "core", "list"]
        done = proc.run(argv, what="the list of cores", timeout_s=_CORE_TIMEOUT_S, check=False)
    except MtoolError:
        return ""
    return core if done.returncode == 0 and core and core not in done.output.split() else ""
