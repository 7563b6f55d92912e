"""Firmware that was built before, of the same files in the same folder with the same compiler, from the user's cache.

A firmware's debug information names the folder that it was built in: so that is part of the key.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from mtool.base import cache, files
from mtool.base.cache import Cache, File
from mtool.manifest import Manifest, Project

_BUILDERS = ("cmake", "host", "zig")  # the others' frameworks are elsewhere
_RUNS = 0o111


@dataclass(frozen=True, slots=True)
class Kept:
    """The firmware of a project in the user's cache.

    Attributes:
        folder: the project's.
        project: what its mtool.json says.
        made_of: a hash of the project's files and path, the compiler and its libraries.
        cache: where it is kept; None: it is not.
    """

    folder: Path
    project: Project
    made_of: str
    cache: Cache | None

    @classmethod
    def of(cls, folder: Path, manifest: Manifest, key: str) -> "Kept":
        """Find where a project's firmware is kept.

        Args:
            folder: the project's.
            manifest: its mtool.json.
            key: a hash of its files and the compiler.
        """
        assert manifest.project is not None
        kept_in = _cache_for(manifest)
        if kept_in is None:
            return cls(folder, manifest.project, "", None)
        sha = hashlib.sha256(f"{key}\n{folder.resolve()}\n".encode("utf-8", "surrogatepass"))
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
