"""Build a project folder with its template's builder, unless nothing has changed since the last build."""

import contextlib
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
from mtool.device.build.stack import firmware as stack
from mtool.manifest import Manifest, Operator, Project, link_key

log = logging.getLogger(__name__)

BUILD_FOLDER = "build"
_MARK = ".mtool"  # a file in the build folder that marks it as mtool's
_STANDALONE = "standalone"  # the kind for a user's own program


def board_compiler(folder: Path, project: Project) -> toolchains.ToolStatus:
    """Return the compiler that the board's entry names."""
    return toolchains.require(project.board.toolchain)


@dataclass(frozen=True, slots=True)
class Builder:
    """A tool that builds projects.

    Attributes:
        build: takes the project folder, its manifest and firmware kinds, and builds project.firmware[kind] for each.
        commands: takes the project and firmware kinds, and returns a first build's commands, in order.
        needs: the toolchains (mtool/device/build/toolchains.py) that it requires in addition to the compiler.
        compiler: takes the project folder and the project, and returns the compiler; with the project's files, it
            decides whether a firmware is up to date.
        whole_framework: each kind of firmware compiles the whole framework, which takes minutes.
    """

    build: Callable[[Path, Manifest, Sequence[str]], None]
    commands: Callable[[Project, Sequence[str]], list[list[str]]]
    needs: tuple[str, ...] = ()
    compiler: Callable[[Path, Project], toolchains.ToolStatus] = board_compiler
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
        firmware: the file of each requested kind.
        toolchain: the compiler and its version ("arm-none-eabi-gcc 12.2.1").
        seconds: the build's duration.
        rebuilt: the kinds that were built, because something had changed or they did not exist.
        restored: the kinds that were restored from the user's cache.
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
        """Whether nothing had changed since the last build, so nothing was built."""
        return not self.rebuilt

    @property
    def how(self) -> str:
        """A short description of what was done."""
        if self.rebuilt:
            return self.toolchain
        return "as built before, from the cache" if self.restored else "up to date"


def build(folder: Path, *, kinds: Sequence[str] = ("host_driven",)) -> Built:
    """Build the firmware of a project.

    A build is skipped if the project's files, the compiler (its version, program, library
    and environment variables), the kind and the firmware itself are unchanged since the last successful build.

    Args:
        folder: a project folder, with its mtool.json.
        kinds: the firmware kinds to build, among the template's.

    Raises:
        UsageError: the folder is not a project, is incomplete, or has no such kind; or another process uses it.
        BuildError: a toolchain is missing, or the build failed.
        FitError: the firmware is larger than a memory of the board.
    """
    with locks.folder(folder):
        return _build(folder, kinds)


def _build(folder: Path, kinds: Sequence[str]) -> Built:
    start = time.monotonic()
    if filetree.interrupted(folder):
        what = f"{folder} is incomplete: mtool was stopped while writing it"
        raise UsageError(what, hint="create it again with the same mtool command")
    read = manifest.load(folder)
    project = manifest.project_of(read, folder)
    if project.is_own:
        return Built(read, folder, {}, "your own build", 0.0, ())
    _check_folder(folder / BUILD_FOLDER)
    for kind in kinds:
        manifest.firmware_of(folder, project, kind)  # refuses a kind that the template does not have
    builder = BUILDERS[project.builder]
    compiler, firmware = _firmware(folder, read, kinds)
    stale = [image for image in firmware if not image.is_current()]
    by_user = [image for image in firmware if project.program and image.kind == _STANDALONE and image not in stale]
    stale += by_user  # its sources may be anywhere: only the builder knows whether it is stale
    restored: list[_Firmware] = []
    if stale:
        _take_build_folder(folder / BUILD_FOLDER, project)
        for name in builder.needs:
            toolchains.require(name)
        for image in stale:
            image.stamp.unlink(missing_ok=True)
            image.path.unlink(missing_ok=True)  # ninja would keep a file that something else wrote there
        restored = [image for image in stale if image.restore()]
        stale = [image for image in stale if image not in restored]
        if stale:
            _run(builder, folder, read, [image.kind for image in stale])
        for image in stale:
            image.keep()
    if stale or restored or not (folder / BUILD_FOLDER / manifest.FILE_NAME).is_file():
        _describe(read, folder, {image.kind: image.path for image in firmware})
    built = Built(
        manifest=read,
        folder=folder,
        firmware={image.kind: image.path for image in firmware},
        toolchain=f"{compiler.toolchain.name} {compiler.version}",
        seconds=time.monotonic() - start,
        rebuilt=tuple(image.kind for image in stale),
        restored=tuple(image.kind for image in restored),
    )
    log.info("build: %.2f s, %s", built.seconds, built.how)
    return built


