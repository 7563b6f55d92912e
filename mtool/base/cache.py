"""A cache of results in the user's cache folder, each under a hash of everything that it was made from.

An entry is one file: the hash of the rest, a line of JSON that names the files in it, and their bytes. It is written
under a temporary name and renamed, so that no process ever sees half of one, and it is used only if the hash matches.
The hash is not a signature: whoever can write to the folder decides what is compiled and run, so only the user may be
able to, or MTOOL_CACHE_KEY makes it an HMAC. The least recently used entries are removed when the limit is exceeded.
"""

import contextlib
import functools
import hashlib
import hmac
import json
import logging
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import field
from pathlib import Path

from mtool.base import files, resources
from mtool.base.errors import MtoolError, UsageError
from mtool.base.frozen import frozen

VARIABLE = "MTOOL_CACHE"
LIMIT_VARIABLE = "MTOOL_CACHE_LIMIT"
KEY_VARIABLE = "MTOOL_CACHE_KEY"
DEFAULT_LIMIT = 512 << 20
OFF = "off"

_KEPT = 0.9  # of the limit, after it was exceeded
_OWN = 0o700
_OF_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_NAME = re.compile(r"[0-9a-f]{64}")
_LIMIT = re.compile(r"(\d{1,12})([KMG]?)")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}

log = logging.getLogger(__name__)


@frozen
class File:
    """A file of an entry: its bytes, and whether it is executable."""

    data: bytes
    runs: bool = False


@frozen
class Content:
    """The size of a cache: the number of entries and their total bytes."""

    entries: int
    size: int


@frozen
class Cache:
    """A folder of entries.

    Attributes:
        folder: created when the first entry is stored.
        limit: total bytes of all entries.
        is_named: the user named the folder, and is warned once if nothing can be stored there.
        secret: only entries stored with the same one are used; "": entries have a hash that anyone can compute.
    """

    folder: Path
    limit: int = DEFAULT_LIMIT
    is_named: bool = field(default=False, compare=False)
    secret: str = field(default="", repr=False)

    def get(self, key: str) -> dict[str, File] | None:
        """Return the files of an entry; None: it is missing, or it was damaged and has been removed.

        Args:
            key: a SHA-256 in hexadecimal.
        """
        path = self._path(key)
        try:
            if not path.is_file() or path.is_symlink():  # reading a pipe may never end
                return None
            if not all(is_own(folder) for folder in (self.folder, path.parent, path)):
                log.warning("%s is not used: others can write to it, or it belongs to another user", path)
                return None
            data = path.read_bytes()
        except OSError:
            return None
        digest, _, body = data.partition(b"\n")
        content = _unpacked(body) if hmac.compare_digest(self._digest(key, body), digest) else None
        if content is None:
            self.drop(key)
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # it was used now
        return content

    def drop(self, key: str) -> None:
        """Remove an entry that is damaged."""
        log.debug("%s is damaged", self._path(key))
        with contextlib.suppress(OSError):
            self._path(key).unlink()

    def put(self, key: str, content: Mapping[str, File]) -> None:
        """Store files under a key. If that fails, nothing is stored: the cache only saves time.

        Args:
            key: a SHA-256 in hexadecimal.
            content: the files, by name.
        """
        body = _packed(content)
        packed = self._digest(key, body) + b"\n" + body
        try:
            if len(packed) <= self.limit // 4:  # a larger one would displace too many others
                for folder in (self.folder, self._path(key).parent):
                    folder.mkdir(_OWN, parents=True, exist_ok=True)
                files.write(self._path(key), packed)
            self._make_room()  # also for entries stored under a larger limit
        except (MtoolError, OSError) as failed:
            log.debug("%s is not kept: %s", key, failed)
            if self.is_named:
                _warn_of(self.folder, (failed.strerror if isinstance(failed, OSError) else None) or str(failed))

    def content(self) -> Content:
        """Return the current size."""
        sizes = [status.st_size for _, status in self._entries()]
        return Content(len(sizes), sum(sizes))

    def clear(self) -> Content:
        """Remove all entries, and return their size; other files in the folder stay.

        Raises:
            UsageError: one can't be removed.
        """
        sizes = []
        for path, status in self._entries():
            try:
                path.unlink(missing_ok=True)
            except OSError as failed:
                raise UsageError(f"{path} can't be removed", details=[str(failed.strerror)]) from None
            sizes.append(status.st_size)
        return Content(len(sizes), sum(sizes))

    def _digest(self, key: str, body: bytes) -> bytes:
        data = key.encode() + body
        hasher = hmac.new(self.secret.encode(), data, "sha256") if self.secret else hashlib.sha256(data)
        return hasher.hexdigest().encode()

    def _path(self, key: str) -> Path:
        assert _NAME.fullmatch(key), key
        return self.folder / key[:2] / key

    def _entries(self) -> Iterator[tuple[Path, os.stat_result]]:
        for path in self.folder.glob("??/*"):
            if _NAME.fullmatch(path.name):
                with contextlib.suppress(OSError):  # another process has removed it
                    status = path.lstat()
                    if not stat.S_ISDIR(status.st_mode):
                        yield path, status

    def _make_room(self) -> None:
        entries = sorted(self._entries(), key=lambda entry: entry[1].st_mtime_ns)  # the time of the last use
        size = sum(status.st_size for _, status in entries)
        most = self.limit if size <= self.limit else self.limit * _KEPT
        for path, status in entries:
            if size <= most:
                return
            path.unlink(missing_ok=True)
            size -= status.st_size


