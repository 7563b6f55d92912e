"""Write docs/schedules.md: every schedule, what it computes, where it applies, and its knobs.

scripts/schedules.py
"""

import inspect
import sys
from pathlib import Path

from mtool.compiler.kernels import registry
from mtool.compiler.kernels.discovery import INSTRUCTION_SETS, instruction_set
from mtool.compiler.kernels.schedule import Schedule

RESULT = Path(__file__).parents[1] / "docs" / "schedules.md"
HEAD = """# Schedules

What each schedule computes, and how to choose another one. `make schedules` writes this page from the code; don't
edit it.

    mtool bench --board mps2_an386 model.onnx --schedule pw_2=dsp_pointwise:unroll=16
    mtool.compile("model.onnx", board="mps2_an386", options=mtool.Options(
        schedules={"pw_2": mtool.Choice("dsp_pointwise", {"unroll": 16})}))

A schedule is one way to compute an operator. By default, mtool chooses the schedule with the smallest estimated cost
among those that support the node on the board's core. Then it sets knobs for cores where instruction counts do not
predict speed: `tile=2x2` for SIMD32 on a Cortex-M7. All schedules compute the same integers, and floats within their
tolerance; tests compare every setting of every knob with portable C.

A knob is a parameter of a schedule. Its default is listed first; `auto` uses the schedule's own estimate. To select
another schedule or setting, use the node's name from the generated C or from `mtool.json`. Two knobs exist for every
schedule. `opt` is the operator's optimization level, `O2`, `O3` or `Os`; the operator then has a separate file
(`<model>_O3.c`). `weights=ram` places the operator's constants in RAM. `auto` uses the setting of the rest of the
model. [tune.md](tune.md) shows the gains.

## Winograd: fewer multiplications

Winograd's F(2x2, 3x3) needs four of nine multiplications for a 3x3 convolution with stride 1. It transforms inputs
and weights, multiplies, and transforms back. `dsp_winograd` and `int_winograd` use integers and compute the same bits
as the other schedules: the weight transform is doubled on both sides, so sums are exactly four times as large and
nothing is divided before the end. Transformed inputs take 10 bits and weights 12; both are stored as int16.
Intermediate sums may wrap, and the result is correct if four times its value fits in 32 bits. mtool proves this for
each layer from its weights and biases, and otherwise uses another schedule. The whole model `ic_int8_qdq`, with
`--optimize size` and by default:

| core | instructions | cycles (`bench --cycles`) | flash for constants | arena |
|---|--:|--:|--:|--:|
| Cortex-M4 | 11,626,960 to 7,581,280 | 17,318,989 to 11,385,247 | 82,472 to 213,544 | 18,176 to 19,328 |
| Cortex-M7 | 12,439,880 to 7,765,320 | 10,691,459 to 7,420,192 | 82,472 to 213,544 | 18,304 to 19,328 |
| Cortex-M3 | 26,052,600 to 16,090,000 | | 81,464 to 212,600 | 17,260 to 19,328 |
| RV32IMC | 40,459,532 to 25,853,802 | | 81,448 to 212,600 | 16,960 to 19,328 |

The weights take 32 bytes instead of 9 for each pair of channels. `--optimize` controls when mtool uses larger
constants:

| `--optimize` | larger constants are used |
|---|---|
| `balanced`, the default | if they take a smaller share of the board's flash than they save of the instructions |
| `speed` | if they fit, beside the model's other constants and 64 KB for code |
| `size` | never |

Only Winograd's transformed weights count as *larger constants*. Other schedules pack weights for their loads even
with `size`, for example 8-bit weights as pairs of 16 bits. Constants in flash are then larger than in the file, which
`check` shows: 34,816 B of 22,264 B for eight operators of `mobilenet_v1_0.25_128_quant.tflite` on `mps2_an386`.

Operators with the largest saving per byte come first. If the arena does not fit with Winograd, no operator uses it.
The last layer of `ic_int8_qdq` saves 8% of all instructions for 95 KB: mtool uses it on a board with 2 MB of flash,
but not with 512 KB. `--schedule conv_8=dsp_winograd` forces it, and so does a tuning result. Operators with run-time
sizes do not use it. Helium's own schedules are usually cheaper; operators that they do not support, such as uint8
weights that do not fit int8 without their zero point, may use `dsp_winograd` or `int_winograd`.

## Effect of the knobs

Every setting is faster or smaller somewhere. The figures are from `mtool bench --cycles` in QEMU. On a board with
slow flash, tiles with fewer pixels cost more than shown, because they read the weights more often.

| setting | model or layer, and figure | default | with the setting |
|---|---|--:|--:|
| `tile=2x2`, SIMD32 | 1x1, 64 to 64 channels, 4 pixels, Cortex-M4: instructions (`auto` selects it) | 24,480 | 18,720 |
| `tile=2x2`, SIMD32 | `ic_int8_qdq`, code for a Cortex-M4: cycles | 17,342,818 | 19,094,910 |
| `tile=3x2`, SIMD32 | `ic_int8_qdq`, code for a Cortex-M7: cycles (the default is 2x2) | 11,306,517 | 12,979,397 |
| `tile=2x2`, SIMD32 | `ic_int8_qdq`: arena bytes | 33,680 | 33,376 |
| `tile=2x4`, Helium | 1x1, 64 to 64 channels, 1 pixel: instructions (`auto` selects it) | 3,156 | 1,562 |
| `tile=4x2`, Helium | `kws_int8_qdq`: instructions | 795,187 | 817,605 |
| `tile=2x8`, float32 | 1x1, 64 to 64 channels, 9 pixels, Cortex-M7: cycles (`auto` selects it) | 70,628 | 62,657 |
| `unroll=1` of `mve_rows` | `ad_int8_qdq`: instructions; saves 416 bytes of code | 42,843 | 45,906 |
| `unroll=8` of `dsp_patch`, `dsp_pointwise` | `kws_int8_qdq`: code bytes; 2% more instructions | 3,712 | 3,200 |
| `direction=straight` of `dsp_plane` | `kws_int8_qdq`: code bytes; 2% more instructions | 3,712 | 3,648 |
"""


def page() -> str:
    """Return the page."""
    parts = [HEAD]
    for op, kernel in registry.KERNELS.items():
        if not kernel.schedules:  # it computes graphs
            continue
        parts.append(f"## {op}\n")
        parts += [_described(schedule) for schedule in kernel.schedules]
    return "\n".join(parts)


def _described(schedule: Schedule) -> str:
    takes = inspect.getdoc(getattr(schedule, "fits", schedule.supports)) or ""
    if type(schedule).supports is Schedule.supports:
        takes = "Everything."
    lines = [
        f"### `{schedule.name}` ({INSTRUCTION_SETS[instruction_set(schedule)]})",
        "",
        f"Supports: {takes.splitlines()[0]}",
        "",
        f"File: `{Path(inspect.getfile(type(schedule))).relative_to(RESULT.parents[1])}`",
        "",
        inspect.getdoc(type(schedule)) or "",
        "",
    ]
    if knobs := schedule.knobs():
        lines += ["| knob | values | meaning |", "|---|---|---|"]
        for name, knob in knobs.items():
            values = ", ".join(f"`{knob.written(value)}`" for value in knob.values)
            lines.append(f"| `{name}` | {values} | {knob.meaning} |")
        lines.append("")
    return "\n".join(lines)


def main() -> int:
    """Write the page."""
    RESULT.write_text(page())
    print(RESULT)
    return 0


if __name__ == "__main__":
    sys.exit(main())
