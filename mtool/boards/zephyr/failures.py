"""Known failures of Zephyr's configure run or build: what is missing, and the command that installs it."""

import os
import re
import shlex
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from mtool.base import distribution, spelling
from mtool.base.errors import BoardError, BuildError, MtoolError
from mtool.boards import zephyr

_SDK = "Zephyr's SDK: west sdk install"
_MOST = 12  # targets or lines in a message
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
_PROJECTS = re.compile(r"^ *CMake Error at CMakeLists\.txt:\d+ \(message\):\n((?: +\S.*\n)+)", re.MULTILINE)
_NO_WORKSPACE = re.compile(r'west: unknown command "build".*')
_NO_PACKAGE = re.compile(r"ModuleNotFoundError: No module named '([^']+)'")
_BLOBS = re.compile(r"west blobs fetch (\w+)")
_NO_32_BITS = re.compile(
    r"bits/(?:libc-header-start|wordsize)\.h|gnu/stubs-32\.h|sys/cdefs\.h|skipping incompatible .*libgcc"
)


def explain(
    output: str, tree: Path, board: str, modules: Collection[str] | None, compiler: str = ""
) -> MtoolError | None:
    """Return the error that explains the output; None: the cause is unknown.

    Args:
        output: what CMake or Ninja printed.
        tree: the Zephyr tree.
        board: Zephyr's name of the board, with its qualifiers.
        modules: the modules that the configure run found; None: unknown.
        compiler: the compiler that the board needs ("arm-none-eabi-gcc"), if known.
    """
    return next(filter(None, _causes(output, tree, board, modules, compiler)), None)


def _causes(
    output: str, tree: Path, board: str, modules: Collection[str] | None, compiler: str
) -> Iterator[MtoolError | None]:
    """Yield the possible causes, the most certain first."""
    gcc, roots = compiler or "the compiler", zephyr.roots().get("BOARD_ROOT", [])
    if match := _NO_WORKSPACE.search(output):
        yield BuildError(
            f"the Zephyr tree {tree} is not in a west workspace, which west build requires",
            details=[match[0]],
            hint=f"cd {shlex.quote(str(tree.parent))} && west init -l {shlex.quote(tree.name)} && west update",
        )
    if match := _PROJECTS.search(output):  # of the template's own CMakeLists.txt
        yield BuildError(" ".join(match[1].split()))
    if match := _NO_PACKAGE.search(output):
        yield BuildError(
            f"Zephyr's scripts need the Python package {match[1]}",
            details=[match[0]],
            hint=f"in the environment where they run: {distribution.install('zephyr')}",
        )
    yield _no_board(output, board, tree, roots)
    if match := _NO_TOOLCHAIN.search(output):
        variant = os.environ.get("ZEPHYR_TOOLCHAIN_VARIANT", "")
        other = f"install {compiler}" if compiler else ""
        ways = [f"unset ZEPHYR_TOOLCHAIN_VARIANT, which is {variant}" if variant else other, f"install {_SDK}"]
        details = [" ".join(match[0].split())]
        yield BuildError(f"no compiler for {board}", details=details, hint="; or ".join(filter(None, ways)))
    if match := _BLOBS.search(output):
        yield BuildError(
            f"{board} needs binary blobs of {match[1]}, which are missing",
            hint=f"in the west workspace: west blobs fetch {match[1]}",
        )
    yield _no_module(output, tree, board, modules, roots)
    if match := _NO_LIBC.search(output):
        yield BuildError(
            f"{gcc} has no C library that Zephyr can use; picolibc is missing",
            details=[_line_of(output, match)],
            hint=f"sudo apt-get install picolibc-{compiler.removesuffix('-gcc') or 'arm-none-eabi'}; or install {_SDK}",
        )
    if match := _NO_32_BITS.search(output):
        yield BuildError(
            f"{board} needs 32-bit libraries, which this computer's compiler does not have",
            details=[_line_of(output, match)],
            hint="sudo apt-get install gcc-multilib; or use the 64-bit board: --board native_sim",
        )
    if match := _WRONG_ARCH.search(output):
        instead = f": mtool then uses {compiler}" if compiler else ""
        yield BuildError(
            f"the toolchain that Zephyr uses can't compile for {board}",
            details=[_line_of(output, match)],
            hint=f"unset ZEPHYR_TOOLCHAIN_VARIANT{instead}; or install {_SDK}",
        )
    if match := _NO_LIBRARIES.search(output):
        yield BuildError(
            f"{gcc} has no libraries for {board}'s core",
            details=[match[0]],
            hint="install Zephyr's SDK, which has them: west sdk install",
        )
    if match := _OUTDATED.search(output):
        yield BuildError(
            f"the workspace's modules do not match the Zephyr tree (found in a build for {board})",
            details=[" ".join(match[0].split()), f"the tree is Zephyr {zephyr.version(tree)}"],
            hint="update the modules to the tree's versions: west update",
        )


def _no_board(output: str, board: str, tree: Path, roots: list[Path]) -> MtoolError | None:
    targets = _QUALIFIERS.search(output)
    if targets:
        valid = targets[2].split()
        what = f"Zephyr's board {board} needs {'another' if '/' in board else 'a'} qualifier"
        details = ["available: " + ", ".join(valid[:_MOST])]
        return BoardError(what, details=details, hint=f"choose one: --board zephyr:{valid[0]}" if valid else "")
    if _NO_BOARD.search(output) and not zephyr.knows(tree, board, roots):
        return unknown_board(board, tree, roots)
    return None


def unknown_board(board: str, tree: Path, roots: Iterable[Path]) -> BoardError:
    """Return the error for a board that the tree does not have."""
    near = spelling.near(re.split("[/@]", board)[0], zephyr.board_names(tree, roots))
    what = f"Zephyr {zephyr.version(tree)} has no board {board}"
    hint = "list its boards: west boards; for boards outside of the tree, set BOARD_ROOT (docs/add-a-board.md)"
    return BoardError(what, details=[f"similar: {', '.join(near)}"] if near else [], hint=hint)


def _no_module(
    output: str, tree: Path, board: str, modules: Collection[str] | None, roots: list[Path]
) -> MtoolError | None:
    missing = _MISSING_FILE.search(output)
    symbol = _MODULE_OF_KCONFIG.search(output)
    variable = _MODULE_VARIABLE.search(output)
    if missing and _CMSIS.search(missing[1]):
        modules_needed = ["cmsis", "cmsis_6"]
    elif symbol or variable or missing:
        modules_needed = [symbol[1] if symbol else zephyr.hal_of(tree, board, roots)]
    else:
        return None
    lacking = [module for module in modules_needed if module and modules is not None and module not in modules]
    if not lacking:
        return None
    evidence = missing or symbol or variable
    assert evidence is not None
    what = f"{board} needs the Zephyr module {' or '.join(lacking)}, which is missing"
    details = [_line_of(output, evidence), f"available: {', '.join(sorted(modules or ())) or 'none'}"]
    return BuildError(what, details=details, hint=f"in the west workspace: west update {' '.join(lacking)}")


def _line_of(output: str, match: re.Match[str]) -> str:
    return (output[: match.start()].rpartition("\n")[2] + output[match.start() :].partition("\n")[0]).strip()
