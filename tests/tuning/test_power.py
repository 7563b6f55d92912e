"""`mtool flash` on a simulated board that only a power cycle recovers."""

from pathlib import Path

import pytest

from mtool.cli import app
from tests.tuning.dense import network
from tests.tuning.rig import BOARD, rig


@pytest.mark.slow
def test_flash_cycles_the_power_of_a_board_that_can_not_be_flashed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = network(tmp_path / "m.onnx")
    with rig(tmp_path, "--start-dead", power=True) as desk:
        monkeypatch.chdir(tmp_path)
        command = ["flash", str(model), "--board", BOARD, "--port", desk.port()]
        assert app.invoke([*command, "--power", "true"]) == 7
        assert "no target answers" in capsys.readouterr().err
        assert app.invoke(command) == 0
        assert "equal to onnxruntime" in capsys.readouterr().err
        status = desk.status()
        assert (status["power"], status["flashes"]) == (1, 1)
