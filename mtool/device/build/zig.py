"""Build with the Python package ziglang: one call of its C compiler, with the arguments in `<kind>.args`.

Tools: the package ziglang, which holds clang, a linker, and musl's headers and mathematics for the C library.
Overrides: none; the files are the template's: `<kind>.args`, and `libm.txt`, which lists sources of musl's mathematics.
Products: `build/<kind>.elf`.
"""

from collections.abc import Sequence
from pathlib import Path

from mtool.base.errors import UsageError
from mtool.boards import Board
from mtool.device.build import cmake, host, toolchains
from mtool.manifest import Manifest, Project

_TIMEOUT_S = 900.0
_LIST = "libm.txt"
_LIBM = "build/libm.a"


def build(folder: Path, manifest: Manifest, kinds: Sequence[str]) -> None:
    """Build firmware kinds of a project of the builder "zig".

    Raises:
        UsageError: the project's list of sources is missing or invalid.
        BuildError: the compiler or the linker failed.
        FitError: the linker says that a memory overflows.
    """
    board = manifest.in_project.board
    built = [[*argv[3:], *header_options(board)] for argv in commands(manifest.in_project, kinds)]
    for argv in (_libm(folder, board), *built):
        cmake.run([str(toolchains.zig()), *argv], manifest, cwd=folder, timeout_s=_TIMEOUT_S, has_scratch=True)


def commands(project: Project, kinds: Sequence[str]) -> list[list[str]]:
    """Return the commands after musl's mathematics is built, without header folders: the README has all of them."""
    return host.calls(["python", "-m", "ziglang", "cc"], project, kinds, (_LIBM,))


def _libm(folder: Path, board: Board) -> list[str]:
    """Return zig's arguments that build a library from the project's list of musl's mathematics sources."""
    try:
        names = (folder / _LIST).read_text().split()
    except OSError as missing:
        raise UsageError(
            f"{folder / _LIST} can't be read", details=[str(missing)], hint="create the project again"
        ) from None
    wrong = [name for name in names if not name.endswith(".c") or Path(name).name != name]
    if wrong:
        raise UsageError(f"{folder / _LIST} names files that are not sources of musl's mathematics", details=wrong)
    musl = _folder() / "musl"
    includes = [f"-I{musl / inner}" for inner in ("src/include", "src/internal", "arch/generic")]
    flags = ["-cflags", "-w", "-ffunction-sections", "-fomit-frame-pointer", "-ffp-contract=off", "--"]
    sources = [str(musl / "src" / "math" / name) for name in names]
    options = ["-O", "ReleaseSmall", "-fno-compiler-rt", "-ffunction-sections", "--name", "m", f"-femit-bin={_LIBM}"]
    return ["build-lib", *board.cflags, *options, *includes, *header_options(board), *flags, *sources, "src/libc.zig"]


def header_options(board: Board) -> list[str]:
    """Return the options for the folders of musl's headers."""
    libc, arch = _folder(), "arm" if board.cpu.startswith("cortex-m") else "riscv32"
    folders = (libc / "include" / f"{arch}-linux-musl", libc / "include" / "generic-musl", libc / "musl" / "include")
    return [option for folder in folders for option in ("-isystem", str(folder))]


def _folder() -> Path:
    return toolchains.zig().parent / "lib" / "libc"
