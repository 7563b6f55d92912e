"""The command line: `mtool COMMAND`. One file per command; Python code can do the same through `mtool`."""

import gc
import os
import signal
import sys
import warnings

from mtool.cli.ending import HUNG_UP, INTERRUPTED, TERMINATED

_ALLOCATIONS = 5_000_000  # between two searches for cycles: modules and graphs are many objects, few of them garbage


def main() -> None:
    """Run `mtool` with the process's arguments and end the process with its exit code."""
    _open_standard_streams()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))  # lets `finally` end children
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:  # not under nohup
        signal.signal(signal.SIGHUP, lambda *_: sys.exit(HUNG_UP))
    gc.set_threshold(_ALLOCATIONS)
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # else it searches all packages for some
    if not sys.warnoptions:  # -W shows them
        warnings.simplefilter("ignore")  # NumPy's, about values that a model computes: not mtool's own messages
    try:
        from mtool.cli.app import main as run

        run()
    except KeyboardInterrupt:  # while modules are being loaded; later ones are handled in app
        sys.exit(INTERRUPTED)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C would end the interpreter with a traceback
        gc.freeze()  # skips the interpreter's last search for cycles; the operating system frees memory faster


def _open_standard_streams() -> None:
    """Open those of the three standard streams that are closed on the null device.

    Otherwise the next file to be opened gets the stream's number, and what a library prints goes into that file.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115
