"""How a board is recovered, and what happens meanwhile."""

from pathlib import Path
from typing import Any

import pytest

from mtool.base.errors import BoardError, CommunicationError, FlashError
from mtool.device.flash.ports import Attached
from mtool.device.flash.power import Power
from mtool.stages import deployment
from mtool.stages.deployment import Reconnection


def test_the_power_is_cycled_between_attempts_and_the_last_ones_error_is_reported(tmp_path: Path) -> None:
    reported = tmp_path / "cycles"
    failures = iter([FlashError("dead"), BoardError("gone"), CommunicationError("mute")])

    def attempt() -> Any:
        raise next(failures)

    power = Power(f"sh -c 'echo \"$0\" >> {reported}' '{{port}} {{probe}}'", port="p q", probe="0671")
    with pytest.raises(CommunicationError, match="mute"):
        Reconnection(power=power).until_back(attempt)
    assert reported.read_text() == "p q 0671\n" * 2


def test_a_probe_that_was_unplugged_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter([[], [], [Attached("/dev/ttyACM1", "0483:374b", "066BFF51", "")]])
    monkeypatch.setattr("mtool.device.flash.ports.attached", lambda: next(looks))
    monkeypatch.setattr(deployment, "POLL_S", 0.0)
    Reconnection(probe="066b").wait()
    assert next(looks, None) is None


def test_a_board_that_comes_back_at_anothers_port_is_still_the_same() -> None:
    before = Attached("/dev/ttyACM0", "0483:374b", "066BFF51", "")
    assert before.lock == Attached("/dev/ttyACM1", "0483:374b", "066BFF51", "").lock != ""
    assert Attached("/dev/rack/7", "", "", "").lock != Attached("/dev/rack/8", "", "", "").lock
