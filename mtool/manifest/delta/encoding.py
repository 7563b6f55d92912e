"""A delta's bytes: the operations and numbers that crt/src/mt_delta.c tells, as decisions of the range coder."""

import struct
import zlib
from collections.abc import Sequence
from itertools import pairwise

from mtool.base.errors import UsageError
from mtool.manifest.delta.alignment import Run, runs
from mtool.manifest.delta.range_coder import RangeEncoder

MAGIC = b"MTD1"
MOST_BYTES = 1 << 23  # of the old and of the new: a jump over both has a number

_IS_GIVEN = 0
_SIGN_OF_JUMP, _SIGN_OF_DIFFERENCE, _SIGN_OF_GIVEN = 1, 2, 3
_RUN = 4
_DIFFERENCE = _RUN + 23
_GIVEN = _DIFFERENCE + 5 * 7
_HIGHEST = _GIVEN + 2 * 7
_MODELS = _HIGHEST + 2 * 8

_BITS_OF_RUN, _BITS_OF_BYTE = 23, 7  # below the highest, at most


def delta(old: bytes, new: bytes) -> bytes:
    """Return what a decoder that has `old` makes `new` of.

    Raises:
        UsageError: they are larger than a delta can be of.
    """
    return delta_by_parts(old, new, ())[0]


def delta_by_parts(old: bytes, new: bytes, cuts: Sequence[int]) -> tuple[bytes, tuple[int, ...]]:
    """Return a delta, and how many of its bytes are for each part of `new`, which is cut at rising places.

    Raises:
        UsageError: as `delta`.
    """
    if max(len(old), len(new)) > MOST_BYTES:
        raise UsageError(
            f"a delta is of files of at most {MOST_BYTES:,} bytes: these have {len(old):,} and {len(new):,}"
        )
    header = MAGIC + struct.pack("<III", len(old), len(new), zlib.crc32(old))
    at: dict[int, int] = dict.fromkeys(cuts, 0)
    made = header + _stream(old, new, runs(old, new), at) if new else header
    ends = [*(len(header) + at[cut] for cut in cuts), len(made)]
    return made, tuple(end - begin for begin, end in pairwise([0, *ends]))


def _stream(old: bytes, new: bytes, chosen: list[Run], at: dict[int, int]) -> bytes:
    """Return the decisions; `at` is filled with how many bytes are written at each of its places in `new`."""
    coder = RangeEncoder(_MODELS)
    start = shift = 0
    for run in chosen:
        coder.decide(int(run.shift is None), _IS_GIVEN)
        if run.shift is not None:
            jump, shift = run.shift - shift, run.shift
            _number(coder, abs(jump) + 1, _RUN, _BITS_OF_RUN)
            if jump:
                coder.decide(int(jump < 0), _SIGN_OF_JUMP)
        _number(coder, run.bytes, _RUN, _BITS_OF_RUN)
        last = before = 0
        for place in range(start, start + run.bytes):
            if place in at:
                at[place] = coder.bytes_so_far
            signed = (new[place] - (0 if run.shift is None else old[place + shift]) + 128 & 255) - 128
            around = 2 * last + before
            last, before = abs(signed), last
            if run.shift is None:
                _number(coder, last + 1, _GIVEN + (0 if around < 64 else 7), _BITS_OF_BYTE, _HIGHEST + 8)
            else:
                near = around if around < 2 else 2 if around < 4 else 3 if around < 8 else 4
                _number(coder, last + 1, _DIFFERENCE + 7 * near, _BITS_OF_BYTE, _HIGHEST)
            if signed:
                coder.decide(int(signed < 0), _SIGN_OF_GIVEN if run.shift is None else _SIGN_OF_DIFFERENCE)
        start += run.bytes
    at.update({place: coder.bytes_so_far for place in at if place >= len(new)})
    return coder.end()


def _number(coder: RangeEncoder, number: int, models: int, most_bits: int, highest: int | None = None) -> None:
    """Write a number, 1 or more: its length in unary, and its bits below the highest.

    Args:
        coder: where it is written.
        number: it.
        models: the first model of its length.
        most_bits: how many bits there can be below the highest.
        highest: the models of the first of them, by how many there are; None: it is as likely as not.
    """
    bits = number.bit_length() - 1
    for place in range(bits):
        coder.decide(1, models + place)
    if bits < most_bits:
        coder.decide(0, models + bits)
    for place in range(bits - 1, -1, -1):
        bit = number >> place & 1
        if highest is not None and place == bits - 1:
            coder.decide(bit, highest + bits)
        else:
            coder.even(bit)
