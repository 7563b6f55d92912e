"""Diagrams of what mtool does, with what it does with the example."""

import re
from pathlib import Path
from typing import Any

import mtool
from mtool import boards
from pictures.figure import (
    BOARD,
    DIGITS_MODEL,
    DOCS,
    c_function,
    c_source,
    figure,
    folder,
    onnx_file,
    printed,
)
from pictures.style import BLUE, BLUE_SOFT, CARD, LINE, MAIN, MAIN_SOFT, MUTED, PLAIN, SMALL, WARM, WARM_SOFT, Picture


def _pipeline() -> Any:
    import onnx

    from mtool.compiler import frontend

    model = mtool.compile(DIGITS_MODEL, board=BOARD)
    sources = model.files.files
    with folder():
        cost = printed("run", str(DIGITS_MODEL), "--board", BOARD)["cost"]
    return {
        "model": {
            "file": DIGITS_MODEL.name,
            "bytes": DIGITS_MODEL.stat().st_size,
            "nodes": len(onnx.load(DIGITS_MODEL).graph.node),
        },
        "graph": len(frontend.load(DIGITS_MODEL).nodes),
        "kernels": len(model.manifest.operators),
        "schedules": sorted({one.schedule for one in model.manifest.operators}),
        "arena": model.manifest.arena_bytes,
        "files": len(sources),
        "lines": round(sum(text.count(b"\n") for text in sources.values()), -2),
        "instructions": cost["instructions"],
        "flash_kb": round((cost["flash_code_bytes"] + cost["flash_const_bytes"]) / 1024),
    }


@figure(_pipeline)
def pipeline(data: Any) -> Picture:
    """The path from a model to a board.

    Seven stages from left to right in two rows: frontend, passes, plan, codegen; project, build, session. Each has
    what it makes of the example: 29 ONNX nodes, 6 kernels, an arena of 3,840 bytes, C files, a project, firmware,
    outputs.
    """
    picture = Picture(402)
    picture.heading("From a model to a board", f"the stages, and what they make of {data['model']['file']} for {BOARD}")
    upper = [
        ("frontend", [f"{data['graph']} ONNX nodes", "static shapes"]),
        ("passes", [f"{data['kernels']} kernels", "layout, fusion, int8"]),
        ("plan", [f"arena of {data['arena']:,} B", f"{len(data['schedules'])} schedules"]),
        ("codegen", [f"{data['files']} C files", f"{data['lines']:,} lines"]),
    ]
    lower = [
        ("session", [f"{data['instructions']:,}", "instructions"]),
        ("build", [f"{data['flash_kb']} KB of flash", "compiler, linker"]),
        ("project", ["template, runtime", "mtool.json"]),
    ]
    picture.box(14, 70, 732, 122, fill="none", edge=LINE, radius=8)
    picture.note(26, 88, "the compile half: no board needed")
    picture.box(14, 256, 732, 122, fill="none", edge=LINE, radius=8)
    picture.note(26, 274, "the device half: reads mtool.json, never the C")
    picture.card(
        26, 104, 104, 74, "model", [f"{data['model']['bytes'] / 1024:.1f} KB", "ONNX or TFLite"], fill=BLUE_SOFT
    )
    for number, (name, facts) in enumerate(upper):
        x = 160 + 148 * number
        picture.arrow(x - 28 if number else 132, 141, x - 3, 141)
        picture.card(x, 104, 118 if number < 3 else 114, 74, name, facts, fill=MAIN_SOFT)
    picture.arrow(661, 181, 661, 286)
    picture.card(582, 206, 158, 34, "files and manifest", fill=PLAIN, edge=LINE)
    for number, (name, facts) in enumerate(lower):
        x = 160 + 222 * number
        picture.card(x, 290, 190 if number < 2 else 114, 74, name, facts, fill=WARM_SOFT)
    picture.arrow(601, 327, 575, 327)
    picture.arrow(379, 327, 353, 327)
    picture.arrow(157, 327, 133, 327)
    picture.card(26, 290, 104, 74, "outputs", ["times, sizes", "checks"], fill=BLUE_SOFT)
    return picture


def _symbols(elf: Path) -> dict[str, int]:
    from elftools.elf.elffile import ELFFile

    with elf.open("rb") as file:
        return {
            one.name: one["st_value"] for one in ELFFile(file).get_section_by_name(".symtab").iter_symbols() if one.name
        }


