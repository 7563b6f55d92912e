"""A backend for scripts/bench_layers.py: real Fourier transforms by the user's copy of CMSIS-DSP, to be counted beside.

Their results are not those of the operators: the order of the outputs and the scale of integers are CMSIS-DSP's.
CMSIS_DSP_DIR has its Include and Source, CMSIS_CORE_DIR the Include of CMSIS-Core (version 6).
"""

import os
import re
from pathlib import Path

from mtool.compiler.backends import Backend, Pattern, Product, Region

INCLUDE = re.compile(r'(#\s*include\s+)"(?:[\w./-]*/)?([\w-]+\.h)"')
QUIET = '#pragma GCC optimize ("fp-contract=fast")\n' + "".join(
    f'#pragma GCC diagnostic ignored "-W{name}"\n'
    for name in ("all", "conversion", "sign-conversion", "shadow", "unused-parameter", "cast-qual", "undef")
)
SOURCES = {
    "float32": "rfft_fast_f32 rfft_fast_init_f32 cfft_f32 cfft_init_f32 cfft_radix8_f32 bitreversal2",
    "int16": "rfft_q15 rfft_init_q15 cfft_q15 cfft_init_q15 cfft_radix4_q15 bitreversal2",
}
OTHERS = {"CommonTables": "common_tables const_structs mve_tables", "BasicMathFunctions": "shift_q15"}
INIT = {
    "float32": "arm_rfft_fast_init_f32(&rfft_float32, {length})",
    "int16": "arm_rfft_init_q15(&rfft_int16, {length}, 0, 1)",
}
CALL = {
    "float32": "arm_rfft_fast_f32(&rfft_float32, (float *)(uintptr_t)input0, output0, 0)",
    "int16": "arm_rfft_q15(&rfft_int16, (int16_t *)(uintptr_t)input0, (int16_t *)(void *)scratch)",
}
HEADER = """#include "arm_math.h"
extern arm_rfft_fast_instance_f32 rfft_float32;
extern arm_rfft_instance_q15 rfft_int16;
int32_t rfft_init(void);
"""
SETUP = """#include "rfft.h"
arm_rfft_fast_instance_f32 rfft_float32;
arm_rfft_instance_q15 rfft_int16;
int32_t rfft_init(void) {{ return {init}; }}
"""


class CmsisDsp(Backend):
    """Transforms of one signal."""

    name = "cmsis_dsp"
    patterns = (Pattern("SignalRfft", dtypes=("int16",)), Pattern("DFT", dtypes=("float32",)))
    whole_regions = False

    def compile(self, region: Region, folder: Path) -> Product:
        """Return the library's sources, and the call."""
        dsp, core = Path(os.environ["CMSIS_DSP_DIR"]), Path(os.environ["CMSIS_CORE_DIR"])
        kind, length = region.inputs[0].dtype.label, region.inputs[0].type.count
        names = {"TransformFunctions": SOURCES[kind], **OTHERS}
        paths = [dsp / f"Source/{room}/arm_{name}.c" for room, text in names.items() for name in text.split()]
        roots = (dsp / "Include", dsp / "PrivateInclude", core)
        headers = {path.name: path.read_text("utf-8-sig") for root in roots for path in sorted(root.rglob("*.h"))}
        is_arm = "cortex" in region.context.target.cpu
        define = "" if is_arm else "#define __GNUC_PYTHON__\n"
        headers["arm_math_types.h"] = define + headers["arm_math_types.h"]
        texts = headers | {path.name: QUIET + path.read_text("utf-8-sig") for path in paths}
        texts |= {"rfft.h": HEADER, "rfft.c": SETUP.format(init=INIT[kind].format(length=length))}
        return Product(
            body=f"    {CALL[kind]};",
            headers=("cmsis_dsp/rfft.h",),
            files={f"cmsis_dsp/{name}": INCLUDE.sub(r'\1"\2"', text).encode() for name, text in texts.items()},
            hooks={"activate": "rfft_init"},
            scratch_bytes=4 * length + 64,
            alignment=16,
        )
