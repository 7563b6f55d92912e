"""Streams of few bits: packed, and unpacked by the C that devices run."""

import subprocess
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from mtool.base import resources
from mtool.compiler.kernels.few_bits import BYTES, HALVES, PAIRS, Packing, packing_of

Words = NDArray[np.uint32]
FORMS = {"bytes": BYTES, "pairs": PAIRS, "halves": HALVES}


def stream(form: str, least: int, most: int) -> Words:
    """Return 6 rows: two words, weights, three words of which the second is equal in all rows."""
    rng = np.random.default_rng(0)
    weights = rng.integers(least, most + 1, (6, 64))
    if form == "pairs":
        weights = weights[:, ::2] + 256 * weights[:, 1::2]
    plain = rng.integers(0, 2**32, (6, 5), np.uint64).astype(np.uint32)
    plain[:, 3] = 0xFFFFFF01
    words = np.ascontiguousarray(weights.astype(np.int8 if form == "bytes" else np.int16)).view(np.uint32)
    return np.concatenate([plain[:, :2], words, plain[:, 2:]], axis=1)


def unpacked(packing: Packing, packed: Words, folder: Path) -> Words:
    words = ", ".join(f"{word}u" for word in packed.tolist())
    (folder / "t.c").write_text(
        f'#include <stdio.h>\n#include "mt_unpack.h"\n{packing.macro}\n'
        f"static const uint32_t packed[] = {{{words}}};\nstatic uint32_t words[{packing.words}];\n"
        f"int main(void)\n{{\n    {packing.function}(words, packed);\n"
        f"    fwrite(words, 4, {packing.words}, stdout);\n    return 0;\n}}\n"
    )
    strict = [
        "-std=c99",
        "-Wall",
        "-Wextra",
        "-Wconversion",
        "-Wshadow",
        "-Werror",
        "-O2",
        "-fsanitize=undefined,address",
    ]
    include = f"-I{resources.path('crt') / 'include'}"
    subprocess.run(["gcc", *strict, include, "-o", folder / "t", folder / "t.c"], check=True)
    found = subprocess.run([folder / "t"], check=True, capture_output=True).stdout
    return np.frombuffer(found, np.uint32).reshape(packing.rows, -1)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("least", "most", "bits"), [(-8, 7, 4), (0, 15, 4), (-2, 1, 2), (-1, 1, 2), (-1, 0, 1)])
def test_unpacking_gives_the_stream(form: str, least: int, most: int, bits: int, tmp_path: Path) -> None:
    words = stream(form, least, most)
    packing = packing_of(words, least, most)
    assert packing is not None and packing.bits == bits
    assert least >= 0 or packing.form is FORMS[form]  # a number that is not negative is the same in bytes and in pairs
    packed = packing.pack(words)
    plain = 4 * len(words) + 1  # one word of five is stored once
    assert packed.size == packing.packed_words == 5 + plain + 6 * (words.shape[1] - 5) // packing.together
    np.testing.assert_array_equal(unpacked(packing, packed, tmp_path), words)


def test_words_that_do_not_fill_a_packed_one_stay_plain(tmp_path: Path) -> None:
    words = stream("bytes", -8, 7)[:, :-4]
    packing = packing_of(words, -8, 7)
    assert packing is not None and (packing.before, packing.count, packing.after) == (2, 14, 1)
    np.testing.assert_array_equal(unpacked(packing, packing.pack(words), tmp_path), words)


@pytest.mark.parametrize(
    "words",
    [
        np.random.default_rng(0).integers(-9, 8, (6, 64)).astype(np.int8),  # 17 numbers
        np.zeros((3, 7), np.int8),  # no whole words
        np.zeros((4, 8), np.int8),  # too few to save anything
        np.zeros((4, 80), np.float32),
    ],
)
def test_what_is_not_packed(words: NDArray[np.generic]) -> None:
    assert packing_of(words, min(0, int(words.min())), max(0, int(words.max()))) is None
