"""Pictures of what a decision is about."""

import re
from typing import Any

from outputs import ROOT

import mtool
from pictures.figure import (
    BOARD,
    DIGITS_MODEL,
    amount,
    c_file,
    c_function,
    c_source,
    figure,
    folder,
    onnx_file,
    printed,
    table,
)
from pictures.style import (
    BLUE,
    BLUE_SOFT,
    CARD,
    INK,
    LINE,
    MAIN,
    MAIN_SOFT,
    MUTED,
    OTHER,
    PLAIN,
    SMALL,
    WARM,
    WARM_SOFT,
    Picture,
)

_SWISH = """<ir_version: 8, opset_import: ["" : 17]>
swish (int8[1, 96] x) => (int8[1, 96] y) <float s = {0.05}, int8 z = {-10}, float t = {0.03}, int8 u = {-100}> {
  f = DequantizeLinear (x, s, z) g = Sigmoid (f) h = Mul (f, g) y = QuantizeLinear (h, t, u)
}"""


def _expressions() -> Any:
    with folder():
        model = mtool.compile(onnx_file(_SWISH, "swish"), board=BOARD)
    numbers = c_file(model, "swish_weights.c").split("{")[1].split("}")[0]
    return {
        "c": c_function(c_source(model), "swish_sigmoid_0"),
        "table": [int(number) for number in numbers.split(",") if number.strip()],
    }


@figure(_expressions)
def expressions(data: Any) -> Picture:
    """Four operators that become a table.

    DequantizeLinear, Sigmoid, Mul and QuantizeLinear are fused into one expression of one 8-bit argument, which
    becomes a table of 256 results; the C is a loop with one lookup. A curve shows the table.
    """
    picture = Picture(352)
    picture.heading(
        "Four operators, one expression, one table",
        "an int8 Swish in an ONNX model, and the C that mtool writes for it",
    )
    for number, name in enumerate(("DequantizeLinear", "Sigmoid", "Mul", "QuantizeLinear")):
        y = 84 + 46 * number
        picture.box(20, y, 146, 32, fill=BLUE_SOFT, edge=BLUE)
        picture.text(93, y + 16, name, anchor="center")
        if number:
            picture.arrow(93, y - 13, 93, y - 1)
    picture.arrow(172, 168, 214, 168)
    axes = picture.chart(246, 102, 150, 134, title="256 results", grid="both")
    axes.plot(range(-128, 128), data["table"], color=MAIN, lw=2)
    axes.set(xticks=[-128, 0, 127], yticks=[-128, 0, 127], xlabel="int8 input")
    picture.arrow(408, 168, 436, 168)
    picture.text(444, 88, "in C", weight="bold")
    picture.box(444, 112, 298, 124, fill=PLAIN)
    loop = [line[4:] for line in data["c"] if line.startswith("    ")]
    picture.code(454, 138, loop, size=8.8, step=22)
    picture.note(454, 214, "table: 256 bytes of flash")
    picture.note(
        20,
        302,
        "Fusion substitutes one expression into another. A function of one 8-bit argument has 256 results, so it",
    )
    picture.note(
        20,
        320,
        "becomes a table; one of an accumulator becomes a requantization; one of two arguments a fixed-point sum.",
    )
    return picture


def _rounding() -> Any:
    import numpy as np

    sums = np.arange(-256, 257, 8)
    ours = np.rint(sums.astype(np.float32) * np.float32(1 / 64)).astype(int)
    multiplier, shift = 1 << 30, 5  # 1/64 as TFLite writes it: the multiplier is rounded first, then the shift
    high = (sums * multiplier + np.where(sums >= 0, 1 << 30, 1 - (1 << 30))) // (1 << 31)
    low = high & ((1 << shift) - 1)
    tflite = (high >> shift) + (low > (1 << shift - 1) - 1 + (high < 0))
    return {"sums": sums.tolist(), "onnx": ours.tolist(), "tflite": tflite.tolist()}


