"""Commands of an external compiler or simulator: as the user wrote them, without a shell."""

import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from mtool.base.errors import UsageError

_PLACE = re.compile(r"\{(\w+)\}")


def words_of(text: str, what: str, here: Path | None, places: frozenset[str]) -> tuple[str, ...]:
    """Return the words of a command; a path of a file that is there is made absolute, as it runs in another folder.

    Args:
        text: the command, quoted as for a POSIX shell.
        what: "compiler" or "simulator".
        here: the folder that {here} stands for; None: it stands for nothing.
        places: the other placeholders that it may have.

    Raises:
        UsageError: it is empty, a quote is open, or a placeholder is not one of those.
    """
    try:
        words = shlex.split(text)
    except ValueError as open_quote:
        raise UsageError(f"{what}={text}: {str(open_quote).lower()}") from None
    if not words:
        raise UsageError(f"{what}= is empty", hint="give the command that runs it")
    known = places | ({"here"} if here is not None else set())
    for word in words:
        wrong = next((one for one in _PLACE.findall(word) if one not in known), None)
        if wrong is not None:
            listed = ", ".join(f"{{{one}}}" for one in sorted(known))
            raise UsageError(f"{what}={text}: there is no {{{wrong}}}", details=[f"there are: {listed}"])
    if here is not None:
        words = [word.replace("{here}", str(here)) for word in words]
    return tuple(_absolute(word, is_program=not number) for number, word in enumerate(words))


def filled(words: tuple[str, ...], values: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Return words with their placeholders filled; one of several values, alone in a word, becomes several words."""
    found: list[str] = []
    for word in words:
        alone = _PLACE.fullmatch(word)
        if alone and alone[1] in values:
            found += values[alone[1]]
        else:
            found.append(_PLACE.sub(lambda place: " ".join(values.get(place[1], (place[0],))), word))
    return found


def _absolute(word: str, *, is_program: bool) -> str:
    path = Path(word)
    is_path = "/" in word or not is_program
    return str(path.resolve()) if is_path and not path.is_absolute() and path.is_file() else word
