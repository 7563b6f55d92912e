"""crt/include/mt_float8.h against ml_dtypes: every bit pattern, and floats on and beside every rounding border."""

import subprocess
from pathlib import Path

import numpy as np
import pytest

from mtool.ir import DType

INCLUDE = Path(__file__).parents[2] / "crt" / "include"
SMALL = [dtype for dtype in DType if dtype.is_float and dtype.size == 1]

PROGRAM = """
#include <stdio.h>
#include "mt_float8.h"
int main(void)
{
    for (uint32_t code = 0; code < %(codes)d; ++code) {
        const float value = mt_%(name)s_load((uint8_t)code);
        fwrite(&value, 4, 1, stdout);
    }
    float value;
    while (fread(&value, 4, 1, stdin) == 1) {
        const uint8_t code = mt_%(name)s_store(value);
        fwrite(&code, 1, 1, stdout);
    }
    return 0;
}
"""


@pytest.mark.parametrize("dtype", SMALL, ids=lambda dtype: dtype.label)
def test_loads_and_stores(dtype: DType, tmp_path: Path) -> None:
    codes = 16 if dtype is DType.FLOAT4E2M1 else 256
    (tmp_path / "small.c").write_text(PROGRAM % {"name": dtype.label, "codes": codes})
    flags = ["-std=c99", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror", "-O1", f"-I{INCLUDE}"]
    subprocess.run(["cc", *flags, "-Wno-unused-function", "small.c", "-o", "small"], cwd=tmp_path, check=True)
    every = np.arange(codes, dtype=np.uint8).view(dtype.numpy).astype(np.float32)
    with np.errstate(all="ignore"):
        known = np.sort(every[np.isfinite(every)].astype(np.float64))
        middle = ((known[:-1] + known[1:]) / 2).astype(np.float32)
        borders = np.array(
            [0.0, -0.0, 1e-9, -1e-9, 1e9, -1e9, np.inf, -np.inf, np.nan, dtype.largest * 1.04], np.float32
        )
        near = [np.nextafter(middle, np.float32(side)) for side in (np.inf, -np.inf)]
        noise = np.random.default_rng(0).standard_normal(10_000).astype(np.float32) * np.float32(dtype.largest / 2)
        values = np.concatenate([every, middle, *near, borders, noise])
        wanted = values.astype(dtype.numpy)
    done = subprocess.run(["./small"], cwd=tmp_path, input=values.tobytes(), capture_output=True, check=True)
    assert np.array_equal(np.frombuffer(done.stdout[: 4 * codes], np.float32), every, equal_nan=True)
    stored = np.frombuffer(done.stdout[4 * codes :], np.uint8).view(dtype.numpy)
    assert np.array_equal(stored.astype(np.float32), wanted.astype(np.float32), equal_nan=True)
    assert np.array_equal(np.signbit(stored.astype(np.float32)), np.signbit(wanted.astype(np.float32)))