@figure(_rounding)
def rounding(data: Any) -> Picture:
    """Two ways to round a sum to int8.

    Steps of the requantized sum at a scale of 1/64, as ONNX rounds (ties to even) and as TFLite rounds (ties away
    from zero). They differ only where the sum lies exactly between two results.
    """
    picture = Picture(342)
    ties = [one for one in zip(data["sums"], data["onnx"], data["tflite"], strict=True) if one[1] != one[2]]
    picture.heading("Two ways to round a sum", "a requantization by 1/64; the two differ only at ties")
    picture.keys(20, 80, {"--rounding onnx: ties to even": MAIN, "--rounding tflite": WARM})
    axes = picture.chart(70, 104, 660, 186, grid="both")
    axes.step(data["sums"], data["tflite"], where="mid", color=WARM, lw=1.6, ls=(0, (4, 2)))
    axes.step(data["sums"], data["onnx"], where="mid", color=MAIN, lw=2)
    for at, onnx, tflite in ties:
        axes.plot([at, at], [onnx, tflite], color=MUTED, lw=1)
        axes.plot(at, tflite, "o", ms=7, color=WARM)
        axes.plot(at, onnx, "o", ms=7, color=MAIN)
        axes.annotate(
            f"{at / 64:g}", (at, max(onnx, tflite)), (0, 7), textcoords="offset points", ha="center", size=10.5
        )
    axes.set(xlabel="the sum (accumulator)", ylim=(-4.8, 4.9), yticks=range(-4, 5, 2), xticks=range(-256, 257, 64))
    return picture


def _sessions() -> Any:
    status = re.search(r'X\((MT_BUSY), *(\d+), "([^"]+)"\)', (ROOT / "crt" / "include" / "mtool.h").read_text())
    return list(status.groups())  # type: ignore[union-attr]


@figure(_sessions)
def sessions(data: Any) -> Picture:
    """One session per device.

    A sequence of messages: a computer opens a session with HELLO and runs a model; another computer's HELLO is
    refused with MT_BUSY, and accepted when it has the flag take over.
    """
    picture = Picture(372)
    picture.heading("One session per device", "a device on a network that two computers reach")
    places = {"computer A": 130, "the device": 380, "computer B": 630}
    for name, x in places.items():
        picture.card(
            x - 70,
            68,
            140,
            34,
            name,
            fill=MAIN_SOFT if name == "the device" else PLAIN,
            edge=MAIN if name == "the device" else LINE,
        )
        picture.line(x, 102, x, 340, dashed=True)
    picture.box(374, 122, 12, 138, fill=BLUE, radius=2)
    picture.box(374, 290, 12, 50, fill=WARM, radius=2)
    messages = [
        (130, 374, 128, "HELLO, nonce", MUTED),
        (374, 130, 150, "OK: a session", MAIN),
        (130, 374, 176, "WRITE, RUN, READ …", MUTED),
        (630, 386, 206, "HELLO, another nonce", MUTED),
        (386, 630, 230, f"{data[0]} ({data[1]})", WARM),
        (630, 386, 284, "HELLO, take over", MUTED),
        (386, 630, 308, "OK: a session", MAIN),
        (130, 374, 322, "RUN", MUTED),
        (374, 130, 342, "refused: its session has ended", WARM),
    ]
    for x, to_x, y, text, colour in messages:
        picture.arrow(x, y, to_x, y, colour=colour)
        picture.text((x + to_x) / 2, y - 9, text, size=10.5, anchor="center", colour=INK if colour == MUTED else colour)
    picture.text(508, 242, data[2], size=10, anchor="center", colour=MUTED)
    return picture


_PICK = """<ir_version: 8, opset_import: ["" : 17]> pick (float[12] x) => (int64[1, n] at) { at = NonZero (x) }"""


def _maximum() -> Any:
    import numpy as np

    x = np.array([0, 0.5, 0, 0, 1.5, 0, 2, 0, 0, 0, 0.25, 0], np.float32)
    with folder():
        model = mtool.compile(onnx_file(_PICK, "pick"), board="host", options=mtool.Options(maxima={"at": 8}))
        with mtool.open(model) as device:
            outputs = device.run({"x": x})
    return {"x": x.tolist(), "at": outputs["at"][0].tolist(), "count": int(outputs["at_count"])}


