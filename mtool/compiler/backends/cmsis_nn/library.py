"""The user's own CMSIS-NN: its folder, the files that a function needs, and the buffer sizes that it requests."""

import ctypes
import functools
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mtool.base import proc
from mtool.base.errors import UsageError
from mtool.compiler.backends.interface import BackendError

FOLDER = "cmsis_nn"
"""The folder of its files, in the model's own."""
_HEADER = "arm_nnfunctions.h"
_DEFINED = re.compile(r"^[A-Za-z_][\w \t*\n]*?\b(arm_\w+)\s*\([^;{}]*\)\s*\{", re.MULTILINE)
_TABLE = re.compile(r"^const [\w ]+?\b(\w+)\[[^]]*\]\s*=", re.MULTILINE)
_INCLUDE = re.compile(r'^([ \t]*#[ \t]*include[ \t]+")([^"]+)(")', re.MULTILINE)
_QUIET = "\n".join(
    f'#pragma GCC diagnostic ignored "-W{warning}"'
    for warning in ("conversion", "sign-conversion", "shadow", "sign-compare", "unused-parameter", "cast-qual")
)


@dataclass(frozen=True)
class Library:
    """A folder with the Include and Source of CMSIS-NN."""

    folder: Path

    @functools.cached_property
    def _sources(self) -> dict[str, str]:
        """The text of each source, by the file's name; those of floats are left out."""
        found = {}
        for path in sorted((self.folder / "Source").rglob("*.c")):
            if not re.search(r"_(f16|f32|flt)\.c$", path.name):
                found[path.name] = path.read_text("utf-8", "replace")
        return found

    @functools.cached_property
    def _where(self) -> dict[str, str]:
        """The file in which each function and table is defined."""
        return {
            name: file
            for file, text in self._sources.items()
            for name in (*_DEFINED.findall(text), *_TABLE.findall(text))
        }

    def files(self, functions: Iterable[str]) -> dict[str, bytes]:
        """Return the files that functions need, by path in the model's folder.

        They are the user's own, except for the paths in `#include` and a line that disables warnings.

        Raises:
            BackendError: it has no such function.
        """
        taken: dict[str, str] = {}
        waiting = [*functions]
        for name in waiting:
            if name not in self._where:
                raise self._missing(name)
        while waiting:
            file = self._where[waiting.pop()]
            if file in taken:
                continue
            taken[file] = text = self._sources[file]
            waiting += [name for name in {*re.findall(r"\b\w+\b", text)} if name in self._where]
        headers = self._headers(taken.values())
        made = {f"{FOLDER}/{name}": f"{_QUIET}\n{text}" for name, text in taken.items()}
        made |= {f"{FOLDER}/{name}": _with_paths(name, text) for name, text in headers.items()}
        return {name: text.encode() for name, text in sorted(made.items())}

    def lacks(self, function: str) -> str:
        """Return why a function can't be used; "": it can."""
        if function not in self._where:
            return f"{self.folder} has no {function}; mtool is tested with CMSIS-NN 7 and newer"
        if function == "arm_lstm_unidirectional_s8" and not self.declares("hidden_state"):
            return f"{self.folder} has an LSTM that does not take its state as an argument; use a newer CMSIS-NN"
        return ""

    def _missing(self, function: str) -> BackendError:
        return BackendError(f"{self.folder} has no {function}", hint="mtool is tested with CMSIS-NN 7 and newer")

    def declares(self, name: str) -> bool:
        """Whether its types have a member, which an older CMSIS-NN may lack."""
        return re.search(rf"\b{name}\b", self._types) is not None

    @functools.cached_property
    def _types(self) -> str:
        return (self.folder / "Include" / "arm_nn_types.h").read_text("utf-8", "replace")

    def _headers(self, texts: Iterable[str]) -> dict[str, str]:
        """Return the headers that texts include, and those that these include, by path below Include."""
        found: dict[str, str] = {}
        waiting = [_HEADER, *(name for text in texts for _, name, _ in _INCLUDE.findall(text))]
        while waiting:
            name = waiting.pop()
            path = self.folder / "Include" / name
            if name in found or not path.is_file():
                continue
            found[name] = path.read_text("utf-8", "replace")
            waiting += [one for _, one, _ in _INCLUDE.findall(found[name])]
        return found

    @functools.cached_property
    def _buffers(self) -> ctypes.CDLL:
        """The functions that return buffer sizes, built for this machine to be called at compile time."""
        compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
        if compiler is None:
            what = "CMSIS-NN's buffer sizes are computed with a C compiler on this machine, and none was found"
            raise BackendError(what, hint="install gcc or clang")
        found = sorted((self.folder / "Source").rglob("*get_buffer_size*.c"))
        sources = [path for path in found if re.search(r"_s(8|16)\.c$", path.name)]
        with tempfile.TemporaryDirectory(prefix="mtool-") as folder:
            made = Path(folder) / "buffers.so"
            argv = [compiler, "-shared", "-fPIC", "-w", "-O0", f"-I{self.folder / 'Include'}", "-o", str(made)]
            proc.run([*argv, *map(str, sources)], what="CMSIS-NN's buffer sizes", timeout_s=120, error=BackendError)
            return ctypes.CDLL(str(made))

    def result_of(self, function: str, *arguments: Sequence[int] | int) -> int:
        """Return the result of `<function>`; a sequence is a struct of int32_t, passed by address."""
        try:
            call = getattr(self._buffers, function)
        except AttributeError:
            raise self._missing(function) from None
        call.restype = ctypes.c_int32
        passed = [
            ctypes.c_int32(one) if isinstance(one, int) else ctypes.byref((ctypes.c_int32 * len(one))(*one))
            for one in arguments
        ]
        return int(call(*passed))


def _with_paths(name: str, text: str) -> str:
    """Let a header in a folder of its own find the others above it."""
    if "/" not in name:
        return text
    return _INCLUDE.sub(lambda found: f"{found[1]}../{found[2]}{found[3]}", text)


def find(path: str) -> Library:
    """Return the CMSIS-NN of the option `path`, else of CMSIS_NN_DIR, else of a Zephyr workspace.

    Raises:
        UsageError: it was not found.
    """
    zephyr = os.environ.get("ZEPHYR_BASE")
    places = [path] if path else [os.environ.get("CMSIS_NN_DIR", "")]
    if not any(places) and zephyr:
        places += [str(Path(zephyr).parent / "modules/lib" / name) for name in ("cmsis-nn", "CMSIS-NN")]
    for place in filter(None, places):
        if (Path(place) / "Include" / _HEADER).is_file():
            return Library(Path(place).resolve())
    looked = ", ".join(filter(None, places))
    why = f"looked for Include/{_HEADER} in {looked}" if looked else "neither path= nor CMSIS_NN_DIR is set"
    hint = "download it from Arm and give its folder: --backend cmsis_nn:path=DIR"
    raise UsageError("CMSIS-NN was not found", details=[why], hint=hint)
