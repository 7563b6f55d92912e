"""Build a project folder with its template's builder, unless nothing has changed since the last time."""

import hashlib
import logging
import os
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mtool import manifest
from mtool.base import files, filetree, locks
from mtool.base.errors import BuildError, UsageError
from mtool.base.filetree import FileTree
from mtool.device.build import arduino, cmake, foreign, host, size, toolchains, west, zig
from mtool.device.build.firmware_cache import Kept
from mtool.manifest import Manifest, Project

log = logging.getLogger(__name__)

BUILD_FOLDER = "build"
_MARK = ".mtool"  # a file in it, where mtool made it
_STANDALONE = "standalone"  # the kind that a user's own program is


def board_compiler(folder: Path, project: Project) -> toolchains.Found:
    """Return the compiler that the board's entry names."""
    return toolchains.require(project.board.toolchain)


@dataclass(frozen=True, slots=True)
class Builder:
    """A tool that builds projects.

    Attributes:
        build: takes the project folder, its manifest and firmware kinds, and makes project.firmware[kind] of each.
        commands: takes the project and firmware kinds, and returns what a build in an empty folder runs, in order.
        needs: the toolchains (mtool/device/build/toolchains.py) that it wants besides the compiler.
        compiler: takes the project folder and the project, and returns what compiles it: that decides, with
            the project's files, whether a firmware is up to date.
        whole_framework: each kind of firmware compiles the whole framework, which takes minutes.
    """

    build: Callable[[Path, Manifest, Sequence[str]], None]
    commands: Callable[[Project, Sequence[str]], list[list[str]]]
    needs: tuple[str, ...] = ()
    compiler: Callable[[Path, Project], toolchains.Found] = board_compiler
    whole_framework: bool = False


BUILDERS: Mapping[str, Builder] = {
    "host": Builder(host.build, host.commands),
    "cmake": Builder(cmake.build, cmake.commands, ("cmake",)),
    "arduino": Builder(arduino.build, arduino.commands, (), arduino.compiler),
    "zig": Builder(zig.build, zig.commands),
    "west": Builder(west.build, west.commands, ("cmake",), west.compiler, whole_framework=True),
}


@dataclass(frozen=True, slots=True)
class Built:
    """A built project.

    Attributes:
        manifest: the project's.
        folder: the project's.
        firmware: the file of each kind that was asked for.
        toolchain: the compiler and its version ("arm-none-eabi-gcc 12.2.1").
        seconds: how long it took.
        rebuilt: the kinds that were built, since something had changed, or there was no such firmware.
        restored: the kinds that were taken from the user's cache.
    """

    manifest: Manifest
    folder: Path
    firmware: dict[str, Path]
    toolchain: str
    seconds: float
    rebuilt: tuple[str, ...]
    restored: tuple[str, ...] = ()

    @property
    def up_to_date(self) -> bool:
        """Whether nothing had changed since the last build, so that nothing was done."""
        return not self.rebuilt

    @property
    def how(self) -> str:
        """A few words on what was done."""
        if self.rebuilt:
            return self.toolchain
        return "as built before, from the cache" if self.restored else "up to date"


def build(folder: Path, *, kinds: Sequence[str] = ("host_driven",)) -> Built:
    """Build the firmware of a project.

    A build is skipped where the contents of every file of the project, the compiler (its version, program, library
    and the environment that it reads), the kind and the firmware itself are those of the last build that succeeded.

    Args:
        folder: a project folder, with its mtool.json.
        kinds: the firmware kinds to build, among the template's.

    Raises:
        UsageError: the folder is no project, is half-written, or has no such kind; or another process uses it.
        BuildError: a toolchain is missing, or the build failed.
        FitError: the firmware is larger than a memory of the board.
    """
    with locks.folder(folder):
        return _build(folder, kinds)


def _build(folder: Path, kinds: Sequence[str]) -> Built:
    start = time.monotonic()
    if filetree.interrupted(folder):
        raise UsageError(
            f"{folder} is half-written: mtool was stopped while it wrote",
            hint="write it again, with the mtool command that made it",
        )
    read = manifest.load(folder)
    project = _project_of(read, folder)
    for kind in kinds:
        if kind not in project.firmware:
            raise UsageError(
                f"the template {project.template} has no firmware {kind!r}",
                details=[f"it has: {', '.join(project.firmware)}"],
            )
    _check_folder(folder / BUILD_FOLDER)
    firmware = {kind: manifest.firmware_of(folder, project, kind) for kind in kinds}
    builder = BUILDERS[project.builder]
    compiler = builder.compiler(folder, project)
    key = _key(folder, compiler)
    stale = [kind for kind in kinds if not _is_current(folder, project, kind, key)]
    if project.program and _STANDALONE in kinds and _STANDALONE not in stale:
        stale.append(_STANDALONE)  # whose sources may be anywhere: the builder itself knows what of it is stale
    restored: list[str] = []
    if stale:
        _take_build_folder(folder / BUILD_FOLDER, project)
        for name in builder.needs:
            toolchains.require(name)
        for kind in stale:
            _stamp(folder, kind).unlink(missing_ok=True)
            firmware[kind].unlink(missing_ok=True)  # ninja would keep one that another has put there since
        kept = Kept.of(folder, read, key)
        restored = [kind for kind in stale if kept.restore(kind)]
        for kind in restored:
            files.write(_stamp(folder, kind), _proof(key, firmware[kind]))
        stale = [kind for kind in stale if kind not in restored]
        if stale:
            _run(builder, folder, read, stale)
        for kind in stale:
            files.write(_stamp(folder, kind), _proof(key, firmware[kind]))
            kept.store(kind)
    built = Built(
        manifest=read,
        folder=folder,
        firmware=firmware,
        toolchain=f"{compiler.toolchain.name} {compiler.version}",
        seconds=time.monotonic() - start,
        rebuilt=tuple(stale),
        restored=tuple(restored),
    )
    log.info("build: %.2f s, %s", built.seconds, built.how)
    return built