@figure(_maximum)
def maximum(data: Any) -> Picture:
    """A maximum and a count.

    An input of twelve numbers of which four are not zero; the output of NonZero has eight places, the maximum, of
    which the first four are valid, and a second output, the count, is 4.
    """
    picture = Picture(262)
    picture.heading("A maximum and a count", "NonZero of 12 numbers with --max at=8, run on this computer")
    picture.text(20, 96, "x", weight="bold")
    picture.text(20, 184, "at", weight="bold")
    centres = {}
    for number, value in enumerate(data["x"]):
        x = 64 + 56 * number
        picture.box(x, 78, 50, 36, fill=MAIN_SOFT if value else PLAIN, edge=MAIN if value else LINE, radius=3)
        picture.text(x + 25, 96, f"{value:g}", anchor="center", colour=INK if value else MUTED)
        centres[number] = x + 25
    for place, index in enumerate(data["at"]):
        x = 64 + 56 * place
        is_valid = place < data["count"]
        picture.box(
            x,
            166,
            50,
            36,
            fill=MAIN_SOFT if is_valid else PLAIN,
            edge=MAIN if is_valid else LINE,
            radius=3,
            dashed=not is_valid,
        )
        picture.text(x + 25, 184, str(index), anchor="center", colour=INK if is_valid else MUTED)
        if is_valid:
            picture.arrow(centres[index], 116, x + 25, 163)
    picture.text(64 + 28 * data["count"] - 3, 218, "valid", size=SMALL, colour=MAIN, anchor="center", weight="bold")
    picture.note(64 + 28 * (data["count"] + 8) - 3, 218, "beyond the count", anchor="center")
    picture.text(560, 184, "at_count", weight="bold", anchor="left")
    picture.box(640, 166, 50, 36, fill=WARM_SOFT, edge=WARM, radius=3)
    picture.text(665, 184, str(data["count"]), anchor="center", weight="bold")
    picture.note(20, 244, "The loop of your program: for (int32_t i = 0; i < *outputs.at_count; ++i)")
    return picture


def _packed() -> Any:
    from mtool.compiler.codegen.conventions import Conventions

    model = mtool.compile(DIGITS_MODEL, board=BOARD, options=mtool.Options(conventions=Conventions(operators="packed")))
    one = next(one for one in model.manifest.operators if one.name == "conv_2")
    body = c_function(c_file(model, "digits_int8_packed.c"), "digits_int8_conv_2_packed")
    begin = next(at for at, line in enumerate(body) if "status == MT_OK" in line)
    return {
        "arena": model.manifest.arena_bytes,
        "reads": [one.reads[0].offset, one.reads[0].bytes],
        "writes": [one.writes[0].offset, one.writes[0].bytes],
        "scratch": [one.scratch_offset, one.scratch_bytes],
        "c": body[begin : begin + 3],
    }


@figure(_packed)
def packed(data: Any) -> Picture:
    """What a packed function's wrapper adds.

    A bar of the arena with the places of one operator's input, scratch and output, as the plan chose them. The
    caller passes the input and the output; the wrapper adds the weights and the scratch.
    """
    picture = Picture(322)
    picture.heading(
        "A packed operator keeps its planned addresses",
        "conv_2 of digits_int8: the caller passes two tensors, the wrapper adds the rest",
    )
    scale = 712 / data["arena"]
    picture.box(24, 150, 712, 44, fill=PLAIN, edge=LINE, radius=3)
    for name, key, fill, edge in (
        ("scratch", "scratch", WARM_SOFT, WARM),
        ("input", "reads", BLUE_SOFT, BLUE),
        ("output", "writes", MAIN_SOFT, MAIN),
    ):
        offset, size = data[key]
        picture.box(24 + offset * scale, 150, size * scale, 44, fill=fill, edge=edge, radius=2)
        picture.text(24 + (offset + size / 2) * scale, 172, name, size=10.5, anchor="center", weight="bold")
        picture.text(24 + offset * scale, 206, f"{offset:,}", size=10, mono=True, colour=MUTED)
    picture.text(736, 206, f"arena, {data['arena']:,} B", size=10, colour=MUTED, anchor="right")
    middle = {key: 24 + (data[key][0] + data[key][1] / 2) * scale for key in ("reads", "writes", "scratch")}
    picture.card(330, 78, 260, 34, "the caller's arguments", fill=PLAIN, edge=LINE)
    picture.arrow(400, 114, middle["reads"], 147, colour=BLUE)
    picture.arrow(540, 114, middle["writes"], 147, colour=MAIN)
    picture.card(50, 78, 230, 34, "the wrapper: weights, scratch", fill=WARM_SOFT, edge=WARM)
    picture.arrow(middle["scratch"], 114, middle["scratch"], 147, colour=WARM)
    picture.code(24, 246, [line[4:] for line in data["c"]], size=9.4, step=20)
    return picture


