"""Firmware that was built before, of the same files in the same folder with the same compiler, from the user's cache.

A firmware's debug information names the folder that it was built in: so that is part of the key.
"""

import hashlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mtool import cache, files, proc
from mtool.build import toolchains
from mtool.cache import Cache, File
from mtool.manifest import Manifest, Project

_BUILDERS = ("cmake", "host", "zig")  # the others' frameworks are elsewhere
_RUNS = 0o111
_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True)
class Kept:
    """The firmware of a project in the user's cache.

    Attributes:
        folder: the project's.
        project: what its mtool.json says.
        made_of: a hash of the project's files, the compiler and its libraries.
        cache: where it is kept; None: it is not.
    """

    folder: Path
    project: Project
    made_of: str
    cache: Cache | None

    @classmethod
    def of(cls, folder: Path, manifest: Manifest, key: str, compiler: toolchains.Found) -> "Kept":
        """Find where a project's firmware is kept.

        Args:
            folder: the project's.
            manifest: its mtool.json.
            key: a hash of its files and the compiler's version.
            compiler: what builds it.
        """
        assert manifest.project is not None
        kept_in = _cache_for(manifest)
        if kept_in is None:
            return cls(folder, manifest.project, "", None)
        sha = hashlib.sha256(f"{key}\n{folder.resolve()}\n".encode("utf-8", "surrogatepass"))
        for told in _installed(compiler):
            sha.update(told.encode("utf-8", "surrogatepass") + b"\n")
        return cls(folder, manifest.project, sha.hexdigest(), kept_in)

    def restore(self, kind: str) -> bool:
        """Write the firmware of a kind as it was built before, and return whether that was there."""
        found = self.cache.get(self._key(kind)) if self.cache else None
        if not found or set(found) != {kind}:
            return False
        firmware = self.folder / self.project.firmware[kind]
        files.write(firmware, found[kind].data)
        if found[kind].runs:
            status = firmware.stat().st_mode
            firmware.chmod(status | (status & 0o444) >> 2)  # for whom it may be read
        return True

    def store(self, kind: str) -> None:
        """Keep the firmware of a kind that was built now."""
        if self.cache:
            firmware = self.folder / self.project.firmware[kind]
            runs = bool(firmware.stat().st_mode & _RUNS)
            self.cache.put(self._key(kind), {kind: File(firmware.read_bytes(), runs)})

    def _key(self, kind: str) -> str:
        return hashlib.sha256(f"{self.made_of} {kind} {self.project.firmware[kind]}".encode()).hexdigest()


def _cache_for(manifest: Manifest) -> Cache | None:
    """Return the cache if a project's folder holds all that its firmware is made of."""
    assert manifest.project is not None
    if manifest.project.builder not in _BUILDERS or manifest.project.program or manifest.claims:
        return None  # nor are a user's program and a backend's library in it
    return cache.of_user()


def _installed(compiler: toolchains.Found) -> Iterator[str]:
    """Yield what tells a compiler and its C library from another of the same version."""
    program = shutil.which(compiler.toolchain.programs[0])
    paths = [program] if program else []
    if program and compiler.toolchain.needs:
        asked = [program, f"-print-file-name={compiler.toolchain.needs}"]
        paths.append(proc.run(asked, what=" ".join(asked), timeout_s=_TIMEOUT_S).output.strip())
    for path in paths:
        try:
            status = Path(path).resolve().stat()
        except OSError:
            continue
        yield f"{path} {status.st_size} {status.st_mtime_ns}"
