"""The end of a command that did not fail: it was interrupted, or nobody reads its output any more."""

INTERRUPTED = 130
"""The exit code after Ctrl-C."""

TERMINATED = 143
"""The exit code after SIGTERM."""


HUNG_UP = 129
"""The exit code after SIGHUP: the terminal was closed."""


class ReaderGone(Exception):
    """The reader of standard output has ended, for instance `head`: nobody wants more."""
