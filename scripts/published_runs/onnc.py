"""ONNC's C++: calls of CMSIS-NN's first functions (q7), in Mbed OS."""

from pathlib import Path

from published_runs.counting import Source
from published_runs.microtvm import cmsis_includes, library

FIXED = "arm_convolve_HWC_q7_fast_nonsquare"  # which the submission has a version of its own of
_MAIN = """
#include "onnc_main.h"
void prepare(void)
{
    struct onnc_input_tensor_t tensor = onnc_get_input_tensor();
    uint32_t random = 1;
    for (size_t i = 0; i < tensor.size; i++) {
        random = random * 1664525u + 1013904223u;
        tensor.data[i] = (int8_t)(random >> 24);
    }
}
__attribute__((noinline, optimize("no-optimize-sibling-calls"))) int one_inference(void)
{
    struct onnc_output_tensor_t tensor = onnc_main();
    return tensor.data == 0;
}
"""
# release.json of the submission, and what Mbed OS adds
_MBED = "-O3 -DNDEBUG -funsigned-char -fno-exceptions -fno-delete-null-pointer-checks -fomit-frame-pointer"


def onnc(model: Path, cmsis: Path, folder: Path) -> Source:
    """Return what a folder of the submission compiles; `folder` is for files."""
    (code,) = model.glob("*_code")
    own = folder / f"{FIXED}.c"
    own.write_bytes((model.parents[1] / f"{FIXED}.fixed").read_bytes())
    files = [path for path in library(cmsis) if path.stem != FIXED]
    includes = [code, *cmsis_includes(cmsis)]
    return Source(_MAIN, [code / "onnc_main.cpp", *files, own], includes, _MBED, {"onnc_runtime.h": ""})
