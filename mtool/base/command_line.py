"""A user's command line with placeholders in braces.

It is split into words as a POSIX shell would split it, quotes included, but no shell runs it: no variables, no pipes.
Placeholders are filled in after that, so that a path with a space stays one word. Any other name in braces is an
error, unless it is a shell's `${NAME}`; braces around anything else stay as they are.
"""

import re
import shlex
from collections.abc import Collection

from mtool.base import spelling
from mtool.base.errors import UsageError

_NAMED = re.compile(r"(?<!\$)\{([A-Za-z_]\w*)\}")


def words_of(text: str, places: Collection[str], *, what: str) -> list[str]:
    """Return the words of a command line, with its placeholders.

    Args:
        text: the command line.
        places: the names of the placeholders.
        what: what the command line is for, for messages.

    Raises:
        UsageError: it is empty, has an unclosed quote, or an unknown placeholder.
    """
    try:
        words = shlex.split(text)
    except ValueError as wrong:
        raise UsageError(f"{what} can't be read", details=[text, str(wrong).lower()]) from None
    if not words or not words[0]:
        raise UsageError(f"{what} contains no program", details=[f"found {text!r}"])
    for name in _NAMED.findall(text):
        if name not in places:
            details = [text, f"known: {', '.join(f'{{{place}}}' for place in places)}"]
            hint = spelling.did_you_mean(name, places)
            raise UsageError(f"{what} has the unknown placeholder {{{name}}}", details=details, hint=hint)
    return words