def _backends() -> Any:
    with folder():
        wren = ROOT / "examples" / "accelerator" / "wren.toml"
        manifest = printed("check", str(DIGITS_MODEL), "--board", BOARD, "--backend", f"json:device={wren}")["manifest"]
    return {
        "claims": [[one["kind"], one["region"]] for one in manifest["claims"]],
        "operators": [one["label"] for one in manifest["operators"]],
    }


@figure(_backends)
def backends(data: Any) -> Picture:
    """Regions for a backend, before the passes.

    The nine operations of the example in a row. The backend wren takes eight of them as one region; one stays C.
    After the partition the region is a single node, External.
    """
    picture = Picture(272)
    picture.heading(
        "Backends get their regions before the passes", "digits_int8 with the accelerator of examples/accelerator"
    )
    claims = data["claims"]
    wide = 712 / len(claims)
    first = next(at for at, (_, region) in enumerate(claims) if region)
    picture.note(24, 82, "canonical ONNX operators, still with their own names")
    picture.box(24 + wide * first - 1, 94, wide * (len(claims) - first) + 1, 56, fill=WARM_SOFT, edge=WARM, dashed=True)
    for number, (kind, region) in enumerate(claims):
        x = 24 + wide * number + 4
        picture.box(x, 104, wide - 9, 36, fill=CARD if region else MAIN_SOFT, edge=WARM if region else MAIN, radius=3)
        picture.text(x + (wide - 9) / 2, 122, kind, size=10, anchor="center")
        if number:
            picture.arrow(x - 9, 122, x, 122)
    middle = 24 + wide * (first + len(claims)) / 2
    picture.arrow(24 + wide / 2, 152, 24 + wide / 2, 187)
    picture.arrow(middle, 152, middle, 187, colour=WARM)
    picture.card(24, 190, wide + 40, 52, "C", "passes, plan", fill=MAIN_SOFT, edge=MAIN)
    picture.card(middle - 200, 190, 400, 52, "External", data["operators"][0], fill=WARM_SOFT, edge=WARM)
    picture.note(740, 222, "one C function", anchor="right")
    return picture


_SIZED = """<ir_version: 8, opset_import: ["" : 17]>
sized (float[n, 4] x) => (float[4, n] y) { h = Transpose <perm = [1, 0]> (x) y = Neg (h) }"""


def _run_time_sizes() -> Any:
    found = {}
    with folder():
        path = onnx_file(_SIZED, "sized")
        for name, options in {
            "n = 5": {"dims": {"n": 5}},
            "n = 25": {"dims": {"n": 25}},
            "any n": {"maxima": {"n": 25}},
        }.items():
            source = c_source(mtool.compile(path, board="mps2_an383", options=mtool.Options(**options)))
            found[name] = c_function(source, "sized_neg_0")
    return found


@figure(_run_time_sizes)
def run_time_sizes(data: Any) -> Picture:
    """Numbers that become formulas.

    The C of one operator at two fixed sizes, which differ in two numbers; and for any size, where these numbers
    have become a variable.
    """
    picture = Picture(332)
    picture.heading(
        "Numbers that differ become formulas", "a transposition at two sizes, of 25 that are compared, and for any size"
    )
    fixed = [line for line in data["n = 5"] if line.startswith("    ")]
    for x, name, fill, edge in (
        (20, "n = 5", PLAIN, LINE),
        (386, "n = 25", PLAIN, LINE),
        (203, "any n", MAIN_SOFT, MAIN),
    ):
        y = 70 if fill == PLAIN else 198
        picture.box(x, y, 354, 112, fill=fill, edge=edge)
        picture.text(x + 12, y + 15, name, weight="bold", size=SMALL)
        body = [line[4:] for line in data[name] if line.startswith("    ")]
        picture.code(x + 12, y + 34, body[-len(fixed) :], size=8.9)
    picture.arrow(250, 183, 300, 197)
    picture.arrow(510, 183, 460, 197)
    return picture


def _numbers() -> Any:
    clock = "nucleo_l4r5zi"
    with folder():
        found = printed("bench", str(DIGITS_MODEL), "--board", BOARD, "--cycles", "--clock", clock)["cycles"]
    return {
        "instructions": found["instructions"],
        "cycles": found["cycles"]["cortex-m4"],
        "waits": found["waits"][clock],
        "MHz": 120,
    }


