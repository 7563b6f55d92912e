"""Failures of Zephyr's configure run or build with a known cause: what is missing, and the command that brings it."""

import os
import re
import shlex
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from mtool.base import spelling
from mtool.base.errors import BoardError, BuildError, MtoolError
from mtool.boards import zephyr

_SDK = "Zephyr's SDK: west sdk install"
_MOST = 12  # targets, or lines, that a message shows
_MISSING_FILE = re.compile(r"fatal error: (\S+): No such file or directory")
_MODULE_OF_KCONFIG = re.compile(r"modules/(hal_\w+)/")
_MODULE_VARIABLE = re.compile(r"\bZEPHYR_(HAL_\w+|CMSIS\w*)_MODULE(?:_DIR)?\b")
_QUALIFIERS = re.compile(r"Valid board targets for (\S+) are:\s*\n(.*?)(?:\nCall Stack|\n--|\Z)", re.DOTALL)
_NO_BOARD = re.compile(r"No board named '([^']*)' found|Invalid BOARD[;:]? *(?:see above)?", re.IGNORECASE)
_CMSIS = re.compile(r"(cmsis_core\w*|core_c[mr]\w*|cmsis_gcc|cmsis_compiler)\.h$")
_NO_LIBC = re.compile(
    r"cannot read spec file '?‘?picolibc\.specs"
    r"|libc/newlib/libc-hooks\.c:\d+:\d+: \w+: .*_LOCK_T"  # newlib without the locks that Zephyr's own code makes
    r"|undefined reference to `?_{0,2}retarget_lock_\w+'?"
    r"|warning: (?:PICOLIBC|NEWLIB_LIBC|FULL_LIBC_SUPPORTED|REQUIRES_FULL_LIBC)\b.* direct dependencies 0"
)
_WRONG_ARCH = re.compile(
    r"error: unrecognized (?:argument in (?:command[- ]line )?option|-m\w+ target:|command[- ]line option) *['‘]?\S+"
    r"|error: (?:unknown|bad) (?:value|target CPU|argument) .*-m(?:cpu|arch|abi|tune)\b.*"
    r"|unsupported argument '\S+' to option '-m(?:cpu|arch|abi)"
)
_NO_TOOLCHAIN = re.compile(
    r'Could not find a package configuration file provided by "Zephyr-sdk"'
    r"|Nothing found at \w+_TOOLCHAIN_PATH: .*|Assertion failed: \w+ is not set"
    r"|could not find requested file:\s+\S+/cmake/toolchain/\S+"
)
_OUTDATED = re.compile(
    r"devicetree error: .*undefined node label.*|ERROR: Malformed \"build\" section in file:\s+\S+/zephyr/module\.yml"
)
_NO_LIBRARIES = re.compile(
    r"\S*libgcc\.a\S*: (?:ABI is incompatible with that of the selected emulation|file class \w+ incompatible with \w+|"
    r"can't link \S+ modules with soft-float modules)"
)
_NO_WORKSPACE = re.compile(r'west: unknown command "build".*')
_BLOBS = re.compile(r"west blobs fetch (\w+)")
_NO_32_BITS = re.compile(
    r"bits/(?:libc-header-start|wordsize)\.h|gnu/stubs-32\.h|sys/cdefs\.h|skipping incompatible .*libgcc"
)


def explain(
    output: str, tree: Path, board: str, modules: Collection[str] | None, compiler: str = ""
) -> MtoolError | None:
    """Return the error that the output stands for; None: its cause is none of these.

    Args:
        output: what CMake or Ninja printed.
        tree: the Zephyr tree.
        board: Zephyr's name of the board, with its qualifiers.
        modules: the modules that the configure run found; None: not known.
        compiler: the compiler that the board wants ("arm-none-eabi-gcc"), where that is known.
    """
    return next(filter(None, _causes(output, tree, board, modules, compiler)), None)


