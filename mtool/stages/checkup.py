"""What a board needs on this computer, and whether it is there: programs, a Zephyr tree, the cable, permissions."""

import functools
import getpass
import importlib.util
import os
import platform
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

import yaml

from mtool import boards, project
from mtool.base import distribution, resources, system
from mtool.base.errors import FlashError, MtoolError
from mtool.base.frozen import frozen
from mtool.boards import Board, zephyr
from mtool.device import flash
from mtool.device.build import toolchains
from mtool.device.build.arduino import TOOLS
from mtool.device.build.build import BUILDERS
from mtool.device.build.toolchains import Toolchain
from mtool.device.flash import all_runners, ports
from mtool.device.flash.runner import is_wsl, no_device_hint, permission_hint

_HOST = "cc"  # this computer's compiler
State = Literal["ok", "missing", "absent"]


@frozen
class Item:
    """A requirement and whether it is met.

    Attributes:
        name: what it is called.
        found: its version or path; "" if it is missing.
        needed: what it is needed for, or which versions will do.
        install: how to install it; "" if it is there.
        required: the board can't be used without it.
    """

    name: str
    found: str
    needed: str
    install: str = ""
    required: bool = False

    @property
    def state(self) -> State:
        """Whether it is there; "absent": it is not, and is not required."""
        return "ok" if not self.install else "missing" if self.required else "absent"

    def as_json(self) -> dict[str, Any]:
        """Return the item as plain values."""
        there = None if self.install and not self.found else self.found
        return {**asdict(self), "version": there, "purpose": self.needed, "state": self.state}


required = functools.partial(Item, required=True)
"""An item that the board can't be used without."""


def of_board(board: Board, template: str = "") -> list[Item]:
    """Return a board's requirements with a template (empty: its first): to build, to connect, to compare its outputs.

    Raises:
        UsageError: the template is not one of the board's.
    """
    name = project.choose(board, template, {})[0].name if template or board.templates else ""
    items = to_build(name, board) if name else []
    emulated = board.emulator is not None
    if board.emulator is not None:
        items.append(toolchain(board.emulator.program, required=True))
    if board.usb is not None or board.flash:
        tools = flash_tools(board, name)
        used = [runner for runner in flash.runners_of(board, name) if any(runner in tool.needed for tool in tools)]
        cabled = [*tools, *connection(board, used[:1])]
        items += [replace(item, required=False) for item in cabled] if emulated else cabled
    return [*dict.fromkeys(items), *references()]


def to_build(template: str, board: Board | None = None) -> list[Item]:
    """Return the requirements for building a template's projects, for a board or for any.

    Raises:
        UsageError: there is no such template.
    """
    builder = project.load(template).builder
    if builder == "west":
        return of_zephyr(board)
    if builder == "arduino":
        return sketch(board)
    names = [*BUILDERS[builder].needs, board.toolchain if board is not None else ""]
    return [toolchain(name, required=True) for name in dict.fromkeys(names) if name]


def programs_of(board: Board) -> list[Item]:
    """Return the programs that build for a board with its first template, and emulate it."""
    emulator = [toolchain(board.emulator.program, required=True)] if board.emulator else []
    return [*to_build(next(iter(board.templates)), board), *emulator]


def flash_tool(name: str, board: Board) -> list[Item]:
    """Return the program of a flash runner, and the program that it runs in turn; none for a user's own command."""
    if name not in flash.all_runners():
        return []
    items = [runner(name), inner_runner(board, name)]
    return [replace(item, required=True) for item in items if item is not None]


def overview() -> list[Item]:
    """Return every program that mtool knows; only this computer's compiler is required."""
    items = [toolchain(name, required=name == _HOST) for name in toolchains.load_all()]
    tools = [item for name in flash.all_runners() if (item := runner(name)) is not None]
    return [*items, *references(), *tools]


