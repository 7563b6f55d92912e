"""Charts of what was measured: speed, size, cycles, searches."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import bench

from mtool import boards
from pictures.figure import BOARD, DIGITS_MODEL, DOCS, TINY, amount, figure, folder, printed, short, table, tiny
from pictures.style import BLUE, CARD, INK, MAIN, MUTED, OTHER, PLAIN, SMALL, WARM, Picture

# Instructions of microTVM 0.14 with CMSIS-NN, counted as TFLM's are in scripts/bench.py.
MICROTVM = {"kws": 8288480, "vww": 24107720, "ic": 29844920, "ad": 580000}
# MLPerf Tiny v1.3, closed division: ST's X-CUBE-AI 10.2 on a NUCLEO-L4R5ZI-P at 120 MHz, 1000 / inferences per second.
X_CUBE_AI = {"kws": 43.42, "vww": 89.44, "ic": 165.67, "ad": 4.79}


def _benchmarks() -> Any:
    rows = {row["model"]: row for row in json.loads((DOCS / "benchmarks.json").read_text()) if row["board"] == BOARD}
    ours = {name: rows[f"{name}_int8_qdq"] for name in TINY}
    peers = {name: bench.PEERS[BOARD][f"{name}_int8_qdq"] for name in TINY}
    ram = ("arena_bytes", "ram_static_bytes", "stack_bytes")
    published = next(row for row in table("cycles.md", "code | board") if row[0] == "microTVM with CMSIS-NN")
    balanced = {row[0]: amount(row[2]) for row in table("cycles.md", "`size`")}
    return {
        "models": list(TINY.values()),
        "instructions per MAC": {
            "mtool": [round(ours[name]["instructions"] / ours[name]["macs"], 2) for name in TINY],
            "TFLM + CMSIS-NN": [round(peers[name].instructions / ours[name]["macs"], 2) for name in TINY],
            "microTVM + CMSIS-NN": [round(MICROTVM[name] / ours[name]["macs"], 2) for name in TINY],
        },
        "RAM, KB": {
            "mtool": [round(sum(ours[name][key] for key in ram) / 1024, 1) for name in TINY],
            "TFLM + CMSIS-NN": [
                round((peers[name].arena + peers[name].data + peers[name].stack) / 1024, 1) for name in TINY
            ],
        },
        "ms on a NUCLEO-L4R5ZI": {
            "mtool, estimated": [balanced[name.upper()] for name in TINY],
            "X-CUBE-AI, published": [X_CUBE_AI[name] for name in TINY],
            "microTVM + CMSIS-NN, published": [amount(cell) for cell in published[2:]],
        },
    }


def _bars(
    picture: Picture,
    place: tuple[float, float, float, float],
    title: str,
    rows: dict[str, list[float]],
    names: Sequence[str],
    colours: Sequence[str],
    lengths: dict[str, list[float]] | None = None,
) -> None:
    """Draw bars in groups, with their numbers; as long as these, or as `lengths`."""
    axes = picture.chart(*place, title=title)
    axes.spines[["left", "bottom"]].set_visible(False)
    height = 0.8 / len(rows)
    drawn = lengths or rows
    top = max(max(row) for row in drawn.values())
    for number, (key, colour) in enumerate(zip(rows, colours, strict=True)):
        at = [group + number * height for group in range(len(names))]
        axes.barh(at, drawn[key], height * 0.84, color=colour)
        for y, length, value in zip(at, drawn[key], rows[key], strict=True):
            axes.text(
                length + top * 0.015,
                y,
                f"{value:,.3g}" if value < 100 else f"{value:,.0f}",
                size=SMALL,
                va="center_baseline",
                color=MUTED if number else INK,
                weight="normal" if number else "bold",
            )
    axes.set(xlim=(0, top * 1.13), ylim=(len(names) - 0.2 - height / 2, -height / 2), xticks=[])
    axes.set_yticks([group + 0.4 - height / 2 for group in range(len(names))], names)
    axes.tick_params(axis="y", labelcolor=INK)


@figure(_benchmarks)
def benchmarks(data: Any) -> Picture:
    """MLPerf Tiny in int8 on a Cortex-M4.

    Bars of mtool beside TFLM, microTVM and X-CUBE-AI for four models: instructions per multiply-accumulate, RAM,
    and milliseconds on a NUCLEO-L4R5ZI.
    """
    picture = Picture(560)
    picture.heading("MLPerf Tiny, int8, on a Cortex-M4", "Shorter is better.")
    picture.keys(
        20, 78, {"mtool": MAIN, "TFLM with CMSIS-NN": OTHER, "microTVM with CMSIS-NN": BLUE, "X-CUBE-AI 10.2": WARM}
    )
    names, per_mac, ram, ms = data.values()
    brief = [name.replace("keyword spotting", "keywords").split()[0].replace("visual", "wake words") for name in names]
    brief = [name.replace("image", "images").replace("anomaly", "anomalies") for name in brief]
    own = next(iter(ms.values()))
    relative = {key: [value / one for value, one in zip(row, own, strict=True)] for key, row in ms.items()}
    _bars(
        picture,
        (150, 122, 580, 196),
        "Instructions per multiply-accumulate, counted in QEMU",
        per_mac,
        names,
        (MAIN, OTHER, BLUE),
    )
    _bars(picture, (110, 360, 220, 170), "RAM (arena, data, stack), KB", ram, brief, (MAIN, OTHER))
    _bars(picture, (450, 360, 280, 170), "ms at 120 MHz (mtool: estimated)", ms, brief, (MAIN, WARM, BLUE), relative)
    return picture


def _risc_v() -> Any:
    rows = table("risc-v.md", "instructions of an inference")
    cores = ("RV32IMC", "vectors of 128 bits", "vectors of 256 bits", "vectors of 512 bits")
    return {
        "models": [row[0] for row in rows],
        "instructions": {core: [amount(row[at]) for row in rows] for core, at in zip(cores, (1, 2, 4, 5), strict=True)},
    }


@figure(_risc_v)
def risc_v(data: Any) -> Picture:
    """Instructions of an inference on RISC-V cores.

    Bars on a logarithmic scale: four models on RV32IMC and with vectors of 128, 256 and 512 bits, which need 11 to
    63 times fewer instructions.
    """
    picture = Picture(372)
    picture.heading("Instructions of an inference, by instruction set", "int8, logarithmic scale")
    cores = list(data["instructions"])
    colours = (OTHER, MAIN, BLUE, WARM)
    picture.keys(20, 78, dict(zip(cores, colours, strict=True)))
    axes = picture.chart(160, 100, 560, 232, grid="x")
    axes.spines[["left", "bottom"]].set_visible(False)
    for number, (core, colour) in enumerate(zip(cores, colours, strict=True)):
        values = data["instructions"][core]
        at = [group + number * 0.2 for group in range(len(values))]
        axes.barh(at, values, 0.17, color=colour)
        for y, value in zip(at, values, strict=True):
            axes.text(value * 1.07, y, short(value), va="center_baseline", size=10.5, color=INK)
    axes.set(xscale="log", xlim=(8e3, 6e7), ylim=(3.8, -0.2), xticks=[1e4, 1e5, 1e6, 1e7])
    axes.set_xticklabels(["10 k", "100 k", "1 M", "10 M"])
    axes.minorticks_off()
    axes.set_yticks([group + 0.3 for group in range(4)], data["models"])
    axes.tick_params(axis="y", labelcolor=INK)
    return picture


def _executors() -> Any:
    rows = table("aot-table.md", "row", 1)
    return [{"name": row[0], "options": row[1], "total": amount(row[5]), "stack": amount(row[7])} for row in rows]


@figure(_executors)
def executors(data: Any) -> Picture:
    """What each calling convention costs.

    Bars of flash and RAM, and of stack, for eight calling conventions of a keyword spotter. The default takes the
    least; packed functions take 2.5 KB more, the graph executor 10 KB more.
    """
    picture = Picture(352)
    picture.heading("What each calling convention costs", "keyword spotting, int8, a standalone image on a Cortex-M4")
    least = min(row["total"] for row in data)
    names = [row["options"] if row["options"].startswith("-") else "the default" for row in data]
    names = [name.replace("--interface-api packed ", "--interface-api packed\n") for name in names]
    for place, key, title, low in (
        (230, "total", f"Flash and RAM above {least:,.0f} B", least),
        (560, "stack", "Stack, B", 0),
    ):
        axes = picture.chart(place, 100, 230 if low else 130, 232, title=title)
        axes.spines[["left", "bottom"]].set_visible(False)
        values = [row[key] - low for row in data]
        axes.barh(range(len(data)), values, 0.62, color=[MAIN if name == "the default" else OTHER for name in names])
        for y, value in enumerate(values):
            axes.text(
                value + max(values) * 0.02, y, f"{'+' if low else ''}{value:,.0f}", size=SMALL, va="center_baseline"
            )
        axes.set(xlim=(0, max(values) * 1.2), ylim=(len(data) - 0.4, -0.6), xticks=[])
        axes.set_yticks(range(len(data)), names if low else [""] * len(data))
        axes.tick_params(axis="y", labelcolor=INK, labelsize=10)
    return picture


def _bytecode() -> Any:
    rows = {row["model"]: row for row in json.loads((DOCS / "benchmarks.json").read_text()) if row["board"] == BOARD}
    pairs = [(row, rows[f"{row[0].lower()}_int8_qdq"]) for row in table("bytecode.md", "model | instructions")]
    return {
        "models": [row[0] for row, _ in pairs],
        "instructions": {"C": [1.0] * len(pairs), "bytecode": [amount(row[2]) for row, _ in pairs]},
        "code": {"C": [c["flash_code_bytes"] for _, c in pairs], "bytecode": [amount(row[3]) for row, _ in pairs]},
    }


@figure(_bytecode)
def bytecode(data: Any) -> Picture:
    """Bytecode beside compiled C: speed and size.

    Bars of four models: bytecode takes 1.01 to 1.59 times the instructions of compiled C, and 9 to 32% of its code.
    """
    picture = Picture(322)
    picture.heading("Bytecode beside compiled C", "int8 on a Cortex-M4; shorter is better")
    picture.keys(20, 80, {"compiled C, the whole image": BLUE, "bytecode": MAIN})
    names, times, code = data.values()
    _bars(picture, (70, 126, 280, 170), "Instructions, relative to C", times, names, (BLUE, MAIN))
    _bars(picture, (440, 126, 280, 170), "Code without constants, bytes", code, names, (BLUE, MAIN))
    return picture


def _cycles() -> Any:
    found = {}
    with folder():
        for board, emulated, core in (
            ("nucleo_l4r5zi", BOARD, "cortex-m4"),
            ("stm32f746g_disco", "mps2_an500", "cortex-m7"),
        ):
            reads = next(one.reads for one in boards.get(board).memories.values() if one.reads)
            clocks = [f"{board}@{mhz}MHz" for mhz in reads.wait_states]
            words = [word for clock in clocks for word in ("--clock", clock)]
            cycles = printed("bench", str(DIGITS_MODEL), "--board", emulated, "--cycles", *words)["cycles"]
            found[board] = [
                {"wait states": states, "MHz": mhz, "cycles": cycles["cycles"][core], "waits": cycles["waits"][clock]}
                for (mhz, states), clock in zip(reads.wait_states.items(), clocks, strict=True)
            ]
    return found


@figure(_cycles)
def cycles(data: Any) -> Picture:
    """Cycles of an inference by flash wait states.

    Stacked bars for two boards: the core's own cycles, which stay the same, and the cycles in which it waits for
    flash, which grow with the wait states that higher clocks need. Above each bar the milliseconds at that clock.
    """
    picture = Picture(372)
    picture.heading(
        "A faster clock, and more cycles that wait for flash",
        "the example digits_int8, estimated; constants in flash, which has the wait states of the clock",
    )
    picture.keys(20, 80, {"cycles of the core": MAIN, "cycles in which it waits for flash": WARM})
    for place, width, (board, rows) in zip((64, 400), (270, 330), data.items(), strict=True):
        axes = picture.chart(place, 132, width, 176, title=board, grid="y")
        axes.spines["left"].set_visible(False)
        work, waits = ([row[key] / 1000 for row in rows] for key in ("cycles", "waits"))
        axes.bar(range(len(rows)), work, 0.66, color=MAIN)
        axes.bar(range(len(rows)), waits, 0.66, work, color=WARM)
        for x, row in enumerate(rows):
            ms = (row["cycles"] + row["waits"]) / row["MHz"] / 1000
            axes.annotate(
                f"{ms:.2f}", (x, work[x] + waits[x]), (0, 4), textcoords="offset points", ha="center", size=10
            )
        axes.set(ylim=(0, max(map(sum, zip(work, waits, strict=True))) * 1.12))
        axes.set_xticks(range(len(rows)), [f"{row['wait states']}\n{row['MHz']}" for row in rows])
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f} k" if value else "0")
    picture.note(20, 324, "waits")
    picture.note(20, 337, "MHz")
    picture.note(20, 356, "Numbers above the bars are milliseconds of an inference.")
    return picture


def _estimates() -> Any:
    found: dict[str, list[list[float]]] = {}
    for _, board, *cells in table("cycles.md", "code | board"):
        pairs = (re.findall(r"-?[\d.]+", cell) for cell in cells)
        found.setdefault(board.split(",")[0], []).extend([float(ms), float(error)] for ms, error in pairs)
    return found


@figure(_estimates)
def estimates(data: Any) -> Picture:
    """Estimated and measured milliseconds.

    Points for 32 published runs on five boards: measured milliseconds across, the estimate's error up. All lie
    between -9% and +12%.
    """
    picture = Picture(352)
    picture.heading(
        "Estimates beside published measurements",
        f"{sum(map(len, data.values()))} runs of MLPerf Tiny whose code is published",
    )
    names = list(data)
    colours = dict(zip(names, (MAIN, BLUE, WARM, OTHER, INK), strict=True))
    markers = dict(zip(names, "osD^v", strict=True))
    axes = picture.chart(70, 84, 470, 212, grid="both")
    axes.axhspan(-10, 10, color=PLAIN, zorder=0)
    axes.axhline(0, color=MUTED, lw=1)
    for name in names:
        axes.plot(
            *zip(*data[name], strict=True), markers[name], ms=7, color=colours[name], mec=CARD, mew=0.6, label=name
        )
    axes.set(xscale="log", xlim=(1, 2600), ylim=(-16, 16), xlabel="measured, ms")
    axes.set_xticks([1, 10, 100, 1000], ["1", "10", "100", "1,000"])
    axes.set_yticks([-10, 0, 10], ["-10%", "exact", "+10%"])
    axes.minorticks_off()
    axes.legend(loc="center left", bbox_to_anchor=(1.03, 0.5), labelcolor=INK)
    return picture


def _tune() -> Any:
    path = tiny("kws_int8_qdq.onnx")
    with folder():
        printed("tune", str(path), "--board", "qemu_riscv32", "--no-builds", "-o", "tuning.jsonl")
        lines = [json.loads(line) for line in Path("tuning.jsonl").read_text().splitlines()]
    tasks: dict[str, Any] = {}
    whole = {}
    for line in lines:
        if line["kind"] == "plan":
            whole = {"default": line["default_times"][0], "tuned": line["times"][0]}
        elif not line["baseline"]:
            name = f"{line['task']['label']}, {line['task']['writes'][0]}"
            tasks.setdefault(name, []).append([line["candidate"], line["times"][0] if line["times"] else None])
    return {"model": path.stem, "board": "qemu_riscv32", "unit": "instructions", "whole": whole, "tasks": tasks}


@figure(_tune)
def tune(data: Any) -> Picture:
    """The search of mtool tune.

    For four tasks of a keyword spotter, each candidate as a point in the order in which it was tried, its
    instructions relative to the default, and the best so far as a line that falls to 0.71 to 0.96 of the default.
    """
    picture = Picture(402)
    tried = sum(map(len, data["tasks"].values()))
    whole = data["whole"]
    picture.heading(
        f"mtool tune: {tried} candidates of {len(data['tasks'])} tasks",
        f"keyword spotting in int8 on {data['board']}; the whole model: {whole['default']:,.0f} to "
        f"{whole['tuned']:,.0f} {data['unit']}, {1 - whole['tuned'] / whole['default']:.1%} saved",
    )
    picture.keys(20, 80, {"a candidate": OTHER, "the best so far": MAIN, "the default": WARM})
    for number, (name, rows) in enumerate(data["tasks"].items()):
        axes = picture.chart(62 + 362 * (number % 2), 128 + 144 * (number // 2), 318, 92, title=name, grid="y")
        first = rows[0][1]
        relative = [min(value / first, 2.2) if value else None for _, value in rows]
        best = [min(one for one in relative[: end + 1] if one) for end in range(len(relative))]
        axes.plot(range(1, len(rows) + 1), relative, "o", ms=3.2, color=OTHER)
        axes.step(range(1, len(rows) + 1), best, where="post", color=MAIN, lw=2)
        axes.plot([1], [1], "D", ms=6, color=WARM)
        axes.annotate(
            f"{1 - best[-1]:.1%} less",
            (len(rows), best[-1]),
            (-3, -9),
            textcoords="offset points",
            ha="right",
            color=MAIN,
            weight="bold",
            size=SMALL,
        )
        axes.set(ylim=(min(best) - 0.28, 2.25), yticks=[1, 1.5, 2])
        axes.set_yticklabels(["1", "1.5", "≥ 2"])
        axes.set_xticks([1, *range(len(rows) // 4, len(rows) + 1, len(rows) // 4)])
    return picture