def _causes(
    output: str, tree: Path, board: str, modules: Collection[str] | None, compiler: str
) -> Iterator[MtoolError | None]:
    """Yield what the output may stand for, the surest first."""
    gcc, roots = compiler or "the compiler", zephyr.roots().get("BOARD_ROOT", [])
    if found := _NO_WORKSPACE.search(output):
        yield BuildError(
            f"the Zephyr tree {tree} lies in no west workspace, and west has no command build without one",
            details=[found[0]],
            hint=f"cd {shlex.quote(str(tree.parent))} && west init -l {shlex.quote(tree.name)} && west update",
        )
    yield _no_board(output, board, tree, roots)
    if found := _NO_TOOLCHAIN.search(output):
        variant = os.environ.get("ZEPHYR_TOOLCHAIN_VARIANT", "")
        other = f"install {compiler}" if compiler else ""
        ways = [f"unset ZEPHYR_TOOLCHAIN_VARIANT, which says {variant}" if variant else other, f"take {_SDK}"]
        details = [" ".join(found[0].split())]
        yield BuildError(f"there is no compiler for {board}", details=details, hint="; or ".join(filter(None, ways)))
    if found := _BLOBS.search(output):
        yield BuildError(
            f"binary files of {found[1]} are missing, which {board} needs",
            hint=f"in the west workspace: west blobs fetch {found[1]}",
        )
    yield _no_module(output, tree, board, modules, roots)
    if found := _NO_LIBC.search(output):
        yield BuildError(
            f"{gcc} has no C library that Zephyr can use: picolibc is missing",
            details=[_line_of(output, found)],
            hint=f"sudo apt-get install picolibc-{compiler.removesuffix('-gcc') or 'arm-none-eabi'}; or take {_SDK}",
        )
    if found := _NO_32_BITS.search(output):
        yield BuildError(
            f"this computer's compiler has no libraries of 32 bits, which {board} needs",
            details=[_line_of(output, found)],
            hint="sudo apt-get install gcc-multilib; or take the 64-bit one: --board native_sim",
        )
    if found := _WRONG_ARCH.search(output):
        instead = f": mtool then takes {compiler}" if compiler else ""
        yield BuildError(
            f"the toolchain that Zephyr was given does not compile for {board}",
            details=[_line_of(output, found)],
            hint=f"unset ZEPHYR_TOOLCHAIN_VARIANT{instead}; or take {_SDK}",
        )
    if found := _NO_LIBRARIES.search(output):
        yield BuildError(
            f"{gcc} has no libraries for the core of {board} as Zephyr names it",
            details=[found[0]],
            hint="take Zephyr's SDK, which has them: west sdk install",
        )
    if found := _OUTDATED.search(output):
        yield BuildError(
            f"the modules of this workspace do not fit the Zephyr tree, as a build for {board} shows",
            details=[" ".join(found[0].split()), f"the tree is Zephyr {zephyr.version(tree)}"],
            hint="bring the modules to the tree's own versions: west update",
        )


def _no_board(output: str, board: str, tree: Path, roots: list[Path]) -> MtoolError | None:
    targets = _QUALIFIERS.search(output)
    if targets:
        valid = targets[2].split()
        what = f"Zephyr's board {board} needs {'another' if '/' in board else 'a'} qualifier"
        details = ["its targets: " + ", ".join(valid[:_MOST])]
        return BoardError(what, details=details, hint=f"say which: --board zephyr:{valid[0]}" if valid else "")
    if _NO_BOARD.search(output) and not zephyr.knows(tree, board, roots):
        return unknown_board(board, tree, roots)
    return None


def unknown_board(board: str, tree: Path, roots: Iterable[Path]) -> BoardError:
    """Return the error of a board that a tree does not have."""
    near = spelling.near(re.split("[/@]", board)[0], zephyr.board_names(tree, roots))
    what = f"Zephyr {zephyr.version(tree)} has no board {board}"
    hint = "see its list: west boards; boards outside of the tree: set BOARD_ROOT (docs/add-a-board.md)"
    return BoardError(what, details=[f"near: {', '.join(near)}"] if near else [], hint=hint)


def _no_module(
    output: str, tree: Path, board: str, modules: Collection[str] | None, roots: list[Path]
) -> MtoolError | None:
    missing = _MISSING_FILE.search(output)
    named = _MODULE_OF_KCONFIG.search(output)
    variable = _MODULE_VARIABLE.search(output)
    if missing and _CMSIS.search(missing[1]):
        wanted = ["cmsis", "cmsis_6"]
    elif named or variable or missing:
        wanted = [named[1] if named else zephyr.hal_of(tree, board, roots)]
    else:
        return None
    lacking = [module for module in wanted if module and modules is not None and module not in modules]
    if not lacking:
        return None
    evidence = missing or named or variable
    assert evidence is not None
    what = f"Zephyr's module {' or '.join(lacking)} is missing, which {board} needs"
    details = [_line_of(output, evidence), f"there are: {', '.join(sorted(modules or ())) or 'none'}"]
    return BuildError(what, details=details, hint=f"in the west workspace: west update {' '.join(lacking)}")


def _line_of(output: str, found: re.Match[str]) -> str:
    return (output[: found.start()].rpartition("\n")[2] + output[found.start() :].partition("\n")[0]).strip()
