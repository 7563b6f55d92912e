"""The Zephyr tree: its folder, its version, and what its files say about its boards without running CMake."""

import configparser
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from mtool.base import configuration, proc, resources
from mtool.base.errors import BuildError, UsageError

PREFIX = "zephyr:"
"""Before a board's Zephyr name."""

# HAL modules of vendors whose folder in soc/ has a different name; the others are hal_<vendor>.
_HALS: Mapping[str, str] = {"st": "hal_stm32", "raspberrypi": "hal_rpi_pico", "gd": "hal_gigadevice"}


def find(folder: Path | None = None) -> Path | None:
    """Return the Zephyr tree: ZEPHYR_BASE, else the one in the west workspace around `folder`; or None."""
    variable = os.environ.get("ZEPHYR_BASE", "")
    tree = Path(variable) if variable else _of_workspace((folder or Path.cwd()).resolve())
    return tree if tree is not None and (tree / "VERSION").is_file() else None


def base(folder: Path | None = None) -> Path:
    """Return the Zephyr tree, as `find` does.

    Raises:
        BuildError: there is none, or the folder is not a Zephyr tree.
    """
    tree = find(folder)
    if tree is None:
        variable = os.environ.get("ZEPHYR_BASE", "")
        where = f"ZEPHYR_BASE is {variable}, which has no VERSION file" if variable else ""
        details = [where or f"ZEPHYR_BASE is not set, and {folder or Path.cwd()} is not in a west workspace"]
        hint = "set ZEPHYR_BASE to the zephyr folder of your west workspace; create one with: west init && west update"
        raise BuildError("Zephyr tree not found", details=details, hint=hint)
    return tree


def workspace(tree: Path, folder: Path | None = None) -> Path | None:
    """Return the west workspace that `west build` uses: the one around the folder or the tree; None: there is none.

    Outside of a workspace, west does not have Zephyr's commands.
    """
    starts = ((folder or Path.cwd()).resolve(), tree.resolve())
    above = (folder for start in starts for folder in (start, *start.parents))
    return next((folder for folder in above if (folder / ".west").is_dir()), None)


def version(tree: Path) -> str:
    """Return a tree's version ("4.1.0")."""
    fields = dict(re.findall(r"^(\w+) *= *(\S*)", (tree / "VERSION").read_text(), re.MULTILINE))
    return ".".join(fields.get(key, "0") for key in ("VERSION_MAJOR", "VERSION_MINOR", "PATCHLEVEL"))


def board_names(tree: Path, roots: Iterable[Path] = ()) -> list[str]:
    """Return the names of all boards, without qualifiers; those of additional board roots first."""
    return [str(board["name"]) for file in _board_files(tree, roots) for board in _boards_of(file)]


def knows(tree: Path, name: str, roots: Iterable[Path] = ()) -> bool:
    """Return whether a tree has a board; qualifiers may follow its name ("nrf5340dk/nrf5340/cpuapp")."""
    return board_folder(tree, name, roots) is not None


def board_folder(tree: Path, name: str, roots: Iterable[Path] = ()) -> Path | None:
    """Return the folder with a board's files."""
    return next((folder for folder, _ in _entries_of(tree, name, roots)), None)


def _entries_of(tree: Path, name: str, roots: Iterable[Path]) -> Iterator[tuple[Path, dict[str, Any]]]:
    bare = re.split("[/@]", name)[0]
    if not re.fullmatch(r"\w[\w.+-]*", bare):
        return
    for file in _board_files(tree, roots):
        if bare in file.read_text(errors="replace"):
            yield from ((file.parent, board) for board in _boards_of(file) if board["name"] == bare)


def full_name(tree: Path, name: str, roots: Iterable[Path] = ()) -> str:
    """Return a board's full name; its short name if its files have no other."""
    return next((str(board["full_name"]) for _, board in _entries_of(tree, name, roots) if "full_name" in board), name)


def architecture(folder: Path, name: str) -> str:
    """Return a board's architecture ("arm", "riscv", "posix") according to its files; "": they do not say."""
    files = [_load(file) for file in sorted(folder.glob("*.yaml"))]
    by_identifier = {str(file.get("identifier", "")): str(file.get("arch", "")) for file in files}
    near = [identifier for identifier in by_identifier if identifier.startswith(re.split("[/@]", name)[0])]
    return by_identifier.get(name) or next((by_identifier[identifier] for identifier in [*near, *by_identifier]), "")


def hal_of(tree: Path, name: str, roots: Iterable[Path] = ()) -> str:
    """Return the module with the vendor's code that a board's chip needs ("hal_nordic"); "": unknown."""
    chips = [chip for _, board in _entries_of(tree, name, roots) for chip in board.get("socs", ())]
    socs = {str(chip["name"]) for chip in chips if isinstance(chip, dict) and "name" in chip}
    if len(socs) > 1:
        socs = socs & set(re.split("[/@]", name)) or socs
    for file in sorted((tree / "soc").glob("*/**/soc.yml")):
        if socs & set(re.findall(r"name: *['\"]?([\w.-]+)", file.read_text(errors="replace"))):
            vendor = file.relative_to(tree / "soc").parts[0]
            if not _selects_of_vendor(tree, file.parent):
                return ""
            module = _HALS.get(vendor, f"hal_{vendor}")
            return module if re.search(rf"name: *{module}\s", _manifest(tree)) else ""
    return ""