def runnable(items: Sequence[Item]) -> list[str]:
    """Return the boards that can be built and emulated here with the programs of `overview`, without a framework."""
    ready = {item.name for item in items if item.state == "ok"}
    result = []
    for board in boards.load_all().values():
        builder = BUILDERS.get(project.load(next(iter(board.templates))).builder) if board.templates else None
        program = board.emulator.program if board.emulator and not board.emulator.is_the_firmware else ""
        if builder is None or (board.memories and not program):  # a board on a cable, not this computer
            continue
        names = {*builder.needs, board.toolchain, program}
        if names - {""} <= ready:
            result.append(board.name)
    return result


def missing(items: Sequence[Item]) -> list[Item]:
    """Return the items that are required and missing."""
    return [item for item in items if item.state == "missing"]


# Programs and packages: compilers, emulators, flash tools, references.


_CORE_TIMEOUT_S = 30.0


def toolchain(name: str, *, required: bool) -> Item:
    """Return the item of a toolchain of mtool.device.build.toolchains, or of any other program."""
    record = toolchains.load_all().get(
        name, Toolchain(name, "its programs", (name,), f"install {name}, and put it on PATH")
    )
    result = toolchains.check(record)
    lacks = f"without {' and '.join(result.missing)}" if result.missing and result.version else ""
    there = " ".join(filter(None, [result.version, lacks]))
    return Item(name, there, record.purpose, record.install if result.missing else "", required)


def references() -> list[Item]:
    """Return the packages that outputs are compared with."""
    rows = (
        ("onnxruntime", "onnxruntime", "mtool verify without a golden file", "verify"),
        ("LiteRT", "ai-edge-litert", "mtool verify of a .tflite file", "litert"),
    )
    items = []
    for name, package, needed, extra in rows:
        version = distribution.version_of(package)
        items.append(Item(name, version, needed, "" if version else distribution.install(extra)))
    return items


def runner(name: str) -> Item | None:
    """Return a flash tool; None: it has no program of its own."""
    tool = flash.all_runners()[name]
    program, version, install = tool.program(), "", tool.install
    if not program:
        return None
    if shutil.which(program):
        try:
            version, install = ".".join(map(str, tool.probe_version())) or "there", ""
        except FlashError as wrong:
            version = wrong.what.removeprefix(f"{program} is ")
    return Item(Path(program).name, version, f"mtool flash --runner {name}", install)


def flash_tools(board: Board, template: str) -> list[Item]:
    """Return the tools that flash a board. One is required: the first that is installed, else the first."""
    items = []
    for name in flash.runners_of(board, template):
        item, inner = runner(name), inner_runner(board, name)
        if item is not None and not item.install and inner is not None and inner.install:
            item = replace(inner, name=f"{inner.name} for {item.name}", needed=item.needed)
        items += [item] if item is not None else []
    return _one_of(items)


def _one_of(items: Sequence[Item]) -> list[Item]:
    """Return the items with one of them required: the first that is installed, else the first."""
    chosen = next((number for number, item in enumerate(items) if not item.install), 0)
    return [replace(item, required=number == chosen) for number, item in enumerate(items)]


def inner_runner(board: Board, name: str) -> Item | None:
    """Return the tool that a framework's runner uses in turn (west: {runner: openocd})."""
    inner = str(board.flash.get(name, {}).get("runner", ""))
    return runner(inner) if name != inner and inner in flash.all_runners() else None


def sketch(board: Board | None) -> list[Item]:
    """Return the requirements for building an Arduino sketch for a board: one of the tools, with its own needs.

    Without a board, all tools that can build for some board.
    """
    port = board.port if board is not None else {"platformio": "", "core": "avr"}
    can = {"arduino-cli": True, "platformio": "platformio" in port, "cmake": port.get("core") == "avr"}
    items = []
    for name in (name for name, able in can.items() if able):
        tool = TOOLS[name]
        path = shutil.which(tool.program)
        item = Item(name, "there" if path else "", "Arduino sketches", "" if path else tool.install)
        if board is not None and path and name == "arduino-cli" and (core := _missing_core(board)):
            item = Item(name, f"without the core {core}", item.needed, f"arduino-cli core install {core}")
        avr = board.toolchain if board is not None else "avr-gcc"
        if path and name == "cmake" and (compiler := toolchain(avr, required=False)).install:
            item = Item(name, f"without {avr}", item.needed, compiler.install)
        items.append(item)
    return _one_of(items)


