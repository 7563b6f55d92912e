"""Deltas from mtool/manifest/delta, decoded by the runtime's C under the sanitizers: the new bytes, or a refusal."""

import shutil
import struct
import subprocess
import zlib
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import amount
import numpy as np
import pytest

from mtool.base.errors import UsageError
from mtool.device.rpc.protocol import Status
from mtool.manifest.delta import MOST_BYTES, delta, delta_by_parts
from tests.crt.deltas import decode
from tests.crt.firmware import CRT, STRICT
from tests.crt.test_compilers import CORES

HEADER = 16


def weights(random: np.random.Generator, count: int) -> bytes:
    """Return bytes as int8 weights have them: near zero most."""
    return np.clip(random.normal(0, 30, count), -127, 127).astype(np.int8).tobytes()


def moved(random: np.random.Generator, data: bytes, share: float) -> bytes:
    """Return weights of which a share is moved by a step or two."""
    values = np.frombuffer(data, np.int8).astype(int)
    steps = random.choice([-2, -1, 1, 2], values.size) * (random.random(values.size) < share)
    return np.clip(values + steps, -127, 127).astype(np.int8).tobytes()


def code(random: np.random.Generator, count: int) -> bytes:
    """Return bytes as code has them: few kinds of pairs, some of them nearly never."""
    return random.geometric(0.02, (count + 1) // 2).astype("<u2").tobytes()[:count]


def shapes(random: np.random.Generator) -> list[tuple[bytes, bytes]]:
    """Return pairs of files that differ in every way that modules can."""
    body, text = weights(random, 3000), code(random, 700)
    step = moved(random, body, 1.0)
    return [
        (b"", b""),
        (b"", body),
        (body, b""),
        (b"\xff" * 300, b"\xff" * 301),
        (b"\0" * 5000, b"\x80" * 5000),
        (body, body),
        (body, step),
        (text + body, text + code(random, 90) + step),  # more code, so that all weights lie elsewhere
        (text + body, step + text),
        (text + body, body[:1000] + code(random, 20) + body[1200:]),
        (text, random.bytes(900)),
    ]


@pytest.mark.parametrize("piece", [1, 7, 5000])
def test_what_is_decoded_is_the_new_file(piece: int) -> None:
    random = np.random.default_rng(piece)
    cases = [pair for _ in range(amount.of(50, 2)) for pair in shapes(random)]
    decoded = decode([(old, delta(old, new)) for old, new in cases], piece=piece)
    assert decoded == [(Status.MT_OK, new) for _, new in cases]


def test_probabilities_at_their_ends() -> None:
    """Long runs of one decision, and then the other: carries through many bytes, and the least ranges."""
    random = np.random.default_rng(0)
    old = b"\0" * 60000
    new = bytearray(old)
    for place in random.integers(0, len(new), 40):
        new[place] = random.integers(256)
    assert decode([(old, delta(old, bytes(new)))]) == [(Status.MT_OK, bytes(new))]
    assert len(delta(old, old)) < 40


@pytest.mark.parametrize(("share", "most"), [(0.1, 0.12), (0.5, 0.27), (1.0, 0.30)])
def test_small_steps_cost_their_information(share: float, most: float) -> None:
    """Within 4% of the entropy: which of the weights move, and of each that does two bits."""
    random = np.random.default_rng(1)
    old = weights(random, 40000)
    new = moved(random, old, share)
    which = -sum(part * np.log2(part) for part in (share, 1 - share) if part)
    bound = (which + 2 * share) / 8
    assert bound - 0.01 < len(delta(old, new)) / len(new) < bound * 1.04
    assert len(delta(old, new)) / len(new) < most < len(zlib.compress(new, 9)) / len(new)


def test_weights_that_lie_elsewhere_and_have_all_moved_are_found() -> None:
    random = np.random.default_rng(2)
    parts = [weights(random, 4000) for _ in range(3)]
    old = b"".join(parts)
    new = b"".join(moved(random, parts[number], 1.0) for number in (2, 0, 1))
    made = delta(old, new)
    assert len(made) < 0.31 * len(new)
    assert decode([(old, made)]) == [(Status.MT_OK, new)]


def test_mutants_are_refused_or_make_other_bytes() -> None:
    """Whatever a delta says, the decoder stays within the old bytes and the room, and gives no more than it says."""
    random = np.random.default_rng(3)
    cases: list[tuple[bytes, bytes]] = []
    for old, new in shapes(random):
        whole = delta(old, new)
        for _ in range(amount.of(9000, 60)):
            made = bytearray(whole)
            for place in random.integers(0, len(made), random.integers(1, 4)):
                made[place] ^= 1 << random.integers(8)
            cases.append((old, bytes(made)))
    results = decode(cases, piece=50, room=4096)
    for (old, made), (status, new) in zip(cases, results, strict=True):
        assert status in (Status.MT_OK, Status.MT_BAD_DELTA)
        reported = struct.unpack_from("<4sIII", made)
        if reported[:2] != (b"MTD1", len(old)) or reported[3] != zlib.crc32(old) or reported[2] > 4096:
            assert (status, new) == (Status.MT_BAD_DELTA, b"")
        assert len(new) == reported[2] if status == Status.MT_OK else len(new) <= reported[2]
    assert sum(status == Status.MT_BAD_DELTA for status, _ in results) > len(results) // 10


def header(old: bytes, count: int) -> bytes:
    return struct.pack("<4sIII", b"MTD1", len(old), count, zlib.crc32(old))


@pytest.mark.parametrize(
    "change",
    [
        lambda made: made[:-1],
        lambda made: made + b"\0",
        lambda made: made[:HEADER],
        lambda made: made[: HEADER - 1],
        lambda made: b"",
        lambda made: b"MTD2" + made[4:],
    ],
    ids=["cut", "longer", "header alone", "half a header", "nothing", "other format"],
)
def test_no_byte_may_be_missing_or_more(change: Callable[[bytes], bytes]) -> None:
    old, new = code(np.random.default_rng(4), 500), code(np.random.default_rng(5), 400)
    ((status, _),) = decode([(old, change(delta(old, new)))])
    assert status == Status.MT_BAD_DELTA


def test_other_old_bytes_and_too_many_new_ones_are_refused_before_any_is_written() -> None:
    old, new = code(np.random.default_rng(6), 500), code(np.random.default_rng(7), 400)
    made = delta(old, new)
    other = old[:-1] + bytes([old[-1] ^ 1])
    assert decode([(other, made), (old[:-1], made)]) == [(Status.MT_BAD_DELTA, b"")] * 2
    assert decode([(old, made)], room=len(new) - 1) == [(Status.MT_BAD_DELTA, b"")]
    assert decode([(old, made)], room=len(new)) == [(Status.MT_OK, new)]


def test_random_streams_are_held_within_bounds() -> None:
    """Decisions of no encoder: jumps and runs to everywhere."""
    random = np.random.default_rng(8)
    old = code(random, 300)
    cases = [(old, header(old, 600) + random.bytes(random.integers(4, 300))) for _ in range(amount.of(20000, 300))]
    for status, new in decode(cases, piece=3, room=600):
        assert status in (Status.MT_OK, Status.MT_BAD_DELTA)
        assert len(new) <= 600


def test_what_each_part_costs() -> None:
    random = np.random.default_rng(10)
    old = weights(random, 4000)
    new = old[:1000] + moved(random, old[1000:3000], 1.0) + old[3000:]
    made, parts = delta_by_parts(old, new, (1000, 3000, 3500))
    assert made == delta(old, new) and sum(parts) == len(made)
    assert HEADER <= parts[0] < HEADER + 30 and 480 < parts[1] < 640 and parts[2] < 30 and parts[3] < 10
    assert delta_by_parts(old, new, (4000,)) == (made, (len(made) - 4, 4))


def test_a_delta_is_the_same_each_time_and_not_of_files_too_large() -> None:
    random = np.random.default_rng(9)
    old, new = weights(random, 2000), weights(random, 2000)
    assert all(one == other for one, other in pairwise(delta(old, new) for _ in range(3)))
    with pytest.raises(UsageError, match="8,388,609"):
        delta(old, bytes(MOST_BYTES + 1))


@pytest.mark.parametrize("core", CORES)
def test_the_decoder_compiles_and_is_small(core: str, tmp_path: Path) -> None:
    compiler, *flags = CORES[core]
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    fits = "sizeof(struct mt_delta) - MT_DELTA_PIECE <= 256u || sizeof(void *) > 4"
    source = tmp_path / "decoder.c"
    source.write_text(f'#include "mt_delta.c"\ntypedef char fits[{fits} ? 1 : -1];\n')
    made = tmp_path / "decoder.o"
    subprocess.run([compiler, *STRICT, *flags, f"-I{CRT / 'modules'}", "-c", source, "-o", made], check=True)
    if core == "cortex-m4":
        listing = subprocess.run(["arm-none-eabi-size", made], capture_output=True, text=True, check=True).stdout
        text, data, bss = map(int, listing.splitlines()[1].split()[:3])
        assert text <= 1024 and data + bss == 0
