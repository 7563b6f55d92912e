"""mt_half.h against NumPy and mt_float8.h against ml_dtypes: every pattern, and floats near every rounding border."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from mtool.compiler.ir import DType

INCLUDE = Path(__file__).parents[3] / "crt" / "include"
FLAGS = ["-std=c99", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror", "-O1", f"-I{INCLUDE}"]
SMALL = [dtype for dtype in DType if dtype.is_float and dtype.size == 1]
Array = np.ndarray[Any, Any]

PROGRAM = """
#include <stdio.h>
#include "%(header)s"
int main(void)
{
    for (uint32_t code = 0; code < %(codes)d; ++code) {
        const float value = mt_%(name)s_load((%(type)s)code);
        fwrite(&value, 4, 1, stdout);
    }
    float value;
    while (fread(&value, 4, 1, stdin) == 1) {
        const %(type)s code = mt_%(name)s_store(value);
        fwrite(&code, sizeof code, 1, stdout);
    }
    return 0;
}
"""


def converter(
    folder: Path, header: str, name: str, codes: Array, *flags: str
) -> Callable[[Array], tuple[Array, Array]]:
    """Return what loads all `codes` and stores the floats that it is given: the floats of the former, the latter's."""
    described = {"header": header, "name": name, "codes": codes.size, "type": f"{codes.dtype}_t"}
    (folder / "small.c").write_text(PROGRAM % described)
    subprocess.run(["cc", *FLAGS, *flags, "small.c", "-o", "small"], cwd=folder, check=True)

    def converted(values: Array) -> tuple[Array, Array]:
        done = subprocess.run(["./small"], cwd=folder, input=values.tobytes(), capture_output=True, check=True).stdout
        return np.frombuffer(done[: 4 * codes.size], np.float32), np.frombuffer(done[4 * codes.size :], codes.dtype)

    return converted


@pytest.mark.parametrize("compiler", [[], ["-U__FLT16_MAX__"]], ids=["type of the compiler", "portable"])
@pytest.mark.parametrize(("name", "dtype"), [("f16", np.float16), ("bf16", ml_dtypes.bfloat16)])
def test_halves(name: str, dtype: type, compiler: list[str], tmp_path: Path) -> None:
    codes = np.arange(65536, dtype=np.uint16)
    every = codes.view(dtype).astype(np.float32)
    with np.errstate(all="ignore"):
        middle = ((every[:-1].astype(np.float64) + every[1:]) / 2).astype(np.float32)
        values = np.concatenate([every, middle, np.nextafter(middle, np.inf), np.nextafter(middle, -np.inf)])
        values = values[~np.isnan(values)]
        wanted = values.astype(dtype).view(np.uint16)
    loaded, stored = converter(tmp_path, "mt_half.h", name, codes, *compiler)(values)
    assert np.array_equal(loaded, every, equal_nan=True)
    assert np.array_equal(stored, wanted)


@pytest.mark.parametrize("dtype", SMALL, ids=lambda dtype: dtype.label)
def test_quarters(dtype: DType, tmp_path: Path) -> None:
    codes = np.arange(16 if dtype is DType.FLOAT4E2M1 else 256, dtype=np.uint8)
    every = codes.view(dtype.numpy).astype(np.float32)
    with np.errstate(all="ignore"):
        known = np.sort(every[np.isfinite(every)].astype(np.float64))
        middle = ((known[:-1] + known[1:]) / 2).astype(np.float32)
        borders = np.array(
            [0.0, -0.0, 1e-9, -1e-9, 1e9, -1e9, np.inf, -np.inf, np.nan, dtype.largest * 1.04], np.float32
        )
        near = [np.nextafter(middle, np.float32(side)) for side in (np.inf, -np.inf)]
        noise = np.random.default_rng(0).standard_normal(10_000).astype(np.float32) * np.float32(dtype.largest / 2)
        values = np.concatenate([every, middle, *near, borders, noise])
        wanted = values.astype(dtype.numpy).astype(np.float32)
    loaded, codes_of = converter(tmp_path, "mt_float8.h", dtype.label, codes, "-Wno-unused-function")(values)
    stored = codes_of.view(dtype.numpy).astype(np.float32)
    assert np.array_equal(loaded, every, equal_nan=True)
    assert np.array_equal(stored, wanted, equal_nan=True)
    assert np.array_equal(np.signbit(stored), np.signbit(wanted))
