"""A command line of a user's own, with places in braces.

It is split into words as a POSIX shell would split it, quotes included, and no shell runs it: no variables, no pipes.
Then the places are filled within the words, so that a path with a blank stays one word. Any other name in braces is a
mistake, unless it is a shell's `${NAME}`; braces around anything else are left alone.
"""

import re
import shlex
from collections.abc import Collection

from mtool.base import spelling
from mtool.base.errors import UsageError

_NAMED = re.compile(r"(?<!\$)\{([A-Za-z_]\w*)\}")


def words_of(text: str, places: Collection[str], *, what: str) -> list[str]:
    """Return the words of a command line, its places as they are.

    Args:
        text: the command line.
        places: the names that may stand in braces.
        what: what it is, for messages.

    Raises:
        UsageError: it has no words, a quote that is not closed, or another name in braces.
    """
    try:
        words = shlex.split(text)
    except ValueError as wrong:
        raise UsageError(f"{what} can't be read", details=[text, str(wrong).lower()]) from None
    if not words or not words[0]:
        raise UsageError(f"{what} names no program", details=[f"found {text!r}"])
    for name in _NAMED.findall(text):
        if name not in places:
            details = [text, f"known: {', '.join(f'{{{one}}}' for one in places)}"]
            hint = spelling.did_you_mean(name, places)
            raise UsageError(f"{what} has the unknown placeholder {{{name}}}", details=details, hint=hint)
    return words
