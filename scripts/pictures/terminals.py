"""Sessions in a terminal, from real runs."""

import html
import io
import json
import os
import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outputs import DIGITS, GAP, is_shown, printed_by
from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from pictures.figure import (
    ALL,
    BOARD,
    FIGURES,
    folder,
)


@dataclass(frozen=True)
class Session:
    """Commands in a terminal: how wide it is, what is done before the last one, and which lines are left out."""

    name: str
    title: str
    commands: tuple[str, ...]
    columns: int = 100
    first: int = 100
    last: int = 0
    before: Callable[[], None] = lambda: None
    is_live: bool = True

    @property
    def path(self) -> Path:
        """Where it is."""
        return FIGURES / f"{self.name}.svg"

    @property
    def description(self) -> str:
        """What it shows."""
        return f"A terminal with {' and '.join(self.commands)} and what mtool prints."

    def current_data(self) -> Any:
        """Run the commands; return the lines with their colours."""
        lines: list[str] = []
        with folder() as place, terminal(self.columns, place / "cache"):
            for path in (*DIGITS.glob("*.onnx"), *DIGITS.glob("*.npz")):
                Path(path.name).write_bytes(path.read_bytes())
            self.before()
            for command in self.commands:
                words = shlex.split(command, comments=True)
                printed_lines = [line.rstrip() for line in printed_by(words, is_terminal=self.is_live)[2]]
                if len(printed_lines) > self.first + self.last:
                    printed_lines[self.first : len(printed_lines) - self.last] = [GAP]
                lines += ["", f"$ {command}", *printed_lines]
        return lines[1:]

    def is_same(self, kept: Any, found: Any) -> bool:
        """Return whether two runs printed the same, apart from times, versions and paths."""
        plain = [[Text.from_ansi(line).plain for line in lines] for lines in (kept, found)]
        return is_shown(*plain)

    def svg(self, data: Any) -> str:
        """Return the terminal as SVG, by Rich."""
        console = Console(
            record=True, width=self.columns, file=io.StringIO(), force_terminal=True, color_system="truecolor"
        )
        for line in data:
            text = Text.from_ansi(line)
            if line.startswith("$ "):
                text.stylize("bold green", 0, 1)
                text.stylize("bold", 2)
                text.stylize("not bold bright_black", (line + "   # ").index("   # "))
            console.print(text)
        name, description = html.escape(self.title), html.escape(self.description)
        kept = html.escape(json.dumps(data, ensure_ascii=False, separators=(",", ":")), quote=False)
        head = f'<title id="title">{name}</title>\n<desc id="desc">{description}</desc>\n<metadata>{kept}</metadata>'
        made = console.export_svg(
            title="",
            theme=_TERMINAL,
            code_format=_SVG.replace("HEAD", head.replace("{", "{{").replace("}", "}}")),
            unique_id=self.name,
        )
        return re.sub(r"\n\s+", "\n", made)


_TERMINAL = TerminalTheme(
    (20, 24, 31),
    (222, 227, 234),
    [
        (60, 69, 82),
        (248, 113, 113),
        (45, 212, 191),
        (245, 177, 76),
        (110, 168, 247),
        (196, 161, 245),
        (94, 200, 224),
        (222, 227, 234),
    ],
    [
        (134, 146, 162),
        (248, 113, 113),
        (45, 212, 191),
        (245, 177, 76),
        (110, 168, 247),
        (196, 161, 245),
        (94, 200, 224),
        (255, 255, 255),
    ],
)
# Rich's own, without the fonts that it loads from a server.
_SVG = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"
role="img" aria-labelledby="title desc">
HEAD
<style>
.{unique_id}-matrix{{font-family:ui-monospace,SFMono-Regular,Consolas,'DejaVu Sans Mono',monospace;
font-size:{char_height}px;line-height:{line_height}px;white-space:pre}}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/></clipPath>{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">{matrix}</g>
</g>
</svg>
"""


@contextmanager
def terminal(columns: int, cache: Path) -> Iterator[None]:
    """Be a terminal of a width, with colours, whose user runs mtool for the first time."""
    own = {"COLUMNS": str(columns), "MTOOL_CACHE": str(cache), "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    before = dict(os.environ)
    os.environ.update(own)
    os.environ.pop("NO_COLOR", None)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _with_a_bug() -> None:
    """Generate the C, and write outside of the model's memory in one operator."""
    printed_by(["mtool", "compile", "digits_int8.onnx", "--board", BOARD])
    printed_by(["mtool", "build", "digits_int8.onnx", "--board", BOARD, "--protect", "-d", "broken", "-q"])
    path = Path("broken/model/digits_int8.c")
    text = path.read_text()
    at = text.index("    int8_t *const patch", text.index(" digits_int8_conv_2("))
    path.write_text(f"{text[:at]}    *(volatile int32_t *)0x20001000 = 0;\n{text[at:]}")


for one in (
    Session("first-run", "The first run", (f"mtool run digits_int8.onnx --board {BOARD}",)),
    Session(
        "verify-layers",
        "mtool verify, operator by operator",
        (
            f"mtool verify digits_int8.onnx --board {BOARD} -q",
            f"mtool verify digits_int8.onnx --board {BOARD} --layers -q",
        ),
    ),
    Session(
        "check-all",
        "mtool check on all boards",
        ("mtool check digits_int8.onnx --board all",),
        columns=126,
        first=24,
        last=1,
    ),
    Session(
        "tune-search",
        "mtool tune",
        ("mtool tune digits_int8.onnx --board qemu_riscv32 --no-builds --trials 60",),
        columns=130,
        is_live=False,
    ),
    Session(
        "fault",
        "A fault with its operator",
        (f"mtool run digits_int8.onnx --board {BOARD} --protect -d broken --keep -q   # conv_2 has a wild pointer",),
        columns=128,
        before=_with_a_bug,
    ),
):
    ALL[one.name] = one