def _describe(read: Manifest, folder: Path, firmware: Mapping[str, Path]) -> None:
    """Write the build's own mtool.json: the project's, with what only the linked file shows."""
    elf = firmware.get(_STANDALONE, next(iter(firmware.values())))
    models = read.models
    with contextlib.suppress(BuildError):  # it is not an ELF file
        models = tuple(stack.described(elf, model) for model in models)
    files.write(folder / BUILD_FOLDER / manifest.FILE_NAME, manifest.to_json(models, read.project))


def _run(builder: Builder, folder: Path, read: Manifest, kinds: Sequence[str]) -> None:
    """Run a builder and check that it made the firmware."""
    try:
        builder.build(folder, read, kinds)
    except BuildError as failed:
        raise _with_operators(failed, read, folder) from failed
    project = manifest.project_of(read, folder)
    for kind in kinds:
        firmware = manifest.firmware_of(folder, project, kind)
        if not firmware.is_file():
            raise BuildError(
                f"the build of the {kind} firmware produced no file", details=[f"expected: {project.firmware[kind]}"]
            )
        size.check(firmware, read)


def builds_whole_framework(builder: str) -> bool:
    """Return whether a builder compiles its whole framework for each kind of firmware, which takes minutes."""
    return BUILDERS[builder].whole_framework


def is_up_to_date(folder: Path, kinds: Sequence[str]) -> bool:
    """Return whether a project's firmware of these kinds is built and nothing has changed since.

    Raises:
        MtoolError: the folder holds no project, or its compiler is missing.
    """
    read = manifest.load(folder)
    if read.project is not None and read.project.is_own:
        return True
    _, firmware = _firmware(folder, read, kinds)
    return all(image.is_current() for image in firmware)


def _check_folder(path: Path) -> None:
    obstacle = "a link" if path.is_symlink() else "a file" if path.exists() and not path.is_dir() else ""
    if obstacle:
        raise UsageError(f"{path} is {obstacle}, not a folder", hint="move it away; build files go there")


def _take_build_folder(path: Path, project: Project) -> None:
    """Create the build folder, and mark it as mtool's.

    Raises:
        UsageError: the folder exists, and neither mtool nor the project's framework created it.
    """
    products = {Path(firmware).parts[1] for firmware in project.firmware.values()}
    names = {entry.name for entry in path.iterdir()} if path.is_dir() else set()
    by_framework = "CMakeCache.txt" in names or products & names
    if names and _MARK not in names and not by_framework:
        what = f"{path} was not made by mtool"
        details = [f"it contains: {', '.join(sorted(names)[:5])}"]
        raise UsageError(what, details=details, hint="move it away; build files go there")
    if _MARK not in names:
        files.write(path / _MARK, b"Made by mtool: what a build makes is here, and may be removed.\n")
    if (path.parent / link_key.FILE_NAME).is_file():  # the firmware has the key
        path.chmod(0o700)


def firmware_of(folder: Path, tree: FileTree) -> list[Path] | None:
    """Return the firmware of every kind in a folder if it was built from these files.

    Args:
        folder: a possible project folder.
        tree: the files that the project has if nothing has changed.

    Raises:
        MtoolError: the folder holds no project, or its compiler is missing.
    """
    read = manifest.load(folder)
    project = manifest.project_of(read, folder)
    if any(not (folder / path).is_file() or (folder / path).read_bytes() != tree[path] for path in tree):
        return None
    _, firmware = _firmware(folder, read, [*project.firmware])
    return [image.path for image in firmware] if all(image.is_current() for image in firmware) else None


def plan(project: Project, kinds: Sequence[str] = ("host_driven",)) -> list[str]:
    """Return the commands of a first build, to be run in the project's folder, in shell syntax."""
    return [shlex.join(argv) for argv in BUILDERS[project.builder].commands(project, kinds)]


