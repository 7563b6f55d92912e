"""Slots for modules, in flash whose power is cut at every write of a load: crt/tests/mt_test_slots.c."""

import subprocess
from pathlib import Path

import amount
import pytest

from tests.crt.firmware import CRT, STRICT

LEAST_CUTS, ROUNDS = (10_000, 58) if amount.IS_ALL else (2_000, 14)
SOURCES = [*(CRT / "src" / f"{name}.c" for name in ("mt_crc32", "mt_siphash")), CRT / "modules" / "mt_slots.c"]
CHECKED = ("-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


@pytest.fixture(scope="module", params=["without a key", "MT_LINK_KEY={1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16}"])
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("slots") / "slots"
    key = [f"-D{request.param}"] if "=" in request.param else []
    subprocess.run(
        ["gcc", *STRICT, *CHECKED, *key, *SOURCES, CRT / "tests" / "mt_test_slots.c", "-o", made], check=True
    )
    return made


@pytest.mark.parametrize("seed", range(1, 101 if amount.IS_ALL else 2))
def test_power_that_is_cut_at_any_write_leaves_what_was_there_and_every_counter(program: Path, seed: int) -> None:
    done = subprocess.run([program, str(seed), str(ROUNDS)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    cuts, resumed, went, stayed, at_keys = (int(word) for word in done.stdout.split() if word.isdigit())
    assert cuts >= LEAST_CUTS
    assert min(went, stayed) > cuts // 50
    assert at_keys >= ROUNDS
    assert resumed > cuts // 25  # what a cut has left is gone on with
