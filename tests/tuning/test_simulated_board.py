"""Tuning on a simulated board, by the command: the statistics, faults, power, interruptions."""

from pathlib import Path

from tests.tuning.dense import network
from tests.tuning.rig import rig

BEST = "int_rows:channels=6"


def test_the_whole_command_runs_on_a_board_without_faults(tmp_path: Path) -> None:
    model = network(tmp_path / "m.onnx")
    with rig(tmp_path, "--faults", "0", "--quiet", times={BEST: 9_000.0}) as desk:
        said = desk.tune(model)
        assert BEST in said and "saved" in said
        assert desk.status()["flashes"] == 5  # the candidates, the finals, the plan, and the default before and after
