"""Errors of a compiler in the C of backends, which are told with the backend's name and the user's nodes."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from mtool.base.errors import BuildError
from mtool.base.escaping import short_name
from mtool.manifest import Manifest, Operator

_ERROR = re.compile(r"^\s*(\S+\.[ch]):(\d+):(?:\d+:)? (?:fatal )?error: ", re.MULTILINE)
_FUNCTION = re.compile(r"^[A-Za-z_][\w *]*?\b(\w+)\([^;]*$")
_MOST_NODES = 5


def told(failed: BuildError, manifest: Manifest, folder: Path) -> BuildError:
    """Return a compiler's error, with whose C it is in if that is a backend's."""
    of = {f"{manifest.model}_{one.name}": one for one in manifest.operators if one.backend}
    if not of:
        return failed
    lines = dict.fromkeys(_owners("\n".join(failed.details), of, manifest, folder))
    return BuildError(failed.what, details=[*failed.details, *lines], hint=failed.hint) if lines else failed


def _owners(text: str, of: dict[str, Operator], manifest: Manifest, folder: Path) -> Iterator[str]:
    backends = dict.fromkeys(one.backend for one in of.values())
    for name, number in _ERROR.findall(text):
        path = folder / name
        if path.name == f"{manifest.model}.c":
            function = _function_at(path, int(number))
            if function in of:
                one = of[function]
                nodes = ", ".join(map(short_name, one.origins[:_MOST_NODES])) or one.name
                yield f"{path.name}:{number} is the C of the backend {one.backend}, for {nodes}"
        elif any((place / f"{manifest.model}.c").is_file() for place in list(path.parents)[1:4]):
            # It lies below the folder of the model's C, where backends alone have files.
            yield f"{path.parent.name}/{path.name} is a file of the backend {' or '.join(backends)}"


def _function_at(path: Path, number: int) -> str:
    """Return the function in which a line of a file lies; "": none that is known."""
    try:
        before: Sequence[str] = path.read_text("utf-8").splitlines()[:number]
    except (OSError, UnicodeDecodeError):
        return ""
    return next((found[1] for line in reversed(before) if (found := _FUNCTION.match(line))), "")
