"""What a Zephyr build needs besides west: the tree and its version, the vendor's modules, a compiler, a C library."""

import importlib.util
import os
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import yaml

from mtool.boards import Board, zephyr
from mtool.device.build import toolchains
from mtool.stages.checkup.item import Item, required
from mtool.stages.checkup.programs import toolchain

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


def items(board: Board | None) -> list[Item]:
    """Return what a build of a board's Zephyr project needs; without a board, what that of any does."""
    needed = [toolchain("cmake", required=True), *_west(), _dtc()]
    tree = zephyr.find()
    if tree is None:
        named = os.environ.get("ZEPHYR_BASE", "")
        found = f"ZEPHYR_BASE names {named}, which is none" if named else ""
        needed.append(required("Zephyr tree", found, "Zephyr 3.7 or newer", _WORKSPACE))
        return [*needed, _compiler(board)] if board is not None else needed
    version = zephyr.version(tree)
    is_old = tuple(map(int, re.findall(r"\d+", version)[:2])) < _OLDEST
    update = "git -C $ZEPHYR_BASE checkout v4.1.0 && west update" if is_old else ""
    needed.append(required("Zephyr tree", f"{version} in {tree}", "Zephyr 3.7 or newer", update))
    needed.append(_workspace(tree))
    return [*needed, *_modules(board, tree), _compiler(board)] if board is not None else needed


def _workspace(tree: Path) -> Item:
    """Return the workspace around the working folder or the tree: west takes its command `build` from there."""
    found = zephyr.workspace(tree)
    init = f"cd {shlex.quote(str(tree.parent))} && west init -l {shlex.quote(tree.name)} && west update"
    return required("west workspace", str(found or ""), "west build", "" if found else init)


def _west() -> list[Item]:
    from mtool.device.build import west

    program = west.program()
    install = toolchains.known()["west"].install.partition(" && ")[0]
    there = shutil.which(program)
    found = _version_of([program, "--version"]) if there else ""
    rows = [required("west", found, "Zephyr projects", "" if there else install)]
    lacking = [name for name in _SCRIPTS if importlib.util.find_spec(name) is None]
    if there and Path(program).is_absolute():  # it runs with this Python
        found = f"without {', '.join(lacking)}" if lacking else "there"
        rows.append(required("Zephyr's scripts", found, "Python packages of Zephyr", install if lacking else ""))
    return rows


def _dtc() -> Item:
    if shutil.which("dtc") is None:
        return required("dtc", "", "devicetrees", "sudo apt-get install device-tree-compiler")
    found = _version_of(["dtc", "--version"])
    is_old = bool(found) and tuple(map(int, found.split(".")[:3])) < _OLDEST_DTC
    newer = "install dtc 1.4.6 or newer" if is_old else ""
    return required("dtc", found or "there", "devicetrees", newer)


def _modules(board: Board, tree: Path) -> list[Item]:
    """Return the modules with the vendor's code: that of the chip, and CMSIS of a Cortex-M."""
    name = board.templates.get("zephyr", "")
    hal = zephyr.hal_of(tree, name)
    paths = _paths_of_modules(tree)
    rows = []
    for needed, any_of in ((f"the chip of {name}", [hal]), ("Cortex-M cores", ["cmsis", "cmsis_6"])):
        wanted = [one for one in any_of if one and (one in paths or one == hal)]
        if not wanted or (needed.startswith("Cortex") and not board.cpu.startswith("cortex-m")):
            continue
        there = [one for one in wanted if _is_there(one, paths)]
        install = "" if there else f"in the west workspace: west update {' '.join(wanted)}"
        rows.append(required(" or ".join(wanted), ", ".join(there) and "there", needed, install))
    return rows


def _paths_of_modules(tree: Path) -> dict[str, Path]:
    try:
        read: Any = yaml.safe_load((tree / "west.yml").read_bytes())
        projects = read["manifest"]["projects"]
        return {str(one["name"]): tree.parent / str(one.get("path", one["name"])) for one in projects}
    except (OSError, yaml.YAMLError, TypeError, KeyError, AttributeError):
        return {}


def _is_there(module: str, paths: dict[str, Path]) -> bool:
    if module in paths and any(paths[module].glob("*")):
        return True
    given = ";".join(os.environ.get(name, "") for name in ("ZEPHYR_MODULES", "EXTRA_ZEPHYR_MODULES"))
    names = {module, module.removeprefix("hal_")}
    return any(Path(path).name in names and Path(path).is_dir() for path in given.split(";") if path)


def _compiler(board: Board) -> Item:
    """Return what compiles for a board: Zephyr's SDK, what the environment names, or the board's own compiler."""
    needed = f"programs for {board.cpu}"
    variant = os.environ.get("ZEPHYR_TOOLCHAIN_VARIANT", "")
    if variant not in ("", "zephyr"):
        named = f"{variant.upper()}_TOOLCHAIN_PATH"
        path = os.environ.get(named, "")
        is_wrong = variant == "gnuarmemb" and not Path(path, "bin").is_dir()
        fix = f"export {named}=FOLDER, the one with bin/ in it; or unset ZEPHYR_TOOLCHAIN_VARIANT" if is_wrong else ""
        return required("compiler", f"{variant}, by ZEPHYR_TOOLCHAIN_VARIANT", needed, fix)
    sdk = _sdk()
    folder = next((folder for begin, folder in _SDK_FOLDERS if board.cpu.startswith(begin)), "")
    if sdk is not None and (not folder or any(sdk.glob(f"{folder}*")) or any(sdk.glob(f"gnu/{folder}*"))):
        return required("compiler", f"the Zephyr SDK in {sdk}", needed)
    if sdk is not None:
        return required("compiler", f"the Zephyr SDK in {sdk}, without {folder}", needed, f"{_SDK} -t {folder}")
    if board.toolchain not in zephyr.VARIANTS:
        own = f", or {board.toolchain}" if board.toolchain else ""
        return required("compiler", "", f"{needed}: the Zephyr SDK{own}", _SDK)
    own_item = toolchain(board.toolchain, required=True)
    if own_item.install or board.toolchain == "cc":
        return own_item
    library = output_of([board.toolchain, "-print-file-name=picolibc.specs"])
    package = board.toolchain.removesuffix("-gcc")
    if Path(library).is_absolute():
        return required("compiler", f"{board.toolchain} {own_item.found} with picolibc", needed)
    lacking = f"{board.toolchain} {own_item.found}, without picolibc"
    return required("compiler", lacking, needed, f"sudo apt-get install picolibc-{package}; or: {_SDK}")


def _sdk() -> Path | None:
    """Return the folder of a Zephyr SDK: what is named, else what has registered itself with CMake."""
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
    found = re.search(r"\d+(?:\.\d+)+", output_of(argv))
    return found[0] if found else ""


def output_of(argv: list[str]) -> str:
    """Return what a program prints, without the spaces around it; "" if it fails."""
    from mtool.base import proc
    from mtool.base.errors import MtoolError

    try:
        return proc.run(argv, what=f"{argv[0]}'s version", timeout_s=20.0).output.strip()
    except MtoolError:
        return ""
