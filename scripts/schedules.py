"""Write docs/schedules.md: every schedule, what it computes, where it can be, and its knobs.

scripts/schedules.py
"""

import inspect
import sys
from pathlib import Path

from mtool import ops
from mtool.ops.schedule import Schedule

RESULT = Path(__file__).parents[1] / "docs" / "schedules.md"
INSTRUCTIONS = {  # by what a schedule's name begins with
    "c99": "portable C",
    "dsp": "SIMD32 (Armv7E-M, Armv8-M with DSP) and an FPU",
    "mve": "Helium with floating point",
    "f32": "Cortex-M with a float32 FPU",
}
HEAD = """# Schedules

Written from the schedules themselves (`make schedules`); don't edit it.

A schedule is one way to compute an operator. Of those that support a node on the board's core, the one with the
smallest estimated cost is taken. All of them give the same integers, and floats within their tolerance: that, and every
setting of every knob, is tested against portable C.

A knob is a parameter of a schedule that may be turned for a node. Its default stands first; `auto` leaves the choice to
the schedule's own estimate. Another schedule, or a setting, is asked for by the node's name, which stands in the
generated C and in `mtool.json`:

    mtool bench --board mps2_an386 model.onnx --schedule pw_2=dsp_pointwise:unroll=16
    mtool.compile("model.onnx", board="mps2_an386", options=mtool.Options(
        schedules={"pw_2": mtool.Choice("dsp_pointwise", {"unroll": 16})}))
"""


def page() -> str:
    """Return the page."""
    parts = [HEAD]
    for op, kernel in ops.KERNELS.items():
        parts.append(f"## {op}\n")
        parts += [_described(schedule) for schedule in kernel.schedules]
    return "\n".join(parts)


def _described(schedule: Schedule) -> str:
    lines = [
        f"### `{schedule.name}` ({instructions(schedule)})",
        "",
        f"Takes: {(inspect.getdoc(schedule.supports) or '').splitlines()[0]}",
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


def instructions(schedule: Schedule) -> str:
    """Return the instructions that a schedule is written for."""
    return INSTRUCTIONS[schedule.name.split("_")[0]]


def main() -> int:
    """Write the page."""
    RESULT.write_text(page())
    print(RESULT)
    return 0


if __name__ == "__main__":
    sys.exit(main())
