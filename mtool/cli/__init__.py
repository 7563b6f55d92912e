"""The command line: `mtool COMMAND`. One file a command; each does nothing that Python can't do with the same words."""

import gc
import os
import signal
import sys
import warnings

from mtool.cli.ending import HUNG_UP, INTERRUPTED, TERMINATED

_ALLOCATIONS = 150_000  # between two looks for cycles: modules and graphs are many objects, of which few are garbage


def main() -> None:
    """Run `mtool` with the process's arguments and end the process with its exit code."""
    _open_standard_streams()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))  # what was started is ended too
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:  # not under nohup
        signal.signal(signal.SIGHUP, lambda *_: sys.exit(HUNG_UP))
    gc.set_threshold(_ALLOCATIONS)
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # else it searches what is installed for some
    if not sys.warnoptions:  # -W shows them
        warnings.simplefilter("ignore")  # NumPy's, of what a strange model computes: no message of mtool's
    try:
        from mtool.cli.app import main as run

        run()
    except KeyboardInterrupt:  # while the modules are loaded; app tells the rest
        sys.exit(INTERRUPTED)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C would end the interpreter with a traceback
        gc.freeze()  # the interpreter's end looks for cycles once more; the operating system is faster


def _open_standard_streams() -> None:
    """Open what was closed of the three standard streams on nothing.

    Else the next file that is opened has its number, and what a library prints goes into that file.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the smallest number that is free: this one
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115