def _protect() -> Any:
    with folder():
        built = printed("build", str(DIGITS_MODEL), "--board", BOARD, "--protect", "-d", "made")
        at = _symbols(Path(built["firmware"]["host_driven"]))
    found = built["protection"]["digits_int8"]
    area = next(area for area in found["areas"] if area["name"] == "arena")
    flash = next(one for one in boards.get(BOARD).memories.values() if "code" in one.holds)
    return {
        "unit": found["unit"],
        "flash": [flash.base, flash.size],
        "stack": [at["mt_stack_low"], at["mt_stack_top"] - at["mt_stack_low"]],
        "data": [at["mt_data_start"], at["digits_int8_arena"] - at["mt_data_start"]],
        "arena": [at["digits_int8_arena"], area["used"], area["bytes"]],
        "server_kb": round((at["mt_bss_end"] - at["digits_int8_arena"] - area["bytes"]) / 1024, 1),
    }


@figure(_protect)
def protect(data: Any) -> Picture:
    """What a model can access under memory protection.

    A map of the memory of firmware with memory protection. While the model runs it can read and execute the flash,
    and write its part of the stack and its arena with the padding to a granule; the server's data, its part of the
    stack and the peripherals are closed.
    """
    picture = Picture(432)
    picture.heading("What the model can access while it runs", f"digits_int8 on {BOARD} ({data['unit']}); not to scale")
    picture.keys(20, 80, {"read, write": MAIN, "read, execute": BLUE, "no access": PLAIN})
    begin, used, size = data["arena"]
    (stack, stack_bytes), (variables, variable_bytes) = data["stack"], data["data"]
    rows = [
        (0x40000000, "peripherals, and all other addresses", "", "none", 40),
        (0, "", "", "gap", 12),
        (begin + size, "the server: buffers, session, fault", f"{data['server_kb']} KB", "none", 46),
        (begin + used, "padding to a granule", f"{size - used:,} B", "pad", 30),
        (begin, "arena: inputs, outputs, tensors, scratch", f"{used:,} B", "write", 64),
        (variables, "the server's variables", f"{variable_bytes:,} B", "none", 30),
        (stack, "stack; above it the server's part, closed", f"{stack_bytes:,} B", "write", 46),
        (0, "", "", "gap", 12),
        (data["flash"][0], "flash: code and constants", f"{data['flash'][1] >> 20} MB", "read", 46),
    ]
    fills = {"none": PLAIN, "write": MAIN_SOFT, "pad": MAIN_SOFT, "read": BLUE_SOFT}
    edges = {"none": LINE, "write": MAIN, "pad": MAIN, "read": BLUE}
    words = {"none": "closed", "write": "read, write", "pad": "read, write", "read": "read, execute"}
    y = 102.0
    for address, name, size, kind, height in rows:
        if kind == "gap":
            picture.text(330, y + height / 2, "⋮", anchor="center", colour=MUTED)
        else:
            picture.box(130, y, 430, height, fill=fills[kind], edge=edges[kind], radius=3, dashed=kind == "pad")
            picture.text(144, y + height / 2, name, size=SMALL + 0.5)
            picture.note(548, y + height / 2, size, anchor="right")
            picture.text(
                574,
                y + height / 2,
                words[kind],
                size=SMALL,
                colour=edges[kind] if kind != "none" else MUTED,
                weight="bold",
            )
            picture.text(120, y + height - 8, f"0x{address:08x}", size=10, mono=True, colour=MUTED, anchor="right")
        y += height - 0.5
    return picture


_KIND = {0x4842544D: "HEAD", 0x4C42544D: "LOAD", 0x4342544D: "COMMIT"}  # crt/include/mt_slots.h


def _record(kind: int, slot: int, _: int, there: int, name: int, counter: int, names: dict[int, str]) -> dict[str, Any]:
    """Return what is drawn of a record of the journal."""
    found = {"kind": _KIND[kind], "slot": slot, "name": names.get(name, ""), "counter": counter}
    return found | {"there": there} if found["kind"] == "LOAD" else found