@functools.cache
def _warn_of(folder: Path, reason: str) -> None:
    log.warning(
        "nothing is kept in %s: %s; name another folder (%s=DIR), or %s=%s", folder, reason, VARIABLE, VARIABLE, OFF
    )


def of_user(environment: Mapping[str, str] = os.environ) -> Cache | None:
    """Return the user's cache; None: MTOOL_CACHE is "off", or there is no home.

    MTOOL_CACHE names another folder than `$XDG_CACHE_HOME/mtool` (`~/.cache/mtool`), MTOOL_CACHE_LIMIT another limit.
    MTOOL_CACHE_KEY is a secret: entries of others, who don't know it, are not used.

    Raises:
        UsageError: a variable has an invalid value, or others can write to the folder.
    """
    folder_text, limit_text = environment.get(VARIABLE, ""), environment.get(LIMIT_VARIABLE, "")
    if folder_text == OFF:
        return None
    if folder_text and not Path(folder_text).is_absolute():
        raise UsageError(f'{VARIABLE} is "{folder_text}"', details=["expected: the absolute path of a folder, or off"])
    match = _LIMIT.fullmatch(limit_text.upper()) if limit_text else None
    if limit_text and match is None:
        raise UsageError(f'{LIMIT_VARIABLE} is "{limit_text}"', details=["expected: bytes, for instance 200M or 1G"])
    limit = int(match[1]) * _UNITS[match[2]] if match else DEFAULT_LIMIT
    folder = Path(folder_text) if folder_text else resources.cache_folder(environment)
    if folder_text and folder is not None:
        place = next((parent for parent in (folder, *folder.parents) if parent.exists()), folder)
        if not place.is_dir():
            details = ["expected  the absolute path of a folder, or off", f"found     {place}, which is not a folder"]
            raise UsageError(f'{VARIABLE} is "{folder_text}"', details=details)
    if folder is not None and folder.exists() and not is_own(folder):
        other = f"name another folder ({VARIABLE}=DIR), or do without: {VARIABLE}={OFF}"
        what = f"the cache {folder} is not yours alone: whoever can write to it decides what mtool compiles and runs"
        hint = f"chmod go-w {folder}, {other}" if folder.stat().st_uid == os.geteuid() else other
        raise UsageError(what, details=["expected  a folder of yours that only you can write to"], hint=hint)
    return None if folder is None else Cache(folder, limit, bool(folder_text), environment.get(KEY_VARIABLE, ""))


def is_own(path: Path) -> bool:
    """Whether a file or folder is this user's, and no one else can write to it."""
    status = path.stat()
    return os.name != "posix" or (status.st_uid == os.geteuid() and not status.st_mode & _OF_OTHERS)


def _packed(content: Mapping[str, File]) -> bytes:
    listed = json.dumps([[name, len(entry.data), entry.runs] for name, entry in content.items()])
    return b"".join([listed.encode(), b"\n", *(entry.data for entry in content.values())])


def _unpacked(body: bytes) -> dict[str, File] | None:
    head, _, rest = body.partition(b"\n")
    try:
        listed = [(str(name), int(size), bool(runs)) for name, size, runs in json.loads(head)]
    except (ValueError, TypeError, RecursionError):
        return None
    result, start = {}, 0
    for name, size, runs in listed:
        result[name], start = File(rest[start : start + size], runs), start + size
    return result if start == len(rest) and all(size >= 0 for _, size, _ in listed) else None
