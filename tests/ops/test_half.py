"""crt/include/mt_half.h against NumPy: every 16-bit pattern, and floats on and beside every rounding border."""

import subprocess
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

INCLUDE = Path(__file__).parents[2] / "crt" / "include"

PROGRAM = """
#include <stdio.h>
#include "mt_half.h"
int main(void)
{
    for (uint32_t half = 0; half < 65536; ++half) {
        const float value = mt_%(name)s_load((uint16_t)half);
        fwrite(&value, 4, 1, stdout);
    }
    float value;
    while (fread(&value, 4, 1, stdin) == 1) {
        const uint16_t half = mt_%(name)s_store(value);
        fwrite(&half, 2, 1, stdout);
    }
    return 0;
}
"""


@pytest.mark.parametrize("compiler", [[], ["-U__FLT16_MAX__"]], ids=["type of the compiler", "portable"])
@pytest.mark.parametrize(("name", "dtype"), [("f16", np.float16), ("bf16", ml_dtypes.bfloat16)])
def test_loads_and_stores(name: str, dtype: type, compiler: list[str], tmp_path: Path) -> None:
    (tmp_path / "half.c").write_text(PROGRAM % {"name": name})
    flags = ["-std=c99", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror", "-O1", f"-I{INCLUDE}", *compiler]
    subprocess.run(["cc", *flags, "half.c", "-o", "half"], cwd=tmp_path, check=True)
    every = np.arange(65536, dtype=np.uint16).view(dtype).astype(np.float32)
    with np.errstate(all="ignore"):
        middle = ((every[:-1].astype(np.float64) + every[1:]) / 2).astype(np.float32)
        values = np.concatenate([every, middle, np.nextafter(middle, np.inf), np.nextafter(middle, -np.inf)])
        values = values[~np.isnan(values)]
        wanted = values.astype(dtype).view(np.uint16)
    done = subprocess.run(["./half"], cwd=tmp_path, input=values.tobytes(), capture_output=True, check=True)
    loaded = np.frombuffer(done.stdout[: 4 * 65536], np.float32)
    assert np.array_equal(loaded, every, equal_nan=True)
    assert np.array_equal(np.frombuffer(done.stdout[4 * 65536 :], np.uint16), wanted)
