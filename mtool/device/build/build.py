"""Build a project folder with its template's builder, unless nothing has changed since the last time."""

import hashlib
import logging
import os
import re
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mtool import manifest
from mtool.base import cache, files, filetree, locks
from mtool.base.cache import Cache, File
from mtool.base.errors import BuildError, UsageError
from mtool.base.escaping import short_name
from mtool.base.filetree import FileTree
from mtool.device.build import arduino, cmake, host, size, toolchains, west, zig
from mtool.manifest import Manifest, Operator, Project

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
        what = f"{folder} is half-written: mtool was stopped while it wrote"
        raise UsageError(what, hint="write it again, with the mtool command that made it")
    read = manifest.load(folder)
    project = manifest.project_of(read, folder)
    _check_folder(folder / BUILD_FOLDER)
    for kind in kinds:
        manifest.firmware_of(folder, project, kind)  # which refuses a kind that the template has not
    builder = BUILDERS[project.builder]
    compiler, firmware = _firmware(folder, read, kinds)
    stale = [one for one in firmware if not one.is_current()]
    by_user = [one for one in firmware if project.program and one.kind == _STANDALONE and one not in stale]
    stale += by_user  # whose sources may be anywhere: the builder itself knows what of it is stale
    restored: list[_Firmware] = []
    if stale:
        _take_build_folder(folder / BUILD_FOLDER, project)
        for name in builder.needs:
            toolchains.require(name)
        for one in stale:
            one.stamp.unlink(missing_ok=True)
            one.path.unlink(missing_ok=True)  # ninja would keep one that another has put there since
        restored = [one for one in stale if one.restore()]
        stale = [one for one in stale if one not in restored]
        if stale:
            _run(builder, folder, read, [one.kind for one in stale])
        for one in stale:
            one.keep()
    built = Built(
        manifest=read,
        folder=folder,
        firmware={one.kind: one.path for one in firmware},
        toolchain=f"{compiler.toolchain.name} {compiler.version}",
        seconds=time.monotonic() - start,
        rebuilt=tuple(one.kind for one in stale),
        restored=tuple(one.kind for one in restored),
    )
    log.info("build: %.2f s, %s", built.seconds, built.how)
    return built


def _run(builder: Builder, folder: Path, read: Manifest, kinds: Sequence[str]) -> None:
    """Let a builder make firmware, and check that it did."""
    try:
        builder.build(folder, read, kinds)
    except BuildError as failed:
        raise _told(failed, read, folder) from failed
    project = manifest.project_of(read, folder)
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
    _, firmware = _firmware(folder, manifest.load(folder), kinds)
    return all(one.is_current() for one in firmware)


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
        what = f"{path} was not made by mtool"
        details = [f"it holds: {', '.join(sorted(found)[:5])}"]
        raise UsageError(what, details=details, hint="move it away: a build's files go there")
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
    read = manifest.load(folder)
    project = manifest.project_of(read, folder)
    if any(not (folder / path).is_file() or (folder / path).read_bytes() != tree[path] for path in tree):
        return None
    _, firmware = _firmware(folder, read, [*project.firmware])
    return [one.path for one in firmware] if all(one.is_current() for one in firmware) else None


def plan(project: Project, kinds: Sequence[str] = ("host_driven",)) -> list[str]:
    """Return the commands that a first build runs in the project's folder, as a shell would take them."""
    return [shlex.join(argv) for argv in BUILDERS[project.builder].commands(project, kinds)]


def _firmware(folder: Path, read: Manifest, kinds: Sequence[str]) -> "tuple[toolchains.Found, list[_Firmware]]":
    """Return what compiles a project, and firmware kinds with what they are made of."""
    project = manifest.project_of(read, folder)
    compiler = BUILDERS[project.builder].compiler(folder, project)
    sha = hashlib.sha256(f"{compiler.identity}\n".encode("utf-8", "surrogatepass"))
    sha.update(filetree.digest_of(folder, skip=(BUILD_FOLDER,)).encode())
    # The frameworks of other builders, a user's program and a backend's library are elsewhere than in the folder.
    is_whole = project.builder in ("cmake", "host", "zig") and not project.program and not read.claims
    kept_in = cache.of_user() if is_whole else None
    return compiler, [_Firmware(folder, project, kind, sha.hexdigest(), kept_in) for kind in kinds]


