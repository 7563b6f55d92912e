"""The end of a command that did not fail: it was interrupted, or its output is no longer read."""

INTERRUPTED = 130
"""The exit code after Ctrl-C."""

TERMINATED = 143
"""The exit code after SIGTERM."""


HUNG_UP = 129
"""The exit code after SIGHUP: the terminal was closed."""


class ReaderGone(Exception):
    """The reader of standard output, for instance `head`, has closed it."""
