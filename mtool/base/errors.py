"""The one error tree of mtool. Every class carries its exit code.

MtoolError                    1   a bug in mtool, or an error that fits nowhere else
├── UsageError                2   a wrong option, a missing file, a wrong input
├── ModelError                3   the model is malformed, or something in it is unsupported
│   └── NeedsValues           3   the values of some inputs must be known when it is compiled
├── FitError                  4   the model does not fit the board's memory or time
├── BuildError                5   a toolchain is missing, or a build failed
├── BoardError                6   no board, an unknown board, or several that match
├── FlashError                7   the flash tool failed
├── CommunicationError        8   the device does not answer, or runs another firmware
│   └── NoAnswerError         8   it started to work and does not finish, or has stopped answering
├── MismatchError             9   outputs differ from the reference
└── DeviceError              10   the device reported a fault
"""

import errno
import os
from collections.abc import Mapping, Sequence

from mtool.base.escaping import one_line


class MtoolError(Exception):
    """An error: what went wrong and where, what was expected and found, and one thing to try.

    Args:
        what: one line, lower case, without a full stop.
        details: further lines (node, file, board, expected and found); shown indented.
        hint: one thing to try, as a sentence or a command.
    """

    exit_code = 1

    def __init__(self, what: str, *, details: Sequence[str] = (), hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.details = tuple(details)
        self.hint = hint

    def lines(self) -> list[str]:
        """Return the error as lines for people; text from a model or a device is escaped."""
        first, *more = self.what.splitlines() or [""]
        details = [line for detail in self.details for line in detail.splitlines() or [""]]
        hint = self.hint.splitlines()[:1] + [f"  {line}" for line in self.hint.splitlines()[1:]]
        lines = [first, *(f"  {line}" for line in (*more, *details)), *hint]
        return [one_line(line.expandtabs(4)) for line in lines]

    def __str__(self) -> str:
        return "\n".join(self.lines())


class UsageError(MtoolError):
    """A wrong option, a missing file, or an input of the wrong shape or type."""

    exit_code = 2


class ModelError(MtoolError):
    """The model is malformed, or holds something that can't be compiled."""

    exit_code = 3


class NeedsValues(ModelError):
    """The model can be compiled once the values of some inputs are known; `inputs` names them."""

    def __init__(self, what: str, *, details: Sequence[str] = (), hint: str = "", inputs: Sequence[str] = ()) -> None:
        super().__init__(what, details=details, hint=hint)
        self.inputs = tuple(inputs)


class FitError(MtoolError):
    """The model does not fit the board's memory or time."""

    exit_code = 4


class BuildError(MtoolError):
    """A toolchain is missing, or a build failed."""

    exit_code = 5


class BoardError(MtoolError):
    """No such board, no attached board, or several that match."""

    exit_code = 6


class FlashError(MtoolError):
    """The flash tool failed."""

    exit_code = 7


class CommunicationError(MtoolError):
    """The device does not answer, answers nonsense, or runs another firmware."""

    exit_code = 8


class NoAnswerError(CommunicationError):
    """The device answered before, but not within the time limit of its work."""


class MismatchError(MtoolError):
    """The outputs differ from the reference by more than is allowed."""

    exit_code = 9


class DeviceError(MtoolError):
    """The device reported a fault or an error status; `operator` is the number of the running operator, if known."""

    exit_code = 10

    def __init__(self, what: str, *, details: Sequence[str] = (), hint: str = "", operator: int | None = None) -> None:
        super().__init__(what, details=details, hint=hint)
        self.operator = operator


REMEDIES: Mapping[int, str] = {
    errno.ENOSPC: "free some space there, or choose another folder",
    errno.EDQUOT: "your quota there is used up: free some space, or choose another folder",
    errno.EROFS: "the file system is read-only: choose another folder",
    errno.EACCES: "check its owner and permissions, and those of its folder",
    errno.EPERM: "check its owner, permissions and attributes (lsattr)",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.EISDIR: "it is a folder: give the name of a file",
    errno.ENOTDIR: "something in its path is a file, not a folder",
    errno.ELOOP: "something in its path is a link: give the path that it points to",
    errno.EFBIG: "it exceeds the file size limit of this process (ulimit -f)",
    errno.EMFILE: "this process has reached its limit of open files (ulimit -n)",
    errno.ENFILE: "the system has too many files open",
    errno.EXDEV: "part of the project is on another file system: move the project to one file system",
    errno.EIO: "the storage device is failing",
}


def of_os_error(error: OSError, what: str = "") -> MtoolError:
    """Return an error of the operating system as one of ours: the path, the system's message, what to try.

    Args:
        error: the error that was raised.
        what: what failed ("report.html can't be written"); default: the error's own message.
    """
    message = (error.strerror or str(error) or type(error).__name__).strip()
    message = message[:1].lower() + message[1:]
    if isinstance(error, (ConnectionError, TimeoutError)):
        return CommunicationError(what or message, details=[message] if what else [])
    if message.startswith("no usable temporary directory"):
        return UsageError("there is no folder for temporary files", details=[message], hint="set TMPDIR to one")
    if isinstance(error, FileNotFoundError) and error.filename is None and not what and _is_nowhere():
        return UsageError("the working folder no longer exists", hint="cd to another folder")
    paths = [str(path) for path in (error.filename, error.filename2) if path is not None]
    title = what or ": ".join([" and ".join(paths), message] if paths else [message])
    return UsageError(title, details=[message] if what else [], hint=REMEDIES.get(error.errno or 0, ""))


def _is_nowhere() -> bool:
    """Return whether the working folder has been deleted."""
    try:
        os.getcwd()  # noqa: PTH109
    except FileNotFoundError:
        return True
    return False