def _modules() -> Any:
    import struct
    import zlib

    with folder():
        model = str(DIGITS_MODEL)
        printed("build", model, "--name", "wake", "--board", BOARD, "--modules", "--unsigned-modules", "-d", "fw")
        loads = [("digits", 3), ("other", 1), ("digits", 4)]
        for name, counter in loads:
            printed("module", model, "--board", BOARD, "--name", name, "--counter", str(counter), "-o", "made.mtm")
            printed("load", "made.mtm", "fw")
        flash = Path("fw/build/host_driven.elf.flash").read_bytes()
    names = {zlib.crc32(name.encode().ljust(32, b"\0")): name for name, _ in loads}
    area = 4096
    room = len(flash) - 2 * area
    journals = []
    for start in (room, room + area):
        words = (struct.unpack_from("<7I", flash, start + at) for at in range(0, area, 64))
        journals.append([_record(*one[:6], names) for one in words if one[0] in _KIND])
    return {"loads": loads, "bytes": len(flash), "slots": 8, "slot_bytes": room // 8 & ~4095, "journals": journals}


@figure(_modules)
def modules(data: Any) -> Picture:
    """Slots and journal of modules in flash.

    The flash for modules: eight slots of equal size, then a journal of two areas. After three loads the slots hold
    digits with counter 3, other with counter 1 and digits with counter 4; the last COMMIT of each name makes a slot
    active.
    """
    picture = Picture(372)
    steps = ", then ".join(f"{name} (counter {counter})" for name, counter in data["loads"])
    picture.heading("Slots and journal", f"flash of {data['bytes'] / 1024:,.0f} KB after loading {steps}")
    journal = max(
        data["journals"], key=lambda rows: max((row["counter"] for row in rows if row["kind"] == "HEAD"), default=0)
    )
    last = {row["slot"]: (at, row) for at, row in enumerate(journal) if row["kind"] == "COMMIT"}
    newest = {
        row["name"]: max(at for at, other in last.values() if other["name"] == row["name"]) for _, row in last.values()
    }
    width = 71
    for slot in range(data["slots"]):
        x = 20 + slot * (width + 3)
        at, row = last.get(slot, (-1, None))
        is_active = row is not None and newest[row["name"]] == at
        picture.box(
            x,
            92,
            width,
            84,
            fill=MAIN_SOFT if is_active else PLAIN,
            edge=MAIN if is_active else LINE,
            dashed=row is None,
        )
        picture.note(x + width / 2, 82, f"slot {slot}", anchor="center")
        if row is not None:
            picture.text(x + width / 2, 114, row["name"], anchor="center", weight="bold")
            picture.note(x + width / 2, 133, f"counter {row['counter']}", anchor="center")
            picture.text(
                x + width / 2,
                154,
                "active" if is_active else "replaced",
                size=10.5,
                anchor="center",
                colour=MAIN if is_active else MUTED,
                weight="bold",
            )
        else:
            picture.note(x + width / 2, 134, "empty", anchor="center")
    for number, rows in enumerate(data["journals"]):
        x = 616 + number * 64
        in_use = rows is journal
        picture.box(x, 92, 60, 84, fill=WARM_SOFT if in_use else PLAIN, edge=WARM if in_use else LINE)
        picture.text(x + 30, 124, "journal", size=10.5, anchor="center")
        picture.note(x + 30, 142, "in use" if in_use else "before", anchor="center")
    picture.note(20, 194, f"{data['slots']} × {data['slot_bytes'] / 1024:,.0f} KB: one module file each, byte for byte")
    picture.note(740, 194, "2 × 4 KB", anchor="right")
    picture.text(20, 232, "The journal's records, in order", weight="bold")
    loads = [row for row in journal if row["kind"] == "LOAD"]
    shown = [row for row in journal if row["kind"] != "LOAD"]
    cells = [
        (
            row["kind"],
            f"slot {row['slot']}, {row['name']}, counter {row['counter']}"
            if row["kind"] == "COMMIT"
            else "the records so far are all",
        )
        for row in shown
    ]
    cells.insert(
        len(cells) - 1, (f"LOAD × {len(loads)}", f"slot {loads[-1]['slot']}: 0 to {loads[-1]['there']:,} B are there")
    )
    for number, (kind, what) in enumerate(cells):
        x, y = 20 + 362 * (number % 2), 248 + 36 * (number // 2)
        picture.box(x, y, 352, 30, fill=WARM_SOFT if kind == "COMMIT" else PLAIN)
        picture.text(x + 12, y + 15, kind, size=10.5, mono=True, weight="bold")
        picture.note(x + 90, y + 15, what)
    return picture


_FLOW = """<ir_version: 8, opset_import: ["" : 17]>
net (float[1, 6] x, bool yes, int64 n) => (float[1, 6] y, float[1, 6] z) <float[6, 6] W = {%s}> {
  y = If (yes) <then_branch = t () => (float[1, 6] a) { h = MatMul (x, W) a = Relu (h) },
                else_branch = e () => (float[1, 6] b) { b = Neg (x) }>
  z = Loop (n, , y) <body = r (int64 i, bool c, float[1, 6] v) => (bool d, float[1, 6] w) {
                     d = Identity (c) m = MatMul (v, W) w = Tanh (m) }>
}"""


def _control_flow() -> Any:
    weights = ",".join(f"{number * 37 % 19 / 19 - 0.5:.3f}" for number in range(36))
    with folder():
        source = c_source(mtool.compile(onnx_file(_FLOW % weights, "net"), board=BOARD))
    return {"if": c_function(source, "net_branch_0"), "loop": c_function(source, "net_rounds_3")}


def _graph(
    picture: Picture, x: float, y: float, title: str, bodies: dict[str, list[str]], *, width: float = 150
) -> None:
    """Draw a control node with its bodies."""
    picture.text(x, y - 12, title, weight="bold")
    for number, (name, operators) in enumerate(bodies.items()):
        left = x + number * (width / len(bodies) + 4)
        wide = width / len(bodies)
        picture.box(left, y, wide, 34 + 30 * len(operators), fill=MAIN_SOFT, edge=MAIN)
        picture.note(left + wide / 2, y + 15, name, anchor="center")
        for at, operator in enumerate(operators):
            picture.box(left + 8, y + 28 + 30 * at, wide - 16, 24, fill=CARD, edge=LINE)
            picture.text(left + wide / 2, y + 40 + 30 * at, operator, size=SMALL, anchor="center")


@figure(_control_flow)
def control_flow(data: Any) -> Picture:
    """An If and a Loop, and their C.

    On the left the graph of an If with two branches and of a Loop with its body; on the right the C functions that
    mtool generates: an if statement with a call in each branch, and a for loop that calls the body's operators.
    """
    body = [
        line
        for line in data["loop"]
        if not line.lstrip().startswith(("enum", "dense_4_o", "dense_4_scratch_o", "};", "/* Offsets"))
    ]
    height = 112 + 16 * (len(data["if"]) + len(body) + 2) + 28
    picture = Picture(height)
    picture.heading(
        "Control flow becomes C's own", "an If and a Loop in ONNX, and the functions that mtool writes for them"
    )
    picture.line(196, 74, 196, height - 20)
    _graph(picture, 20, 102, "If", {"then": ["MatMul", "Relu"], "else": ["Neg"]})
    picture.code(212, 92, _folded(data["if"]), size=9.6)
    y = 92 + 16 * (len(data["if"]) + 1) + 28
    _graph(picture, 20, y + 10, "Loop", {"body, n times": ["MatMul", "Tanh"]})
    picture.code(212, y, _folded(body), size=9.6)
    return picture


def _folded(lines: list[str]) -> list[str]:
    """Return a function with its head in two lines."""
    head, cut = lines[0], lines[0].rindex(", ", 0, 88)
    return [head[: cut + 1], "        " + head[cut + 2 :], *lines[1:]]


def _farm() -> Any:
    found = re.search(r"(\d+) boards measure\s+(\d+)\s+times\s+as", (DOCS / "farm.md").read_text())
    return [int(number) for number in found.groups()] if found else []


@figure(_farm)
def farm(data: Any) -> Picture:
    """The processes of a board farm.

    mtool tune sends requests to a scheduler, which passes them to workers: some compile, some have boards. Firmware
    goes from worker to worker; answers come back to mtool tune, which alone writes the log.
    """
    picture = Picture(420)
    picture.heading("A board farm", "{} boards measure {} times as many candidates per second as one".format(*data))
    picture.card(
        20, 150, 150, 92, "mtool tune", ["searches", "generates C", "writes the log"], fill=MAIN_SOFT, edge=MAIN
    )
    picture.card(62, 290, 108, 44, "tuning.jsonl", fill=PLAIN, edge=LINE)
    picture.arrow(116, 244, 116, 287)
    picture.card(262, 160, 130, 72, "scheduler", ["knows which worker", "has what"], fill=PLAIN, edge=LINE)
    picture.arrow(173, 186, 259, 186)
    picture.arrow(259, 208, 173, 208)
    picture.note(216, 172, "requests", anchor="center")
    picture.note(216, 223, "results", anchor="center")
    picture.card(490, 78, 250, 62, "mtool worker", "compiles (--builds 8)", fill=WARM_SOFT, edge=WARM)
    for number, (board, count) in enumerate((("nucleo_l4r5zi", 4), ("nucleo_f746zg", 3))):
        y = 176 + 104 * number
        picture.box(490, y, 250, 88, fill=BLUE_SOFT, edge=BLUE)
        picture.text(502, y + 17, "mtool worker", weight="bold")
        picture.note(728, y + 17, f"--board {board}", anchor="right")
        for at in range(4):
            here = at < count
            picture.box(502 + 58 * at, y + 34, 51, 42, fill=CARD, edge=BLUE if here else LINE, dashed=not here)
            picture.text(527.5 + 58 * at, y + 55, "board" if here else "", size=10.5, anchor="center")
        picture.arrow(395, 200 + 12 * number, 487, y + 44, both=True)
    picture.arrow(395, 186, 487, 112, both=True)
    picture.arrow(720, 142, 720, 173, colour=WARM)
    picture.note(710, 158, "firmware, from worker to worker", anchor="right")
    picture.note(
        20,
        398,
        "A worker that dies, or a board that fails, gives the rest of its slice to another; no measurement is lost.",
    )
    return picture


def _verify() -> Any:
    with folder():
        found = printed("verify", str(DIGITS_MODEL), "--board", BOARD)
    return {"model": DIGITS_MODEL.stem, "board": BOARD, "report": found}


@figure(_verify)
def verify(data: Any) -> Picture:
    """How mtool verify compares outputs.

    The same inputs run on the board and in onnxruntime. Equal outputs end with exit code 0. If outputs differ, each
    operator is compared from the reference's values: differences that rounding ties explain are counted, any other
    ends with exit code 9 and the operator's name.
    """
    picture = Picture(372)
    report = data["report"]
    elements = sum(one["elements"] for one in report["outputs"])
    differing = sum(one["differing"] for one in report["outputs"])
    picture.heading(
        "How verify decides",
        f"{data['model']} on {data['board']}: {elements} elements over {report['samples']} samples, {differing} differ",
    )
    picture.card(20, 150, 110, 58, "inputs", "drawn or yours", fill=BLUE_SOFT)
    picture.card(170, 92, 160, 62, "the board", "the generated C", fill=MAIN_SOFT, edge=MAIN)
    picture.card(170, 204, 160, 62, "the reference", "onnxruntime, LiteRT", fill=PLAIN, edge=LINE)
    picture.arrow(133, 170, 167, 132)
    picture.arrow(133, 188, 167, 226)
    picture.card(372, 148, 128, 62, "outputs", "element by element", fill=WARM_SOFT, edge=WARM)
    picture.arrow(333, 124, 369, 164)
    picture.arrow(333, 234, 369, 194)
    picture.card(582, 84, 158, 56, "match", "exit code 0", fill=MAIN_SOFT, edge=MAIN)
    picture.arrow(503, 166, 579, 118)
    picture.note(536, 128, "equal", anchor="right")
    picture.card(
        346, 280, 180, 68, "operator by operator", ["each from the values", "of the reference"], fill=PLAIN, edge=LINE
    )
    picture.arrow(436, 213, 436, 277)
    picture.note(446, 246, "some differ")
    picture.card(582, 196, 158, 56, "ties: match", "counted, exit code 0", fill=MAIN_SOFT, edge=MAIN)
    picture.card(582, 300, 158, 56, "diverges at conv_2", "exit code 9", fill=WARM_SOFT, edge=WARM)
    picture.arrow(529, 300, 579, 236)
    picture.arrow(529, 326, 579, 328)
    return picture