def _selects_of_vendor(tree: Path, chips: Path) -> bool:
    """Return whether the chips' Kconfig selects a symbol of the vendor's module; some chips need no vendor code."""
    selected = {
        symbol
        for file in chips.rglob("Kconfig*")
        for symbol in re.findall(r"^\s+(?:select|imply) (\w+)", file.read_text(errors="replace"), re.MULTILINE)
    }
    glue = (*(tree / "modules").glob("hal_*/**/Kconfig*"), *(tree / "modules").glob("Kconfig.*"))
    return any(
        not selected.isdisjoint(re.findall(r"^(?:menu)?config (\w+)", file.read_text(errors="replace"), re.MULTILINE))
        for file in glue
        if file.is_file()
    )


def modules_in(build_folder: Path) -> set[str] | None:
    """Return the names of the modules that a configure run used; None: it did not get that far."""
    try:
        text = (build_folder / "zephyr_modules.txt").read_text()
    except OSError:
        return None
    return set(re.findall(r'^"([^"]+)"', text, re.MULTILINE))


def _manifest(tree: Path) -> str:
    file = tree / "west.yml"
    return file.read_text(errors="replace") if file.is_file() else ""


def _board_files(tree: Path, roots: Iterable[Path]) -> Iterator[Path]:
    for root in (*roots, tree):
        yield from sorted((root / "boards").glob("**/board.yml"))


def _boards_of(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the boards that a board.yml describes."""
    read = _load(file)
    listed = read.get("boards", [read.get("board")])
    for board in listed if isinstance(listed, list) else ():
        if isinstance(board, dict) and "name" in board:
            yield board


def _load(file: Path) -> dict[str, Any]:
    try:
        read = resources.read_yaml(file)
    except (OSError, ValueError, yaml.YAMLError, RecursionError):
        return {}
    return read if isinstance(read, dict) else {}


def _of_workspace(folder: Path) -> Path | None:
    for top in (folder, *folder.parents):
        config = top / ".west" / "config"
        if config.is_file():
            read = configparser.ConfigParser()
            try:
                configuration.check_owner(config, config.stat())  # not named by the user, and CMake runs code from it
                read.read(config)
            except (configparser.Error, UnicodeDecodeError, UsageError):
                return None
            return top / read.get("zephyr", "base", fallback="zephyr")
    return None


# Environment variables for Zephyr's CMake code: the tree, a compiler, and board roots outside of the tree.


ROOTS = ("BOARD_ROOT", "SOC_ROOT", "DTS_ROOT", "ARCH_ROOT", "MODULE_EXT_ROOT")
# Zephyr's names for the compilers that it can take from the system, and the variable with a compiler's location:
# {prefix} is the compiler's path without its last word, {folder} the folder above its bin.
VARIANTS: Mapping[str, tuple[str, str, str]] = {
    "arm-none-eabi-gcc": ("gnuarmemb", "GNUARMEMB_TOOLCHAIN_PATH", "{folder}"),
    "riscv64-unknown-elf-gcc": ("cross-compile", "CROSS_COMPILE", "{prefix}"),
    "cc": ("host", "", ""),
}


def roots() -> dict[str, list[Path]]:
    """Return the folders with additional boards, chips and bindings: the environment's, then mtool.toml's.

    Zephyr separates them by semicolons. A relative path is relative to the working folder.
    """
    config = configuration.load()
    result: dict[str, list[Path]] = {}
    for name in ROOTS:
        named = [Path(path) for path in os.environ.get(name, "").split(";") if path]
        paths = [path.absolute() for path in (*named, *getattr(config, name.lower(), ()))]
        if paths:
            result[name] = list(dict.fromkeys(paths))
    return result


def variant_of(compiler: str) -> dict[str, str]:
    """Return the variables that select a system compiler for Zephyr; none if one is chosen already or an SDK exists.

    Raises:
        BuildError: the compiler is not installed.
    """
    if "ZEPHYR_TOOLCHAIN_VARIANT" in os.environ or has_sdk() or compiler not in VARIANTS:
        return {}
    path = Path(proc.find(compiler, hint="run mtool doctor to see how to install it"))
    variant, name, value = VARIANTS[compiler]
    place = value.format(prefix=str(path).removesuffix("gcc"), folder=path.resolve().parents[1])
    return {"ZEPHYR_TOOLCHAIN_VARIANT": variant} | ({name: place} if name else {})


def has_sdk() -> bool:
    """Return whether a Zephyr SDK is named in the environment or registered with CMake."""
    registered = Path.home() / ".cmake" / "packages" / "Zephyr-sdk"
    return "ZEPHYR_SDK_INSTALL_DIR" in os.environ or any(registered.glob("*"))
