"""The style of the figures in the documentation: sizes in pixels, few colours, legible in light and in dark."""

import html
import io
import json
import re
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle

WIDTH = 760
SIZE, SMALL = 12.5, 11.0
# A placeholder that matplotlib writes, and what it stands for: in light, in dark.
_COLOURS = {
    "ink": ("#0a0001", "#1f2937", "#e5e7eb"),
    "muted": ("#0a0002", "#5b6472", "#9aa5b4"),
    "line": ("#0a0003", "#cfd6df", "#3c4552"),
    "card": ("#0a0004", "#ffffff", "#14181f"),
    "plain": ("#0a0005", "#f1f4f8", "#1f2630"),
    "main": ("#0a0006", "#0f766e", "#2dd4bf"),
    "main_soft": ("#0a0007", "#d3f0ec", "#12413e"),
    "other": ("#0a0008", "#a3aebd", "#5c6878"),
    "warm": ("#0a0009", "#b45309", "#f5b14c"),
    "warm_soft": ("#0a0010", "#fdebcf", "#4a3313"),
    "blue": ("#0a0011", "#2563b8", "#6ea8f7"),
    "blue_soft": ("#0a0012", "#dceafb", "#1b3556"),
}
INK, MUTED, LINE, CARD, PLAIN = (_COLOURS[name][0] for name in ("ink", "muted", "line", "card", "plain"))
MAIN, MAIN_SOFT, OTHER = (_COLOURS[name][0] for name in ("main", "main_soft", "other"))
WARM, WARM_SOFT, BLUE, BLUE_SOFT = (_COLOURS[name][0] for name in ("warm", "warm_soft", "blue", "blue_soft"))
_SANS = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"
_MONO = "ui-monospace, SFMono-Regular, Consolas, 'DejaVu Sans Mono', monospace"
_DATA = re.compile(r"<metadata>(.*?)</metadata>", re.DOTALL)

matplotlib.rcParams.update(
    {
        "svg.fonttype": "none",
        "svg.hashsalt": "mtool",
        "font.family": ["DejaVu Sans"],
        "font.size": SIZE,
        "text.color": INK,
        "text.parse_math": False,
        "axes.edgecolor": LINE,
        "axes.facecolor": "none",
        "axes.labelcolor": MUTED,
        "axes.labelsize": SMALL,
        "axes.titlelocation": "left",
        "axes.titlesize": SIZE,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "grid.color": LINE,
        "grid.linewidth": 0.7,
        "xtick.color": LINE,
        "ytick.color": LINE,
        "xtick.labelcolor": MUTED,
        "ytick.labelcolor": MUTED,
        "xtick.labelsize": SMALL,
        "ytick.labelsize": SMALL,
        "legend.frameon": False,
        "legend.fontsize": SMALL,
    }
)