def _missing_core(board: Board) -> str:
    """Return a board's core if arduino-cli has not installed it; "": it is installed, or unknown."""
    from mtool.base import proc

    core = ":".join(board.templates.get("arduino", "").split(":")[:2])
    try:
        argv = [TOOLS["arduino-cli"].program, "core", "list"]
        done = proc.run(argv, what="the list of cores", timeout_s=_CORE_TIMEOUT_S, check=False)
    except MtoolError:
        return ""
    return core if done.returncode == 0 and core and core not in done.output.split() else ""


# A board on a cable: whether it is attached, whether this user may use its port and its probe, and advice for WSL.


_GROUPS = ("dialout", "uucp")  # of serial ports: Debian and Fedora, Arch
RULES = ("/etc/udev/rules.d", "/run/udev/rules.d", "/usr/lib/udev/rules.d", "/lib/udev/rules.d")
_MOST_BYTES = 1 << 20  # of a file of rules


def connection(board: Board, runners: list[str]) -> list[Item]:
    """Return the requirements of the connection to a board; `runners` are the flash tools used for it."""
    rows = []
    devices = ports.matching(board, ports.attached())
    ids = ", ".join(board.usb.ids) if board.usb else ""
    if is_wsl():
        rows.append(Item("WSL", platform.release(), "USB devices of Windows", "" if devices else no_device_hint()))
    listed = "; ".join(map(str, devices))
    rows.append(Item("the board", listed, f"USB {ids}" if ids else "a serial port", "" if listed else no_device_hint()))
    if sys.platform != "linux":
        return rows
    rows.append(_serial(devices[0].port if devices else ""))
    if any(all_runners()[name].selects == "probe" or name == "west" for name in runners) and ids:
        rows.append(_probe(board))
    return rows


def _serial(port: str) -> Item:
    purpose = f"{port or 'serial ports'}: read and write permission"
    if system.user() == 0:
        return required("serial port", "you are root", purpose)
    if port and os.access(port, os.R_OK | os.W_OK):
        return required("serial port", f"{port} is accessible", purpose)
    mine, existing = groups()
    member = next((group for group in _GROUPS if group in mine), "")
    group = next((group for group in _GROUPS if group in existing), _GROUPS[0])
    if member and not port:
        return required("serial port", f"you are in the group {member}", purpose)
    install = f"sudo usermod -aG {group} {getpass.getuser()}, then log out and in again"
    return required("serial port", f"you are not in the group {group}", purpose, install)


def groups() -> tuple[set[str], set[str]]:
    """Return the names of this user's groups, and those of all groups."""
    import grp

    names = {group.gr_gid: group.gr_name for group in grp.getgrall()}
    return {names[number] for number in {*os.getgroups(), os.getegid()} if number in names}, {*names.values()}


def _probe(board: Board) -> Item:
    """Return whether udev rules give users access to the probe's USB device."""
    assert board.usb is not None
    vendors = {usb_id.partition(":")[0] for usb_id in board.usb.ids}
    purpose = f"a rule for USB vendor {' or '.join(sorted(vendors))}"
    if system.user() == 0:
        return required("udev", "you are root", purpose)
    for folder in map(Path, RULES):
        for file in sorted(folder.glob("*.rules")):
            text = _text(file)
            if any(f'"{vendor}"' in text and "idvendor" in text for vendor in vendors):
                return required("udev", str(file), purpose)
    return required("udev", "", purpose, permission_hint(board, ""))


