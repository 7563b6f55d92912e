"""The fixed-point requantization of mt_math.h against exact integers, with 64-bit products and without."""

import subprocess
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import sanitized
from graphs import FLAGS

from mtool.base import resources
from mtool.compiler.ir.scalar import FixedRequantize
from mtool.compiler.passes.integer_math import is_short

PROGRAM = """
#include "mt_math.h"
#include <inttypes.h>
#include <stdio.h>
int main(void)
{
    int32_t acc, multiplier, zero_point, shift;
    while (scanf("%" SCNd32 "%" SCNd32 "%" SCNd32 "%" SCNd32, &acc, &multiplier, &zero_point, &shift) == 4) {
        const int32_t one = (int32_t)1 << shift;
        printf("%" PRId32 " %" PRId32 " %" PRId32 " %" PRId32 " %" PRId32 "\\n", mt_high_word(acc, multiplier),
               mt_requantize_fixed(acc, multiplier, zero_point * one + one / 2, shift, -128, 127),
               mt_requantize_fixed_even(acc, multiplier, zero_point, shift, -128, 127),
               mt_rescale(acc, multiplier, shift), mt_rescale_twice(acc, multiplier, shift));
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
def test_requantizations_are_exact(options: list[str], tmp_path: Path) -> None:
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
        high, fixed, even, rescaled, twice = map(int, line.split())
        exact = Fraction(acc * multiplier, 2 ** (32 + shift))
        assert high == acc * multiplier >> 32, row
        assert fixed == clamp(((high + (1 << (shift - 1))) >> shift) + zero_point), row
        assert even == clamp(round(exact) + zero_point), row  # of a Fraction: ties to even
        assert rescaled == (high + (1 << (shift - 1))) >> shift, row
        once = (acc * multiplier + 2**30) >> 31
        assert twice == (once + (1 << shift) - (once < 0)) >> (shift + 1), row
        ties += exact.denominator == 2
    assert ties > 100


SHORT = """
#include "mt_math.h"
#include <inttypes.h>
#include <stdio.h>
int main(void)
{
    int32_t acc, multiplier, offset, shift;
    while (scanf("%" SCNd32 "%" SCNd32 "%" SCNd32 "%" SCNd32, &acc, &multiplier, &offset, &shift) == 4)
        printf("%" PRId32 " %" PRId32 "\\n", mt_requantize_fixed_short(acc, multiplier, offset, shift, -128, 127),
               mt_requantize_fixed(acc, multiplier, offset, shift, -128, 127));
    return 0;
}
"""


def test_short_sums_take_ten_bits_at_a_time(tmp_path: Path) -> None:
    """With the largest sums, multipliers and offsets that the compiler takes for short."""
    rng = np.random.default_rng(5)
    given = []
    while len(given) < 5000:
        shift, bound = int(rng.integers(1, 20)), 2 ** int(rng.integers(1, 21)) - 1
        multiplier = int(rng.integers(2**20, 2**31))
        how = FixedRequantize(int(rng.integers(-128, 128)), -128, 127, shift)
        if is_short(how, np.array([multiplier]), bound):
            acc = int(rng.choice([-bound, bound, int(rng.integers(-bound, bound + 1))]))
            given.append((acc, multiplier, how.offset, shift))
    assert not is_short(FixedRequantize(0, -128, 127, 8), np.array([2**30]), 2**20)
    (tmp_path / "main.c").write_text(SHORT)
    include = f"-I{resources.path('crt') / 'include'}"
    build = ["cc", *FLAGS, *sanitized.UNDEFINED, include, "main.c", "-o", "main", "-lm"]
    subprocess.run(build, cwd=tmp_path, check=True)
    text = "\n".join(" ".join(map(str, row)) for row in given)
    done = subprocess.run([tmp_path / "main"], input=text, text=True, check=True, stdout=subprocess.PIPE)
    pairs = [line.split() for line in done.stdout.splitlines()]
    assert len(pairs) == len(given) and all(short == plain for short, plain in pairs)
    assert len({short for short, _ in pairs}) > 200


BESIDE_HALVES = """
#include "mt_math.h"
#include <inttypes.h>
#include <stdio.h>
int main(void)
{
    int32_t acc, multiplier, zero_point, shift, is_short;
    while (scanf("%" SCNd32 "%" SCNd32 "%" SCNd32 "%" SCNd32 "%" SCNd32, &acc, &multiplier, &zero_point, &shift,
                 &is_short) == 5) {
        const int32_t offset = zero_point * ((int32_t)1 << shift) + ((int32_t)1 << (shift - 1));
        const int32_t found = mt_requantize_fixed_exact(acc, -multiplier, offset, shift, -128, 127);
        printf("%" PRId32 " %" PRId32 "\\n", found, mt_shift_even(acc / 4, shift));
        if (is_short && found != mt_requantize_fixed_exact_short(acc, -multiplier, offset, shift, -128, 127))
            return 1;
    }
    return 0;
}
"""


@pytest.mark.parametrize("options", [[], ["-DMT_NO_LONG_PRODUCT"]], ids=["long", "short"])
def test_beside_a_half_it_is_what_the_float_gives(options: list[str], tmp_path: Path) -> None:
    """Accumulators whose products lie within float32's rounding of a half, on either side, ties and others."""
    rng = np.random.default_rng(3)
    given, wanted, differ = [], [], 0
    while len(given) < 6000:
        mantissa = int(rng.integers(2**23, 2**24)) >> int(rng.integers(0, 20)) * int(rng.random() < 0.3)
        scale = np.float32(np.ldexp(mantissa, -int(rng.integers(26, 34))))
        shift = int(rng.integers(3, 9))
        multiplier = int(float(scale) * 2 ** (32 + shift))
        acc = round((int(rng.integers(-140, 140)) + 0.5) / float(scale)) + int(rng.integers(-1, 2))
        if multiplier != float(scale) * 2 ** (32 + shift) or multiplier >= 2**31 or abs(acc) >= 2**29:
            continue
        zero_point = int(rng.integers(-128, 128))
        steps = int(np.rint(np.float32(acc) * scale))
        differ += steps != (acc * multiplier + (1 << (31 + shift))) >> (32 + shift)
        how = FixedRequantize(zero_point, -128, 127, shift, near=True)
        given.append((acc, multiplier, zero_point, shift, int(is_short(how, np.array([multiplier]), abs(acc)))))
        wanted.append((clamp(steps + zero_point), round(Fraction(int(acc / 4), 1 << shift))))
    assert differ > 100 and sum(row[-1] for row in given) > 100
    (tmp_path / "main.c").write_text(BESIDE_HALVES)
    include = f"-I{resources.path('crt') / 'include'}"
    program = tmp_path / "program"
    command = ["cc", *FLAGS, *options, *sanitized.UNDEFINED, include, tmp_path / "main.c", "-o", program, "-lm"]
    subprocess.run(command, check=True)
    text = "\n".join(" ".join(map(str, row)) for row in given)
    done = subprocess.run([program], input=text, capture_output=True, text=True, check=True)
    assert [tuple(map(int, line.split())) for line in done.stdout.splitlines()] == wanted
