"""Charts of arenas over time."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from matplotlib.patches import Rectangle

import mtool
from pictures.figure import BOARD, DIGITS_MODEL, figure, tiny
from pictures.style import BLUE, BLUE_SOFT, CARD, INK, MAIN, OTHER, SMALL, WARM, Picture


def _compiled(path: Path, board: str = BOARD, **options: Any) -> Any:
    return mtool.compile(path, board=board, options=mtool.Options(**options)).manifest


_BLOCK = 16
_PART = re.compile(r" (rows|kept|padding|edge) \d+$")


def _live_bytes(manifest: Any, pool: int = 0) -> dict[str, Any]:
    """Return which bytes of an arena hold which tensor at each step, as rectangles: owner, steps, bytes."""
    ends = [(tensor.arena_offset, tensor.bytes, tensor.name) for tensor in manifest.outputs if tensor.pool == pool]
    begins = [(tensor.arena_offset, tensor.bytes, tensor.name) for tensor in manifest.inputs if tensor.pool == pool]
    steps = manifest.operators
    if manifest.io == "external":
        begins, ends = [], []
    kinds = dict.fromkeys((name for *_, name in ends), "output") | dict.fromkeys((name for *_, name in begins), "input")

    def touched(operands: Any) -> Iterator[tuple[int, int]]:
        for one in operands:
            if one.memory == "arena" and one.index == pool:
                yield from (
                    (block, one) for block in range(one.offset // _BLOCK, -(-(one.offset + one.bytes) // _BLOCK))
                )

    live: list[dict[int, str]] = [{} for _ in steps]
    held: dict[int, tuple[str, int]] = {}

    def close(block: int, last: int) -> None:
        name, since = held[block]
        for step in range(max(since, 0), last + 1):
            live[step][block] = name

    for offset, count, name in begins:
        held |= dict.fromkeys(range(offset // _BLOCK, -(-(offset + count) // _BLOCK)), (name, -1))
    for step, one in enumerate(steps):
        for block, _ in touched(one.reads):
            if block in held:
                close(block, step)
        for block, operand in touched(one.writes):
            held[block] = (_PART.sub("", operand.value), step)
            live[step].setdefault(block, held[block][0])
        if one.scratch_bytes and one.scratch_pool == pool:
            for block in range(one.scratch_offset // _BLOCK, -(-(one.scratch_offset + one.scratch_bytes) // _BLOCK)):
                live[step].setdefault(block, "scratch")
    for offset, count, name in ends:
        for block in range(offset // _BLOCK, -(-(offset + count) // _BLOCK)):
            held[block] = (name, held[block][1])
            close(block, len(steps) - 1)
    found: list[list[Any]] = []
    open_runs: dict[tuple[str, int, int], list[Any]] = {}
    for step, blocks in enumerate(live):
        runs: list[list[Any]] = []
        for block in sorted(blocks):
            if runs and runs[-1][0] == blocks[block] and runs[-1][2] == block:
                runs[-1][2] = block + 1
            else:
                runs.append([blocks[block], block, block + 1])
        now = {}
        for run in map(tuple, runs):
            now[run] = open_runs.get(run) or [run[0], step, step, run[1] * _BLOCK, run[2] * _BLOCK]
            now[run][2] = step
            if run not in open_runs:
                found.append(now[run])
        open_runs = now
    names = list(dict.fromkeys(one[0] for one in found))
    kind = {name: kinds.get(name, "scratch" if name == "scratch" else "tensor") for name in names}
    size = manifest.arena_bytes if not manifest.pools else manifest.pools[pool].bytes
    return {
        "steps": [one.label for one in steps],
        "bytes": size,
        "rectangles": [[kind[name], names.index(name), *rest] for name, *rest in found],
    }


_KINDS = {"input": BLUE, "tensor": MAIN, "scratch": OTHER, "output": WARM}


def _draw_arena(axes: Any, data: dict[str, Any], top: float) -> None:
    """Draw tensors as areas: steps across, bytes up."""
    for kind, number, first, last, low, high in data["rectangles"]:
        soft = kind == "tensor" and number % 2
        axes.add_patch(
            Rectangle(
                (first + 0.04, low),
                last - first + 0.92,
                high - low,
                facecolor=_KINDS[kind],
                edgecolor=CARD,
                linewidth=0.6,
                alpha=0.62 if soft else 1,
            )
        )
    axes.axhline(data["bytes"], color=INK, lw=1, ls=(0, (4, 3)))
    axes.set(xlim=(0, len(data["steps"])), ylim=(0, top))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value / 1024:g} KB" if value else "0")


_KEYS = {"input": BLUE, "tensors between operators": MAIN, "scratch of one operator": OTHER, "output": WARM}


@figure(lambda: _live_bytes(_compiled(DIGITS_MODEL)))
def arena(data: Any) -> Picture:
    """The arena of the example over time.

    Areas in a chart with the operators across and bytes of the arena up: the input, tensors, scratch and output
    each take bytes only from the operator that writes them to the last that reads them, and later tensors reuse
    them.
    """
    picture = Picture(382)
    picture.heading(
        "One arena, shared over time", f"digits_int8 on a Cortex-M4: {data['bytes']:,} bytes, planned at compile time"
    )
    picture.keys(20, 80, _KEYS)
    axes = picture.chart(76, 106, 664, 226, grid="y")
    _draw_arena(axes, data, data["bytes"] * 1.1)
    axes.set_yticks(range(0, 4096, 1024))
    axes.text(0.06, data["bytes"] * 1.02, f"the arena's size, {data['bytes']:,} B", size=SMALL)
    axes.set_xticks(
        [step + 0.5 for step in range(len(data["steps"]))], [name.replace(" ", "\n", 1) for name in data["steps"]]
    )
    for kind, _, first, last, low, high in data["rectangles"]:
        if high - low >= 250 and kind in ("tensor", "scratch"):
            axes.text(
                (first + last + 1) / 2,
                (low + high) / 2,
                f"{high - low:,} B",
                ha="center",
                va="center_baseline",
                color=CARD if kind == "tensor" else INK,
                size=SMALL,
            )
    return picture


def _vww(**options: Any) -> Any:
    return _live_bytes(_compiled(tiny("vww_int8_qdq.onnx"), **options))


def _pair(data: dict[str, Any], heading: str, below: str, titles: Sequence[str], grid_kb: int = 8) -> Picture:
    """Draw two arenas to one scale."""
    picture = Picture(372)
    picture.heading(heading, below)
    picture.keys(20, 80, _KEYS)
    top = max(one["bytes"] + one.get("caller", 0) for one in data.values()) * 1.12
    for x, one, title in zip((76, 442), data.values(), titles, strict=True):
        axes = picture.chart(x, 132, 298, 190, title=title, grid="y")
        _draw_arena(axes, one, top)
        axes.set_yticks(range(0, int(top), grid_kb * 1024))
        axes.set(xticks=[], xlabel=f"{len(one['steps'])} steps, first to last")
        total = one["bytes"] + one.get("caller", 0)
        if one.get("caller"):
            axes.add_patch(
                Rectangle((0, one["bytes"]), len(one["steps"]), one["caller"], facecolor=BLUE_SOFT, edgecolor=BLUE)
            )
            axes.text(
                len(one["steps"]) / 2,
                one["bytes"] + one["caller"] / 2,
                "input and output, the caller's",
                ha="center",
                va="center_baseline",
                size=SMALL,
            )
        axes.text(len(one["steps"]), total + top * 0.015, f"{total:,} B", ha="right", size=SMALL, weight="bold")
    return picture


@figure(lambda: {"whole": _vww(partial="never"), "by rows": _vww()})
def arena_by_rows(data: Any) -> Picture:
    """An arena without and with execution by rows.

    Two charts of the arena of visual wake words over its steps. Without execution by rows a tensor of the first
    operators makes a peak of 41.8 KB; with it, the tensors are computed a few rows at a time and the arena has 28.2
    KB.
    """
    return _pair(
        data,
        "Without and with execution by rows",
        "visual wake words in int8 on a Cortex-M4, one scale",
        ("--partial never: whole tensors", "--partial auto: a few rows at a time"),
    )


def _arena_io() -> Any:
    found = {}
    for io in ("external", "arena"):
        manifest = _compiled(tiny("vww_int8_qdq.onnx"), io=io)
        own = sum(one.bytes for one in (*manifest.inputs, *manifest.outputs)) if io == "external" else 0
        found[io] = _live_bytes(manifest) | {"caller": own}
    return found


@figure(_arena_io)
def arena_io(data: Any) -> Picture:
    """Inputs and outputs inside and outside the arena.

    Two charts of the RAM of visual wake words. Outside the arena, the input and output take 27.7 KB of the caller's
    for the whole time; inside, other tensors use these bytes once the input has been read.
    """
    return _pair(
        data,
        "Inputs and outputs share the arena",
        "visual wake words in int8 on a Cortex-M4",
        ("--io external", "--io arena, the default"),
        16,
    )


def _pools() -> Any:
    words = {"dtcm": 20 << 10, "sram": 64 << 10}
    manifest = _compiled(
        tiny("vww_int8_qdq.onnx"), "stm32f746g_disco", pools=tuple(mtool.Pool(*one) for one in words.items())
    )
    return {name: _live_bytes(manifest, number) for number, name in enumerate(words)}


@figure(_pools)
def pools(data: Any) -> Picture:
    """An arena in two memories.

    Two charts of visual wake words on a board with two memories: the fast DTCM holds the tensors with most accesses
    per byte, the larger SRAM the input and the large tensors at the start.
    """
    return _pair(
        data,
        "Tensors in two memories",
        "visual wake words on an STM32F746: --pool dtcm=20KiB --pool sram=64KiB",
        ("dtcm, the fast memory", "sram, the larger one"),
    )