def _text(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            return opened.read(_MOST_BYTES).decode(errors="replace").lower()
    except OSError:
        return ""


# What a Zephyr build needs besides west: the tree and its version, the vendor's modules, a compiler, a C library.


_OLDEST = (3, 7)
_OLDEST_DTC = (1, 4, 6)
_SCRIPTS = ("elftools", "yaml", "pykwalify", "packaging", "anytree", "jsonschema", "intelhex")
_SDK = "west sdk install"
_WORKSPACE = (
    "west init ~/zephyrproject && cd ~/zephyrproject && west update; then: export ZEPHYR_BASE=~/zephyrproject/zephyr"
)
_SDK_FOLDERS = (  # by the beginning of a board's cpu
    ("cortex-", "arm-zephyr-eabi"),
    ("rv64", "riscv64-zephyr-elf"),
    ("rv32", "riscv64-zephyr-elf"),
    ("xtensa", "xtensa-"),
    ("i686", "x86_64-zephyr-elf"),
)


def of_zephyr(board: Board | None) -> list[Item]:
    """Return the requirements for building a board's Zephyr project; without a board, those of any."""
    items = [toolchain("cmake", required=True), *_west(), _dtc()]
    tree = zephyr.find()
    if tree is None:
        tree_named = os.environ.get("ZEPHYR_BASE", "")
        problem = f"ZEPHYR_BASE is {tree_named}, which is not a Zephyr tree" if tree_named else ""
        items.append(required("Zephyr tree", problem, "Zephyr 3.7 or newer", _WORKSPACE))
        return [*items, _compiler(board)] if board is not None else items
    version = zephyr.version(tree)
    is_old = tuple(map(int, re.findall(r"\d+", version)[:2])) < _OLDEST
    update = "git -C $ZEPHYR_BASE checkout v4.1.0 && west update" if is_old else ""
    items.append(required("Zephyr tree", f"{version} in {tree}", "Zephyr 3.7 or newer", update))
    workspace = zephyr.workspace(tree)  # around the working folder or the tree: west takes its command `build` there
    init = f"cd {shlex.quote(str(tree.parent))} && west init -l {shlex.quote(tree.name)} && west update"
    items.append(required("west workspace", str(workspace or ""), "west build", "" if workspace else init))
    return [*items, *_modules(board, tree), _compiler(board)] if board is not None else items


def _west() -> list[Item]:
    from mtool.device.build import west

    program = west.program()
    install = toolchains.load_all()["west"].install.partition(" && ")[0]
    path = shutil.which(program)
    status = _version_of([program, "--version"]) if path else ""
    rows = [required("west", status, "Zephyr projects", "" if path else install)]
    lacking = [name for name in _SCRIPTS if importlib.util.find_spec(name) is None]
    if path and Path(program).is_absolute():  # it runs with this Python
        status = f"without {', '.join(lacking)}" if lacking else "there"
        rows.append(required("Zephyr's scripts", status, "Python packages of Zephyr", install if lacking else ""))
    return rows


def _dtc() -> Item:
    if shutil.which("dtc") is None:
        return required("dtc", "", "devicetrees", "sudo apt-get install device-tree-compiler")
    version = _version_of(["dtc", "--version"])
    is_old = bool(version) and tuple(map(int, version.split(".")[:3])) < _OLDEST_DTC
    newer = "install dtc 1.4.6 or newer" if is_old else ""
    return required("dtc", version or "there", "devicetrees", newer)


def _modules(board: Board, tree: Path) -> list[Item]:
    """Return the modules with the vendor's code: the chip's, and CMSIS for a Cortex-M."""
    name = board.templates.get("zephyr", "")
    hal = zephyr.hal_of(tree, name)
    paths = _paths_of_modules(tree)
    rows = []
    for needed, any_of in ((f"the chip of {name}", [hal]), ("Cortex-M cores", ["cmsis", "cmsis_6"])):
        names = [module for module in any_of if module and (module in paths or module == hal)]
        if not names or (needed.startswith("Cortex") and not board.cpu.startswith("cortex-m")):
            continue
        present = [module for module in names if _is_there(module, paths)]
        install = "" if present else f"in the west workspace: west update {' '.join(names)}"
        rows.append(required(" or ".join(names), ", ".join(present) and "there", needed, install))
    return rows


def _paths_of_modules(tree: Path) -> dict[str, Path]:
    try:
        read: Any = resources.read_yaml(tree / "west.yml")
        projects = read["manifest"]["projects"]
        return {str(project["name"]): tree.parent / str(project.get("path", project["name"])) for project in projects}
    except (OSError, yaml.YAMLError, TypeError, KeyError, AttributeError):
        return {}


def _is_there(module: str, paths: dict[str, Path]) -> bool:
    if module in paths and any(paths[module].glob("*")):
        return True
    folders = ";".join(os.environ.get(name, "") for name in ("ZEPHYR_MODULES", "EXTRA_ZEPHYR_MODULES"))
    names = {module, module.removeprefix("hal_")}
    return any(Path(path).name in names and Path(path).is_dir() for path in folders.split(";") if path)


def _compiler(board: Board) -> Item:
    """Return the compiler for a board: the Zephyr SDK, the one named in the environment, or the board's own."""
    purpose = f"programs for {board.cpu}"
    variant = os.environ.get("ZEPHYR_TOOLCHAIN_VARIANT", "")
    if variant not in ("", "zephyr"):
        key = f"{variant.upper()}_TOOLCHAIN_PATH"
        path = os.environ.get(key, "")
        is_wrong = variant == "gnuarmemb" and not Path(path, "bin").is_dir()
        fix = f"export {key}=FOLDER, the one with bin/ in it; or unset ZEPHYR_TOOLCHAIN_VARIANT" if is_wrong else ""
        return required("compiler", f"{variant}, from ZEPHYR_TOOLCHAIN_VARIANT", purpose, fix)
    sdk = _sdk()
    folder = next((folder for begin, folder in _SDK_FOLDERS if board.cpu.startswith(begin)), "")
    if sdk is not None and (not folder or any(sdk.glob(f"{folder}*")) or any(sdk.glob(f"gnu/{folder}*"))):
        return required("compiler", f"the Zephyr SDK in {sdk}", purpose)
    if sdk is not None:
        return required("compiler", f"the Zephyr SDK in {sdk}, without {folder}", purpose, f"{_SDK} -t {folder}")
    if board.toolchain not in zephyr.VARIANTS:
        alternative = f", or {board.toolchain}" if board.toolchain else ""
        return required("compiler", "", f"{purpose}: the Zephyr SDK{alternative}", _SDK)
    own_item = toolchain(board.toolchain, required=True)
    if own_item.install or board.toolchain == "cc":
        return own_item
    library = output_of([board.toolchain, "-print-file-name=picolibc.specs"])
    package = board.toolchain.removesuffix("-gcc")
    if Path(library).is_absolute():
        return required("compiler", f"{board.toolchain} {own_item.found} with picolibc", purpose)
    lacking = f"{board.toolchain} {own_item.found}, without picolibc"
    return required("compiler", lacking, purpose, f"sudo apt-get install picolibc-{package}; or: {_SDK}")


def _sdk() -> Path | None:
    """Return the folder of a Zephyr SDK: the one named in the environment, else one registered with CMake."""
    named = os.environ.get("ZEPHYR_SDK_INSTALL_DIR", "")
    if named:
        return Path(named) if Path(named).is_dir() else None
    for file in sorted((Path.home() / ".cmake" / "packages" / "Zephyr-sdk").glob("*")):
        folder = Path(file.read_text(errors="replace").strip())
        top = folder.parent if folder.name == "cmake" else folder
        if top.is_dir():
            return top
    return None


def _version_of(argv: list[str]) -> str:
    match = re.search(r"\d+(?:\.\d+)+", output_of(argv))
    return match[0] if match else ""


def output_of(argv: list[str]) -> str:
    """Return a program's output, stripped; "" if it fails."""
    from mtool.base import proc

    try:
        return proc.run(argv, what=f"{argv[0]}'s version", timeout_s=20.0).output.strip()
    except MtoolError:
        return ""