@dataclass(frozen=True, slots=True)
class _Firmware:
    """A kind of firmware of a project.

    Attributes:
        folder, project: where it is built, and what mtool.json says of it.
        kind: which.
        key: a hash over all that its build reads.
        cache: where it is kept beyond that; None: it is not.
    """

    folder: Path
    project: Project
    kind: str
    key: str
    cache: Cache | None

    @property
    def path(self) -> Path:
        return manifest.firmware_of(self.folder, self.project, self.kind)

    @property
    def stamp(self) -> Path:
        """The file that holds the proof of its last build."""
        return self.folder / BUILD_FOLDER / f"{self.kind}.key"

    def _proof(self) -> bytes:
        """Return what a stamp holds: what was built, and the firmware that came of it, which may be replaced since."""
        with self.path.open("rb") as file:
            built = hashlib.file_digest(file, "sha256").hexdigest()
        return f"{self.key} {built} {'x' if os.access(self.path, os.X_OK) else '-'}".encode()

    def is_current(self) -> bool:
        return self.path.is_file() and self.stamp.is_file() and self.stamp.read_bytes() == self._proof()

    def _cache_key(self) -> str:
        """Return a hash that has the folder too, which the debug information names."""
        made_of = hashlib.sha256(f"{self.key}\n{self.folder.resolve()}\n".encode("utf-8", "surrogatepass")).hexdigest()
        return hashlib.sha256(f"{made_of} {self.kind} {self.project.firmware[self.kind]}".encode()).hexdigest()

    def restore(self) -> bool:
        """Write the firmware as it was built before, and return whether that was there."""
        found = self.cache.get(self._cache_key()) if self.cache else None
        if not found or set(found) != {self.kind}:
            return False
        files.write(self.path, found[self.kind].data)
        if found[self.kind].runs:
            status = self.path.stat().st_mode
            self.path.chmod(status | (status & 0o444) >> 2)  # for whom it may be read
        files.write(self.stamp, self._proof())
        return True

    def keep(self) -> None:
        """Note that it was built now, and keep it."""
        files.write(self.stamp, self._proof())
        if self.cache:
            runs = bool(self.path.stat().st_mode & 0o111)
            self.cache.put(self._cache_key(), {self.kind: File(self.path.read_bytes(), runs)})


# Errors of a compiler in the C of backends, which are told with the backend's name and the user's nodes.


_ERROR = re.compile(r"^\s*(\S+\.[ch]):(\d+):(?:\d+:)? (?:fatal )?error: ", re.MULTILINE)
_FUNCTION = re.compile(r"^[A-Za-z_][\w *]*?\b(\w+)\([^;]*$")
_MOST_NODES = 5


def _told(failed: BuildError, read: Manifest, folder: Path) -> BuildError:
    """Return a compiler's error, with whose C it is in if that is a backend's."""
    of = {f"{read.model}_{one.name}": one for one in read.operators if one.backend}
    if not of:
        return failed
    lines = dict.fromkeys(_owners("\n".join(failed.details), of, read, folder))
    return BuildError(failed.what, details=[*failed.details, *lines], hint=failed.hint) if lines else failed


def _owners(text: str, of: dict[str, Operator], read: Manifest, folder: Path) -> Iterator[str]:
    backends = dict.fromkeys(one.backend for one in of.values())
    for name, number in _ERROR.findall(text):
        path = folder / name
        if path.name == f"{read.model}.c":
            function = _function_at(path, int(number))
            if function in of:
                one = of[function]
                nodes = ", ".join(map(short_name, one.origins[:_MOST_NODES])) or one.name
                yield f"{path.name}:{number} is the C of the backend {one.backend}, for {nodes}"
        elif any((place / f"{read.model}.c").is_file() for place in list(path.parents)[1:4]):
            # It lies below the folder of the model's C, where backends alone have files.
            yield f"{path.parent.name}/{path.name} is a file of the backend {' or '.join(backends)}"


def _function_at(path: Path, number: int) -> str:
    """Return the function in which a line of a file lies; "": none that is known."""
    try:
        before: Sequence[str] = path.read_text("utf-8").splitlines()[:number]
    except (OSError, UnicodeDecodeError):
        return ""
    return next((found[1] for line in reversed(before) if (found := _FUNCTION.match(line))), "")
