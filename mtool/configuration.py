"""`mtool.toml`: what holds for a folder and those below it, unless a command or the environment says otherwise."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mtool.errors import UsageError, of_os_error

FILE_NAME = "mtool.toml"
_EXPECTED = ('port = ".."', 'probe = ".."', 'tuned = ["..", ".."]')


@dataclass(frozen=True, slots=True)
class Configuration:
    """What a file says: the serial port and the probe of the board, and the tuning logs to take schedules from."""

    port: str = ""
    probe: str = ""
    tuned: tuple[Path, ...] = ()


def load(folder: Path | None = None) -> Configuration:
    """Read the nearest `mtool.toml`, in a folder (default: the working folder) or above it; empty, if there is none.

    Paths in it are relative to its own folder.

    Raises:
        UsageError: it can't be read, is not TOML, or has an unknown key or a value of another type.
    """
    here = folder or Path.cwd()
    path = next((up / FILE_NAME for up in (here, *here.parents) if (up / FILE_NAME).is_file()), None)
    if path is None:
        return Configuration()
    try:
        read = tomllib.loads(path.read_text("utf-8-sig"))  # an editor may put a mark first
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as invalid:
        raise UsageError(f"{path} is not TOML", details=[str(invalid)]) from None
    except OSError as failed:
        raise of_os_error(failed, f"{path} can't be read") from None
    wrong = [key for key, value in read.items() if not _is_right(key, value)]
    if wrong:
        raise UsageError(f"{path}: {wrong[0]} is unknown or no text", details=[f"expected: {', '.join(_EXPECTED)}"])
    logs = read.get("tuned", [])
    tuned = tuple(path.parent / log for log in ([logs] if isinstance(logs, str) else logs))
    return Configuration(read.get("port", ""), read.get("probe", ""), tuned)


def _is_right(key: str, value: Any) -> bool:
    if key == "tuned" and isinstance(value, list):
        return all(isinstance(one, str) for one in value)
    return key in ("port", "probe", "tuned") and isinstance(value, str)
