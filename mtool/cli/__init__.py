"""The command line: `mtool COMMAND`. One file a command; each does nothing that Python can't do with the same words."""

import sys

INTERRUPTED = 130


def main() -> None:
    """Run `mtool` with the process's arguments and end the process with its exit code."""
    try:
        from mtool.cli.app import main as run

        run()
    except KeyboardInterrupt:  # while the modules are loaded; app tells the rest
        sys.exit(INTERRUPTED)