@figure(_numbers)
def numbers(data: Any) -> Picture:
    """Instructions, cycles and milliseconds of one inference.

    Bars of one inference: instructions, which an emulator counts exactly; cycles of the core, estimated; cycles
    with the waits for flash, estimated; divided by the clock these are milliseconds, which a board measures.
    """
    picture = Picture(312)
    total = data["cycles"] + data["waits"]
    picture.heading(
        "What a number means", "one inference of digits_int8 in code for a Cortex-M4, on a NUCLEO-L4R5ZI at 120 MHz"
    )
    scale = 400 / total
    rows = [
        ("instructions", data["instructions"], 0, OTHER, "counted in QEMU: exact, the same everywhere"),
        ("cycles of the core", data["cycles"], 0, MAIN, "estimated: a load takes 2, a taken jump 3"),
        ("cycles with flash waits", data["cycles"], data["waits"], MAIN, "estimated: within 12% of published runs"),
    ]
    for number, (name, value, more, colour, what) in enumerate(rows):
        y = 78 + 58 * number
        picture.text(190, y + 15, name, anchor="right", weight="bold")
        picture.box(200, y, value * scale, 30, fill=colour, radius=2)
        if more:
            picture.box(200 + value * scale, y, more * scale, 30, fill=WARM, radius=2)
        picture.text(208 + (value + more) * scale, y + 15, f"{value + more:,}", weight="bold")
        picture.note(200, y + 41, what)
    picture.arrow(450, 244, 450, 268)
    picture.note(464, 256, f"÷ {data['MHz']} MHz")
    picture.text(190, 286, "milliseconds", anchor="right", weight="bold")
    picture.text(450, 286, f"{total / data['MHz'] / 1000:.2f} ms", anchor="center", weight="bold", size=15)
    picture.note(496, 286, "estimated; a board measures them")
    return picture


def _forms() -> Any:
    rows = {row[0]: row[1:] for row in table("compiled-modules-bytecode.md", "compiled C")}
    bytes_of = [
        [amount(number) for number in re.findall(r"[\d,]*\d", cell)] for cell in rows["KWS in flash: code + constants"]
    ]
    times = [re.search(r"[\d.]+$|KWS\D* ([\d.]+)", cell) for cell in rows["instructions on a Cortex-M4, relative to C"]]
    delta = re.search(r"delta ([\d,]+) B", rows["update"][1])
    return {
        "code and constants": [sizes[:2] for sizes in bytes_of],
        "files": [sizes[2:] for sizes in bytes_of],
        "instructions": [float(found[1] or found[0]) for found in times if found],
        "delta": amount(delta[1]) if delta else 0,
    }


@figure(_forms)
def forms(data: Any) -> Picture:
    """Compiled C, native module and bytecode module.

    Three forms of a keyword spotter side by side: bytes of code and constants, instructions relative to compiled C,
    and what has to be sent to change the model.
    """
    picture = Picture(322)
    picture.heading("Three forms of one model", "keyword spotting in int8 on a Cortex-M4")
    picture.keys(20, 80, {"code": MAIN, "constants": OTHER})
    native, bytecode = (f"{size:,.0f} B" for sizes in data["files"] for size in sizes)
    rows = (
        ("compiled C", "new firmware", "no", BLUE_SOFT, BLUE),
        ("native module", f"{native}, or a delta of {data['delta']:,.0f} B", "yes, signed", MAIN_SOFT, MAIN),
        ("bytecode module", f"{bytecode}, or a delta", "no", WARM_SOFT, WARM),
    )
    scale = 270 / max(map(sum, data["code and constants"]))
    for x, text in ((180, "bytes of the model"), (486, "to change it, send"), (628, "loads machine code")):
        picture.note(x, 112, text)
    for number, (name, send, loads, fill, edge) in enumerate(rows):
        y = 130 + 62 * number
        (code, constants), times = data["code and constants"][number], data["instructions"][number]
        picture.box(20, y, 146, 46, fill=fill, edge=edge)
        picture.text(93, y + 15, name, anchor="center", weight="bold")
        picture.text(93, y + 33, f"{times:.2f} × the instructions", size=10, anchor="center", colour=MUTED)
        picture.box(180, y + 8, code * scale, 30, fill=MAIN, radius=2)
        picture.box(180 + code * scale, y + 8, constants * scale, 30, fill=OTHER, radius=2)
        picture.text(190 + code * scale, y + 23, f"{code:,.0f} + {constants:,.0f}", size=SMALL)
        head, _, rest = send.partition(", ")
        picture.text(486, y + (16 if rest else 23), head, weight="bold")
        picture.note(486, y + 33, rest)
        picture.text(628, y + 23, loads)
    return picture
