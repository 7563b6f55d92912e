"""The documentation's pages, their blocks of code, and the commands in those."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CODE_OF_CONDUCT.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").glob("*/README.md")),
]

_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"(?:(?<=\n\n)|\A)((?: {4}.*\n|\n)+)")
_ENDS = ("|", ">", ">>", "<", "&&", "||", ";", "&")  # of a command, in a shell


@dataclass(frozen=True, slots=True)
class Command:
    """A command that a page shows: its words behind `mtool`, and what the page says that it prints."""

    line: str
    words: tuple[str, ...]
    output: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The command's name: the first word that is not an option."""
        return next((word for word in self.words if not word.startswith("-")), "")


def blocks(text: str, language: str = "") -> list[str]:
    """Return the blocks of code of a page: all, or those marked with a language."""
    fenced = [(found[2], re.sub(rf"^{found[1]}", "", found[3], flags=re.MULTILINE)) for found in _FENCE.finditer(text)]
    if language:
        return [block for name, block in fenced if name == language]
    indented = (
        re.sub(r"^ {4}", "", found[1], flags=re.MULTILINE) for found in _INDENTED.finditer(_FENCE.sub("", text))
    )
    return [block for _, block in fenced] + [block for block in indented if block.strip()]


def commands(text: str) -> list[Command]:
    """Return the commands of a page's blocks, each with what it prints there."""
    return [command for block in blocks(text) for command in _of_block(block)]


def mentioned(text: str) -> list[Command]:
    """Return what stands as `mtool …` in a page's sentences: a command, or its beginning."""
    return [_command(line) for line in re.findall(r"`mtool ([^`\n]+)`", _FENCE.sub("", text))]


def _of_block(block: str) -> Iterator[Command]:
    lines = iter(re.sub(r" *\\\n\s*", " ", block).splitlines())
    found: Command | None = None
    output: list[str] = []
    for line in [*lines, "$ end"]:
        if (start := re.match(r"(?:\$ )?mtool (.*)", line)) is not None or line.startswith("$ "):
            if found is not None:
                yield Command(found.line, found.words, tuple(output))
            found, output = None if start is None else _command(start[1]), []
        elif found is not None:
            output.append(line)


def _command(line: str) -> Command:
    words = shlex.split(line, comments=True)
    end = next((index for index, word in enumerate(words) if word in _ENDS), len(words))
    return Command(f"mtool {line}", tuple(words[:end]))