class Picture:
    """A canvas of pixels, from the top left, and charts on it."""

    def __init__(self, height: float, width: float = WIDTH) -> None:
        self.width, self.height = width, height
        self.figure = Figure(figsize=(width / 72, height / 72), dpi=72, facecolor="none")
        self.canvas = self._axes(0, 0, width, height)
        self.canvas.set(xlim=(0, width), ylim=(height, 0))
        self.canvas.axis("off")
        card = FancyBboxPatch((0.5, 0.5), width - 1, height - 1, boxstyle="round,pad=0,rounding_size=8")
        card.set(facecolor=CARD, edgecolor=LINE, linewidth=1)
        self.canvas.add_patch(card)

    def _axes(self, x: float, y: float, width: float, height: float) -> Axes:
        place = (x / self.width, 1 - (y + height) / self.height, width / self.width, height / self.height)
        return self.figure.add_axes(place)

    def chart(self, x: float, y: float, width: float, height: float, title: str = "", grid: str = "") -> Axes:
        """Return the axes of a chart whose inner area is at a place."""
        axes = self._axes(x, y, width, height)
        axes.tick_params(length=0, pad=5)
        if grid:
            axes.grid(axis=grid)
        if title:
            self.text(x, y - 14, title, weight="bold")
        return axes

    def heading(self, text: str, below: str = "") -> None:
        """Write what the picture shows in its top left corner."""
        self.text(20, 27, text, size=14.5, weight="bold")
        if below:
            self.text(20, 47, below, size=SMALL, colour=MUTED)

    def text(self, x: float, y: float, text: str, *, size: float = SIZE, colour: str = INK, anchor: str = "left",
             mono: bool = False, weight: str = "normal") -> None:  # fmt: skip
        """Write a line, centred on y."""
        family = {"family": "DejaVu Sans Mono"} if mono else {}
        self.canvas.text(x, y, text, size=size, color=colour, ha=anchor, va="center_baseline", weight=weight, **family)

    def note(self, x: float, y: float, text: str, anchor: str = "left") -> None:
        """Write a small line in grey."""
        self.text(x, y, text, size=SMALL, colour=MUTED, anchor=anchor)

    def code(self, x: float, y: float, lines: list[str], *, size: float = 10.5, step: float = 16) -> None:
        """Write lines of code; comments are muted."""
        for number, line in enumerate(lines):
            start = len(line) - len(line.lstrip())
            is_comment = line.lstrip().startswith(("/*", "*", "//"))
            self.text(x + start * size * 0.602, y + number * step, line.lstrip(), size=size, mono=True,
                      colour=MUTED if is_comment else INK)  # fmt: skip

    def box(self, x: float, y: float, width: float, height: float, *, fill: str = PLAIN, edge: str = "none",
            radius: float = 5, dashed: bool = False) -> None:  # fmt: skip
        """Draw a rectangle."""
        style = f"round,pad=0,rounding_size={radius}"
        patch = FancyBboxPatch((x, y), width, height, boxstyle=style) if radius else Rectangle((x, y), width, height)
        patch.set(facecolor=fill, edgecolor=edge, linewidth=1.1, linestyle=(0, (4, 3)) if dashed else "-")
        self.canvas.add_patch(patch)

    def card(self, x: float, y: float, width: float, height: float, title: str, lines: list[str] | str = (), *,
             fill: str = PLAIN, edge: str = "none", mono: bool = False) -> None:  # fmt: skip
        """Draw a box with a title and lines below it."""
        lines = [lines] if isinstance(lines, str) else list(lines)
        self.box(x, y, width, height, fill=fill, edge=edge)
        top = y + height / 2 - 17 * len(lines) / 2
        self.text(x + width / 2, top, title, anchor="center", weight="bold")
        for number, line in enumerate(lines):
            self.text(x + width / 2, top + 18 + 16 * number, line, size=SMALL, anchor="center", mono=mono, colour=MUTED)

    def arrow(self, x: float, y: float, to_x: float, to_y: float, *, colour: str = MUTED, both: bool = False,
              bend: float = 0, dashed: bool = False) -> None:  # fmt: skip
        """Draw an arrow."""
        style = "<|-|>" if both else "-|>"
        patch = FancyArrowPatch((x, y), (to_x, to_y), arrowstyle=f"{style},head_length=5,head_width=2.6",
                                connectionstyle=f"arc3,rad={bend}", shrinkA=0, shrinkB=0)  # fmt: skip
        patch.set(color=colour, linewidth=1.3, linestyle=(0, (4, 3)) if dashed else "-")
        self.canvas.add_patch(patch)

    def line(self, x: float, y: float, to_x: float, to_y: float, *, colour: str = LINE, dashed: bool = False) -> None:
        """Draw a line."""
        self.canvas.plot([x, to_x], [y, to_y], color=colour, lw=1.1, ls=(0, (4, 3)) if dashed else "-")

    def keys(self, x: float, y: float, names: dict[str, str], step: float = 0) -> None:
        """Explain colours, in a row."""
        for name, colour in names.items():
            self.box(x, y - 5.5, 11, 11, fill=colour, radius=2)
            self.text(x + 17, y, name, size=SMALL, colour=MUTED)
            x += step or 40 + 6.2 * len(name)

    def svg(self, title: str, description: str, data: Any) -> str:
        """Return the picture, with its data as JSON in <metadata>."""
        out = io.StringIO()
        empty = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        self.figure.savefig(out, format="svg", transparent=True, metadata=empty)
        text = out.getvalue()
        body = text[text.index(">", text.index("<svg")) + 1 :]
        body = re.sub(r"<metadata>.*?</metadata>|<defs>\s*<style.*?</style>\s*</defs>", "", body, flags=re.DOTALL)
        for name, (placeholder, *_) in _COLOURS.items():
            body = body.replace(placeholder, f"var(--{name.replace('_', '-')})")
        body = body.replace("'DejaVu Sans Mono'", "M0NO").replace("'DejaVu Sans'", "SANS")
        body = body.replace("M0NO", "var(--mono)").replace("SANS", "var(--sans)")
        body = re.sub(r"font: ((?:[\w.]+ )*)([\d.]+px) (var\(--\w+\))[^;\"]*", _font, body)
        body = re.sub(r"<!--.*?-->\s*", "", body, flags=re.DOTALL)
        body = re.sub(r"\n\s+", "\n", body)
        kept = html.escape(json.dumps(data, ensure_ascii=False, separators=(",", ":")), quote=False)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
            f'viewBox="0 0 {self.width:g} {self.height:g}" width="{self.width:g}" height="{self.height:g}" '
            f'role="img" aria-labelledby="title desc">\n'
            f'<title id="title">{html.escape(title)}</title>\n<desc id="desc">{html.escape(description)}</desc>\n'
            f"<metadata>{kept}</metadata>\n{_style()}{body.lstrip()}"
        )


def _font(found: re.Match[str]) -> str:
    weight = "font-weight: bold; " if "bold" in found[1] or "700" in found[1] else ""
    return f"{weight}font-size: {found[2]}; font-family: {found[3]}"


def _style() -> str:
    def names(which: int) -> str:
        return "".join(f"--{name.replace('_', '-')}:{values[which]};" for name, values in _COLOURS.items())

    return (
        f"<style>\nsvg{{--sans:{_SANS};--mono:{_MONO};{names(1)}}}\n"
        f"@media (prefers-color-scheme:dark){{svg{{{names(2)}}}}}\n"
        "*{stroke-linejoin:round;stroke-linecap:butt}\n</style>\n"
    )


def data_in(path: Path) -> Any:
    """Return the data from which a figure was drawn; None: there is no such figure."""
    found = _DATA.search(path.read_text()) if path.is_file() else None
    return json.loads(html.unescape(found[1])) if found else None
