"""An emulator that is a library: its small program lies beside this file and is compiled when it is first needed."""

import hashlib
import tempfile
from pathlib import Path

from mtool.base import proc, resources
from mtool.base.errors import BuildError, UsageError
from mtool.boards import Emulator

_SOURCES = Path(__file__).parent
_TIMEOUT_S = 60.0


def program(emulator: Emulator) -> str:
    """Return the path of the program of an emulator that has a `source`; compile it if it is not there.

    Raises:
        BuildError: there is no C compiler, the library is not installed, or its program does not compile.
        UsageError: there is no place to keep it.
    """
    compiler = proc.find("cc", hint=f"sudo apt-get install gcc libc6-dev {emulator.package}")
    libraries = [_library(compiler, name, emulator) for name in emulator.libraries]
    source = _SOURCES / emulator.source
    made_of = [source.read_bytes(), *(library.encode() for library in libraries)]
    key = hashlib.sha256(b"\0".join(made_of)).hexdigest()[:16]
    target = _folder() / f"{emulator.program}-{key}"
    if not target.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            made = Path(folder) / emulator.program
            argv = [compiler, "-O2", "-o", str(made), str(source), *(f"-l{name}" for name in emulator.libraries)]
            try:
                proc.run(argv, what=f"build of the emulator {emulator.program}", timeout_s=_TIMEOUT_S)
            except BuildError as failed:
                raise BuildError(failed.what, details=failed.details, hint=_install(emulator)) from None
            made.replace(target)
    return str(target)


def _library(compiler: str, name: str, emulator: Emulator) -> str:
    """Return the file of a library, with its version: a new one is another program."""
    asked = [compiler, f"-print-file-name=lib{name}.so"]
    path = Path(proc.run(asked, what=f"search for lib{name}", timeout_s=_TIMEOUT_S).output.strip())
    if not path.is_absolute():  # the compiler answers with the bare name if it does not find the file
        raise BuildError(
            f"lib{name} is not installed", details=[f"{emulator.program} is made of it"], hint=_install(emulator)
        )
    return str(path.resolve())


def _install(emulator: Emulator) -> str:
    return f"sudo apt-get install {emulator.package}"


def _folder() -> Path:
    state = resources.state_folder()
    if state is None:
        raise UsageError("there is no home for what mtool keeps", hint="set XDG_STATE_HOME to a folder of yours")
    return state / "emulators"
