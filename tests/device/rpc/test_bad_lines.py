"""A board behind a line that loses, damages and delays bytes, or is pulled out; scripts/soak.py runs longer."""

from pathlib import Path

import models
import numpy as np
import pytest

from mtool import commands
from mtool.device.rpc import Client
from mtool.device.transport import SerialTransport
from tests.crt import firmware
from tests.device.rpc import trials
from tests.device.rpc.bridge import HARMS, Bridge, Noise
from tests.device.rpc.test_client import Sample

KWS = "kws/kws_int8_qdq"


@pytest.fixture(scope="module")
def on_host(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return commands.prepare(models.path(KWS), board="host", folder=tmp_path_factory.mktemp("kws") / "host").folder


@pytest.fixture(scope="module")
def in_qemu(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return commands.prepare(models.path(KWS), board="mps2_an386", folder=tmp_path_factory.mktemp("kws") / "m4").folder


@pytest.mark.product(2)
@models.needed
@pytest.mark.parametrize("harms", [*((harm,) for harm in HARMS), HARMS], ids=" ".join)
def test_noise_changes_no_result(on_host: Path, harms: tuple[str, ...]) -> None:
    noisy = trials.over_noise(on_host, count=60, harms=harms, seed=1)
    assert noisy.wrong == 0
    assert noisy.harmed > 20
    assert noisy.resent > 0
    assert noisy.longest_s < 10


@pytest.mark.slow
@models.needed
def test_noise_before_an_emulator_changes_no_result(in_qemu: Path) -> None:
    noisy = trials.over_noise(in_qemu, count=10, rate=4e-3, seed=1)
    assert noisy.wrong == 0
    assert noisy.harmed > 10
    assert noisy.resent > 0


@pytest.mark.slow
def test_unplugged_in_the_middle_of_anything() -> None:
    assert trials.unplug(times=40, seed=1).reconnected == 40


@pytest.mark.slow
@pytest.mark.product(2)
@pytest.mark.parametrize("rate", [0, 1e-3])
@pytest.mark.parametrize("ring_bytes", [63, 256, 2048])
def test_the_ring_of_an_interrupt_does_not_run_over(ring_bytes: int, rate: float) -> None:
    """But where bytes are harmed: what is sent again may meet the rest of what was sent before, and is lost again."""
    program = str(firmware.build(defines=("TEST_BUFFER_BYTES=4096", f"TEST_WINDOW_BYTES={ring_bytes}")))
    noise = (Noise(rate=rate, seed=1), Noise(rate=rate, seed=2))
    random = np.random.default_rng(0)
    with (
        Bridge([program], noise=noise, ring_bytes=ring_bytes) as board,
        SerialTransport(board.port, baud=115200) as port,
    ):
        client = Client(port, timeout_s=5)
        for run in range(1, 11):
            Sample.draw(random, size=1500).check(client, run=run)
        assert rate or client.resent or board.overrun == 0  # a stall of this computer may have something sent again
