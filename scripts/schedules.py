"""Write docs/schedules.md: every schedule, what it computes, where it can be, and its knobs.

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

Written from the schedules themselves (`make schedules`); don't edit it.

A schedule is one way to compute an operator. Of those that support a node on the board's core, the one with the
smallest estimated cost is taken; then its knobs are set as the core is fastest, where instructions say otherwise:
`tile=2x2` of SIMD32 on a Cortex-M7. All of them give the same integers, and floats within their tolerance: that, and
every setting of every knob, is tested against portable C.

A knob is a parameter of a schedule that may be turned for a node. Its default stands first; `auto` leaves the choice to
the schedule's own estimate. Another schedule, or a setting, is asked for by the node's name, which stands in the
generated C and in `mtool.json`. `opt` is a knob of every schedule: `O2`, `O3` or `Os`, the compiler's optimisation
level of the operator, which then lies in a file of its own (`<model>_O3.c`); so is `weights`: with `ram` its constants
lie there. `auto` is what holds for the rest of the model. [tune.md](tune.md) has what they give:

    mtool bench --board mps2_an386 model.onnx --schedule pw_2=dsp_pointwise:unroll=16
    mtool.compile("model.onnx", board="mps2_an386", options=mtool.Options(
        schedules={"pw_2": mtool.Choice("dsp_pointwise", {"unroll": 16})}))

## Fewer products

A 3x3 convolution with stride 1 needs four of nine products by Winograd's F(2x2, 3x3): inputs and weights are
transformed, multiplied, and transformed back. `dsp_winograd` and `int_winograd` do it in whole numbers, and give the
same bits as the other schedules: the weights' transform is doubled on both sides, so that nothing is divided before
the end, and sums are exactly four times as large. Inputs get 10 bits, weights 12, both are int16 in memory; sums wrap
around in between, and are right if four times the result is within 32 bits. Mtool proves that for each layer from its
weights and biases; where it doesn't hold, another schedule is taken. `ic_int8_qdq`, whole, from `--optimize size` to
the default:

| core | instructions | cycles (`bench --cycles`) | flash for constants | arena |
|---|--:|--:|--:|--:|
| Cortex-M4 | 11,626,960 to 7,581,280 | 17,318,989 to 11,385,247 | 82,472 to 213,544 | 18,176 to 19,328 |
| Cortex-M7 | 12,439,880 to 7,765,320 | 10,691,459 to 7,420,192 | 82,472 to 213,544 | 18,304 to 19,328 |
| Cortex-M3 | 26,052,600 to 16,090,000 | | 81,464 to 212,600 | 17,260 to 19,328 |
| RV32IMC | 40,459,532 to 25,853,802 | | 81,448 to 212,600 | 16,960 to 19,328 |

The weights take 32 bytes instead of 9 for each pair of channels. `--optimize` says what flash is spent on:

| `--optimize` | larger constants are taken where |
|---|---|
| `balanced`, the default | they take a smaller part of the board's flash than they save of the instructions |
| `speed` | there is room, beside the model's other constants and 64 KB for code |
| `size` | nowhere |

*Larger constants* are the weights that Winograd transforms, and no others: a schedule that packs weights for its
loads (8-bit weights as pairs of 16 bits, say) does so with `size` too. Then the constants in flash are larger than
those in the file, as `check` shows: 34,816 B of 22,264 B for eight operators of `mobilenet_v1_0.25_128_quant.tflite`
on `mps2_an386`.

Operators that save most by the byte come first; where the arena does not fit with them, none has any. The last layer of
`ic_int8_qdq` saves 8% of all instructions for 95 KB: that is taken on a board with 2 MB of flash, and not on one with
512 KB. `--schedule conv_8=dsp_winograd` takes it anyway, and so does what tuning has found. Operators of run-time
sizes have none. On Helium its own schedules are mostly cheaper; what they can't compute, such as uint8 weights that
don't fit int8 without their zero point, may get `dsp_winograd` or `int_winograd`.

## What turning them gives

A setting is there because it wins somewhere. These are of `mtool bench --cycles` in QEMU; on a board with slow flash a
tile of fewer pixels costs more than it does here, since it reads the weights more often.

| setting | where | default | turned |
|---|---|--:|--:|
| `tile=2x2`, SIMD32 | 1x1, 64 to 64 channels, 4 pixels, Cortex-M4: instructions (`auto` there) | 24,480 | 18,720 |
| `tile=2x2`, SIMD32 | `ic_int8_qdq`, code for a Cortex-M4: its cycles | 17,342,818 | 19,094,910 |
| `tile=3x2`, SIMD32 | `ic_int8_qdq`, code for a Cortex-M7: its cycles (2x2 there) | 11,306,517 | 12,979,397 |
| `tile=2x2`, SIMD32 | `ic_int8_qdq`: bytes of the arena | 33,680 | 33,376 |
| `tile=2x4`, Helium | 1x1, 64 to 64 channels, 1 pixel: instructions (`auto` there) | 3,156 | 1,562 |
| `tile=4x2`, Helium | `kws_int8_qdq`: instructions | 795,187 | 817,605 |
| `tile=2x8`, float32 | 1x1, 64 to 64 channels, 9 pixels, Cortex-M7: cycles (`auto` there) | 70,628 | 62,657 |
| `unroll=1` of `mve_rows` | `ad_int8_qdq`: instructions, for 416 bytes of code less | 42,843 | 45,906 |
| `unroll=8` of `dsp_patch`, `dsp_pointwise` | `kws_int8_qdq`: bytes of code, for 2% more instructions | 3,712 | 3,200 |
| `direction=straight` of `dsp_plane` | `kws_int8_qdq`: bytes of code, for 2% more instructions | 3,712 | 3,648 |
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
        f"Takes: {takes.splitlines()[0]}",
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