def _run(builder: Builder, folder: Path, read: Manifest, kinds: Sequence[str]) -> None:
    """Let a builder make firmware, and check that it did."""
    try:
        builder.build(folder, read, kinds)
    except BuildError as failed:
        raise foreign.told(failed, read, folder) from failed
    project = _project_of(read, folder)
    for kind in kinds:
        firmware = manifest.firmware_of(folder, project, kind)
        if not firmware.is_file():
            raise BuildError(
                f"the build of the {kind} firmware made no file", details=[f"expected: {project.firmware[kind]}"]
            )
        size.check(firmware, read)


def builds_whole_framework(builder: str) -> bool:
    """Return whether a builder compiles its whole framework for each kind of firmware, which takes minutes."""
    return BUILDERS[builder].whole_framework


def is_up_to_date(folder: Path, kinds: Sequence[str]) -> bool:
    """Return whether a project's firmware of these kinds is built, and nothing has changed since.

    Raises:
        MtoolError: the folder holds no project, or its compiler is not there.
    """
    project = _project_of(manifest.load(folder), folder)
    key = _key(folder, BUILDERS[project.builder].compiler(folder, project))
    return all(_is_current(folder, project, kind, key) for kind in kinds)


def _check_folder(path: Path) -> None:
    there = "a link" if path.is_symlink() else "a file" if path.exists() and not path.is_dir() else ""
    if there:
        raise UsageError(f"{path} is {there}, not a folder", hint="move it away: a build's files go there")


def _take_build_folder(path: Path, project: Project) -> None:
    """Make the folder of what a build makes, and mark it as mtool's.

    Raises:
        UsageError: there is one that neither mtool nor the project's framework made.
    """
    products = {Path(firmware).parts[1] for firmware in project.firmware.values()}
    found = {entry.name for entry in path.iterdir()} if path.is_dir() else set()
    by_framework = "CMakeCache.txt" in found or products & found
    if found and _MARK not in found and not by_framework:
        raise UsageError(
            f"{path} was not made by mtool",
            details=[f"it holds: {', '.join(sorted(found)[:5])}"],
            hint="move it away: a build's files go there",
        )
    if _MARK not in found:
        files.write(path / _MARK, b"Made by mtool: what a build makes is here, and may be removed.\n")


def firmware_of(folder: Path, tree: FileTree) -> list[Path] | None:
    """Return the firmware of every kind that a folder holds, if it was built from these files.

    Args:
        folder: a project folder, perhaps.
        tree: the files that the project has, if nothing has changed.

    Raises:
        MtoolError: the folder holds no project, or its compiler is not there.
    """
    project = _project_of(manifest.load(folder), folder)
    if any(not (folder / path).is_file() or (folder / path).read_bytes() != tree[path] for path in tree):
        return None
    key = _key(folder, BUILDERS[project.builder].compiler(folder, project))
    if not all(_is_current(folder, project, kind, key) for kind in project.firmware):
        return None
    return [folder / path for path in project.firmware.values()]


def plan(project: Project, kinds: Sequence[str] = ("host_driven",)) -> list[str]:
    """Return the commands that a first build runs in the project's folder, as a shell would take them."""
    return [shlex.join(argv) for argv in BUILDERS[project.builder].commands(project, kinds)]


def _project_of(read: Manifest, folder: Path) -> Project:
    if read.project is None:
        raise UsageError(f"{folder} holds a compiled model, not a project", details=["its mtool.json has no project"])
    return read.project


def _key(folder: Path, compiler: toolchains.Found) -> str:
    """Return a hash over all that a build reads."""
    sha = hashlib.sha256(f"{compiler.identity}\n".encode("utf-8", "surrogatepass"))
    sha.update(filetree.digest_of(folder, skip=(BUILD_FOLDER,)).encode())
    return sha.hexdigest()


def _stamp(folder: Path, kind: str) -> Path:
    """Return the file that holds the key of a kind's last build."""
    return folder / BUILD_FOLDER / f"{kind}.key"


def _proof(key: str, firmware: Path) -> bytes:
    """Return what a stamp holds: what was built, and the firmware that came of it, which may be replaced since."""
    with firmware.open("rb") as file:
        built = hashlib.file_digest(file, "sha256").hexdigest()
    return f"{key} {built} {'x' if os.access(firmware, os.X_OK) else '-'}".encode()


def _is_current(folder: Path, project: Project, kind: str, key: str) -> bool:
    stamp, firmware = _stamp(folder, kind), folder / project.firmware[kind]
    return firmware.is_file() and stamp.is_file() and stamp.read_bytes() == _proof(key, firmware)
