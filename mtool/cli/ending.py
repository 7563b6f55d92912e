"""How a command ends where nothing is wrong with it: it is interrupted, or nobody reads what it says."""

INTERRUPTED = 130
"""The exit code after Ctrl-C."""


class ReaderGone(Exception):
    """What reads standard output has ended, for instance `head`: nobody wants more."""