def _firmware(folder: Path, read: Manifest, kinds: Sequence[str]) -> "tuple[toolchains.ToolStatus, list[_Firmware]]":
    """Return a project's compiler, and firmware kinds with their cache keys."""
    project = manifest.project_of(read, folder)
    compiler = BUILDERS[project.builder].compiler(folder, project)
    sha = hashlib.sha256(f"{compiler.identity}\n".encode("utf-8", "surrogatepass"))
    sha.update(filetree.digest_of(folder, skip=(BUILD_FOLDER,)).encode())
    # The frameworks of other builders, a user's program and a backend's library are outside of the folder.
    is_whole = project.builder in ("cmake", "host", "zig") and not project.program and not read.claims
    kept_in = cache.of_user() if is_whole else None
    return compiler, [_Firmware(folder, project, kind, sha.hexdigest(), kept_in) for kind in kinds]


@dataclass(frozen=True, slots=True)
class _Firmware:
    """One kind of a project's firmware.

    Attributes:
        folder, project: where it is built, and its description in mtool.json.
        kind: the kind.
        key: a hash of everything that its build reads.
        cache: the cache folder; None: it is not cached.
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
        """The file that records its last build."""
        return self.folder / BUILD_FOLDER / f"{self.kind}.key"

    def _proof(self) -> bytes:
        """Return a stamp's contents: the key and the firmware's hash, as the file may have been replaced since."""
        with self.path.open("rb") as file:
            built = hashlib.file_digest(file, "sha256").hexdigest()
        return f"{self.key} {built} {'x' if os.access(self.path, os.X_OK) else '-'}".encode()

    def is_current(self) -> bool:
        return self.path.is_file() and self.stamp.is_file() and self.stamp.read_bytes() == self._proof()

    def _cache_key(self) -> str:
        """Return a hash that includes the folder, whose name is in the debug information."""
        place = hashlib.sha256(f"{self.key}\n{self.folder.resolve()}\n".encode("utf-8", "surrogatepass")).hexdigest()
        return hashlib.sha256(f"{place} {self.kind} {self.project.firmware[self.kind]}".encode()).hexdigest()

    def restore(self) -> bool:
        """Restore the firmware from the cache; return whether it was there."""
        entry = self.cache.get(self._cache_key()) if self.cache else None
        if not entry or set(entry) != {self.kind}:
            return False
        files.write(self.path, entry[self.kind].data)
        if entry[self.kind].runs:
            status = self.path.stat().st_mode
            self.path.chmod(status | (status & 0o444) >> 2)  # executable for everyone who may read it
        files.write(self.stamp, self._proof())
        return True

    def keep(self) -> None:
        """Record that it was built now, and cache it."""
        files.write(self.stamp, self._proof())
        if self.cache:
            runs = bool(self.path.stat().st_mode & 0o111)
            self.cache.put(self._cache_key(), {self.kind: File(self.path.read_bytes(), runs)})


# Compiler errors in backends' C, which are reported with the backend's name and the user's nodes.


_ERROR = re.compile(r"^\s*(\S+\.[ch]):(\d+):(?:\d+:)? (?:fatal )?error: ", re.MULTILINE)
_FUNCTION = re.compile(r"^[A-Za-z_][\w *]*?\b(\w+)\([^;]*$")
_MOST_NODES = 5


def _with_operators(failed: BuildError, read: Manifest, folder: Path) -> BuildError:
    """Return a compiler's error, with the backend if the C is a backend's."""
    of = {f"{read.model}_{operator.name}": operator for operator in read.operators if operator.backend}
    if not of:
        return failed
    lines = dict.fromkeys(_owners("\n".join(failed.details), of, read, folder))
    return BuildError(failed.what, details=[*failed.details, *lines], hint=failed.hint) if lines else failed


def _owners(text: str, of: dict[str, Operator], read: Manifest, folder: Path) -> Iterator[str]:
    backends = dict.fromkeys(operator.backend for operator in of.values())
    for name, number in _ERROR.findall(text):
        path = folder / name
        if path.name == f"{read.model}.c":
            function = _function_at(path, int(number))
            if function in of:
                one = of[function]
                nodes = ", ".join(map(short_name, one.origins[:_MOST_NODES])) or one.name
                yield f"{path.name}:{number} is C from the backend {one.backend}, for {nodes}"
        elif any((place / f"{read.model}.c").is_file() for place in list(path.parents)[1:4]):
            # It is in a folder below that of the model's C, where only backends have files.
            yield f"{path.parent.name}/{path.name} is a file of the backend {' or '.join(backends)}"


def _function_at(path: Path, number: int) -> str:
    """Return the function that contains a line of a file; "": unknown."""
    try:
        before: Sequence[str] = path.read_text("utf-8").splitlines()[:number]
    except (OSError, UnicodeDecodeError):
        return ""
    return next((match[1] for line in reversed(before) if (match := _FUNCTION.match(line))), "")
