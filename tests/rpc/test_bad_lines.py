"""A board behind a line that loses, harms and delays bytes, or is pulled out; scripts/soak.py does more of it."""

from pathlib import Path

import models
import pytest

from mtool import workflow
from tests.rpc import trials
from tests.rpc.bridge import HARMS

KWS = "kws/kws_int8_qdq"


@pytest.fixture(scope="module")
def on_host(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return workflow.prepare(models.path(KWS), board="host", folder=tmp_path_factory.mktemp("kws") / "host").folder


@pytest.fixture(scope="module")
def in_qemu(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return workflow.prepare(models.path(KWS), board="mps2_an386", folder=tmp_path_factory.mktemp("kws") / "m4").folder


@models.needed
@pytest.mark.parametrize("harms", [*((harm,) for harm in HARMS), HARMS], ids=" ".join)
def test_noise_changes_no_result(on_host: Path, harms: tuple[str, ...]) -> None:
    noisy = trials.over_noise(on_host, count=60, harms=harms, seed=1)
    assert noisy.wrong == 0
    assert noisy.harmed > 20
    assert noisy.resent > 0
    assert noisy.longest_s < 5


@models.needed
def test_noise_before_an_emulator_changes_no_result(in_qemu: Path) -> None:
    noisy = trials.over_noise(in_qemu, count=10, rate=4e-3, seed=1)
    assert noisy.wrong == 0
    assert noisy.harmed > 10
    assert noisy.resent > 0


def test_unplugged_in_the_middle_of_anything() -> None:
    assert trials.unplug(times=40, seed=1).reconnected == 40
