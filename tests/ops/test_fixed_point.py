"""The fixed-point requantisations of mt_math.h against exact integers, with a product of 64 bits and without."""

import subprocess
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import sanitized
from graphs import FLAGS

from mtool import resources

PROGRAM = """
#include "mt_math.h"
#include <inttypes.h>
#include <stdio.h>
int main(void)
{
    int32_t acc, multiplier, zero_point, shift;
    while (scanf("%" SCNd32 "%" SCNd32 "%" SCNd32 "%" SCNd32, &acc, &multiplier, &zero_point, &shift) == 4) {
        const int32_t one = (int32_t)1 << shift;
        printf("%" PRId32 " %" PRId32 " %" PRId32 " %" PRId32 "\\n", mt_high_word(acc, multiplier),
               mt_requantise_fixed(acc, multiplier, zero_point * one + one / 2, shift, -128, 127),
               mt_requantise_fixed_even(acc, multiplier, zero_point, shift, -128, 127),
               mt_rescale(acc, multiplier, shift));
    }
    return 0;
}
"""


def rows() -> list[tuple[int, int, int, int]]:
    """Accumulators, multipliers, zero points and shifts as the compiler makes them, with ties, and extremes."""
    rng = np.random.default_rng(7)
    found = []
    for _ in range(4000):
        shift = int(rng.integers(1, 22))
        multiplier = int(rng.integers(2**29, 2**31)) >> int(rng.integers(0, 6))
        most = 2**62 // multiplier  # the scaled sum stays below 2^30
        acc = int(rng.integers(-most, most + 1)) >> int(rng.integers(0, 20))
        if rng.random() < 0.5:  # an odd number of halves, or a unit of the accumulator beside it
            zeros = int(rng.integers(max(shift + 1, 8), 30))
            multiplier = 2**zeros * int(rng.integers(1, 2 ** (31 - zeros)))
            most = 2**62 // multiplier
            acc = (2 * int(rng.integers(-300, 300)) + 1) * 2 ** (31 + shift - zeros) + int(rng.integers(-1, 2))
        if abs(acc) <= min(most, 2**31 - 1):
            found.append((acc, multiplier, int(rng.integers(-128, 128)), shift))
    edges = (-(2**31), -(2**31) + 1, -65536, -65535, -1, 0, 1, 32767, 32768, 65535, 65536)
    return found + [(a, m, 0, 1) for a in edges for m in (1, 32768, 65535, 65536, 2**30)]


def clamp(value: int) -> int:
    return max(-128, min(127, value))


@pytest.mark.parametrize("options", [[], ["-DMT_NO_LONG_PRODUCT"]], ids=["long", "short"])
def test_requantisations_are_exact(options: list[str], tmp_path: Path) -> None:
    (tmp_path / "main.c").write_text(PROGRAM)
    include = f"-I{resources.path('crt') / 'include'}"
    build = ["cc", *FLAGS, *sanitized.UNDEFINED, *options, include, "main.c", "-o", "main", "-lm"]
    subprocess.run(build, cwd=tmp_path, check=True)
    given = rows()
    text = "\n".join(" ".join(map(str, row)) for row in given)
    done = subprocess.run([tmp_path / "main"], input=text, text=True, check=True, stdout=subprocess.PIPE)
    ties = 0
    for row, line in zip(given, done.stdout.splitlines(), strict=True):
        acc, multiplier, zero_point, shift = row
        high, fixed, even, rescaled = map(int, line.split())
        exact = Fraction(acc * multiplier, 2 ** (32 + shift))
        assert high == acc * multiplier >> 32, row
        assert fixed == clamp(((high + (1 << (shift - 1))) >> shift) + zero_point), row
        assert even == clamp(round(exact) + zero_point), row  # of a Fraction: ties to even
        assert rescaled == (high + (1 << (shift - 1))) >> shift, row
        ties += exact.denominator == 2
    assert ties > 100
