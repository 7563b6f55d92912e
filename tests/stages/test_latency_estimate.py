"""Estimated times before a build, against the emulator's counts, and without known figures."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from mtool import boards, commands
from mtool.cli import app
from mtool.commands.cost import clocks, hertz
from mtool.compiler.compilation import compile_for
from mtool.stages.latency_estimate import estimate_latency
from mtool.stages.options import Options

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "examples" / "digits" / "digits_int8.onnx"


def test_the_time_is_that_of_the_instructions_that_were_counted() -> None:
    counted = {
        row["board"]: row["instructions"]
        for row in json.loads((ROOT / "docs" / "benchmarks.json").read_text())
        if row["model"] == "digits_int8"
    }
    asked = [boards.get(name) for name in ("mps2_an385", "mps2_an386", "mps2_an500", "mps3_an547")]
    per_instruction = {"mps2_an385": 1.77, "mps2_an386": 1.43, "mps2_an500": 0.95, "mps3_an547": 1.34}
    for board, emitted in compile_for(DIGITS, asked, Options()):
        time = estimate_latency(emitted, board)
        assert time is not None and time.flash_is_known
        measured = counted[board.name] * per_instruction[board.name] / board.clock_hz * 1e3
        assert abs(measured - time.milliseconds) <= (time.error + 0.1) * time.milliseconds


def test_slow_flash_and_another_clock_count(capsys: pytest.CaptureFixture[str]) -> None:
    found = {}
    for clock in ("120MHz", "20MHz", "nrf52840dk"):
        arguments = ["check", str(DIGITS), "-b", "nucleo_l4r5zi", "-b", "nrf52840dk", "--clock", clock, "--json"]
        assert app.invoke([*arguments, "--optimize", "size"]) == 0  # no constants in RAM
        found[clock] = {fit["board"]: fit for fit in json.loads(capsys.readouterr().out)["boards"]}
    at = {clock: {name: fit["milliseconds"] for name, fit in each.items()} for clock, each in found.items()}
    assert at["20MHz"]["nrf52840dk"] == pytest.approx(6 * at["120MHz"]["nrf52840dk"])
    assert at["20MHz"]["nucleo_l4r5zi"] == pytest.approx(at["20MHz"]["nrf52840dk"])  # no wait states there
    assert at["120MHz"]["nucleo_l4r5zi"] > 1.1 * at["120MHz"]["nrf52840dk"]
    assert at["nrf52840dk"]["nrf52840dk"] == pytest.approx(20 / 64 * at["20MHz"]["nrf52840dk"])
    has_flash = {name: fit["milliseconds_have_flash"] for name, fit in found["120MHz"].items()}
    assert has_flash == {"nucleo_l4r5zi": True, "nrf52840dk": False}


def test_energy_is_reported_at_the_clock_that_it_is_known_for(capsys: pytest.CaptureFixture[str]) -> None:
    found = {}
    for clock in ("120MHz", "80MHz"):
        assert (
            app.invoke(["check", str(DIGITS), "-b", "nucleo_l4r5zi", "-b", "metro_m4", "--clock", clock, "--json"]) == 0
        )
        found[clock] = {fit["board"]: fit for fit in json.loads(capsys.readouterr().out)["boards"]}
    known, assumed = found["120MHz"]["nucleo_l4r5zi"], found["120MHz"]["metro_m4"]
    draws = boards.get("nucleo_l4r5zi").draws
    assert draws is not None
    low, high = draws.milliwatts
    assert known["microjoules"] == pytest.approx(known["milliseconds"] * (low + high) / 2)
    most = known["microjoules"] * (1 + known["microjoules_error"])
    assert most == pytest.approx(known["milliseconds"] * (1 + known["milliseconds_error"]) * high)
    assert assumed["microjoules"] is None and found["80MHz"]["nucleo_l4r5zi"]["microjoules"] is None
    assert known["milliseconds_flash_is_sure"] and not assumed["milliseconds_flash_is_sure"]


def test_that_a_flash_is_assumed_is_reported_of_several_models_too() -> None:
    options = [Options(name="first"), Options(name="second")]
    for name, is_sure in (("nucleo_l4r5zi", True), ("metro_m4", False)):
        one, both = (
            commands.check_models([DIGITS] * len(some), [boards.get(name)], some).fits[0].time
            for some in (options[:1], options)
        )
        assert one is not None and both is not None and both.milliseconds == pytest.approx(2 * one.milliseconds)
        assert one.flash_is_sure == both.flash_is_sure == is_sure


BACKEND = """
from mtool.compiler.backends import Backend, Product

class Npu(Backend):
    name = "npu"
    options = {"cost": "", "cycles": ""}

    def refusal(self, operation, context):
        return "" if operation.kind in ("Conv", "Gemm", "MatMul") else "no"

    def compile(self, region, folder):
        return Product(body="    (void)0;", **{key: float(value) for key, value in self.values.items()})
"""


@pytest.mark.parametrize("options", ["", ":cycles=250000", ":cost=9,cycles=250000", ":cost=500000"])
def test_what_backends_compute_takes_the_time_that_they_estimate(
    options: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "npu.py").write_text(BACKEND)
    arguments = ["check", str(DIGITS), "-b", "mps2_an386", "--backend", f"{tmp_path / 'npu.py'}{options}"]
    assert app.invoke([*arguments, "--json"]) == 0
    (fit,) = json.loads(capsys.readouterr().out)["boards"]
    (longest,) = fit["longest_operators"]
    assert app.invoke(arguments) == 0
    shown = capsys.readouterr().out
    if not options:
        assert fit["milliseconds"] is None and fit["without_estimate"] == ["npu"]
        assert longest["operator"] is None and longest["share"] is None
        assert "not known: no estimate by the backend npu" in shown
        assert "longest operator of digits_int8: not known" in shown
        return
    assert longest["operator"].startswith("npu_") and fit["without_estimate"] == []
    if "cycles" in options:
        regions = fit["milliseconds_of_backends"] * 25e6 / 1e3 / 250_000
        assert regions == pytest.approx(round(regions)) and regions >= 1
        assert fit["milliseconds"] > fit["milliseconds_of_backends"] and fit["microjoules"] is None
        assert longest["milliseconds"] == pytest.approx(10, rel=0.05)  # at the core's 25 MHz
        assert "by backends' estimates" in shown
    else:
        assert fit["milliseconds_of_backends"] == 0 and longest["milliseconds"] > 20
    assert "ms at 25 MHz ±" in shown


@pytest.mark.slow
def test_what_fits_is_sorted_by_time(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.invoke(["check", str(DIGITS)]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    order = [row[0] for row in rows if row and row[0] in boards.load_all()]
    assert order.index("stm32f746g_disco") < order.index("nucleo_l4r5zi") < order.index("host")
    assert order[-1] == "arduino_uno"  # the one that it does not fit
    assert app.invoke(["check", str(DIGITS), "--json"]) == 0
    assert [fit["board"] for fit in json.loads(capsys.readouterr().out)["boards"]] == order


def test_nothing_to_compute_has_no_estimate(tmp_path: Path) -> None:
    x, y = (helper.make_tensor_value_info(name, TensorProto.INT8, [0, 4]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), tmp_path / "m.onnx")
    report = commands.check(tmp_path / "m.onnx", [boards.get("nucleo_l4r5zi")])
    assert report.fits[0].fits and report.fits[0].time is None


def test_floating_point_has_no_estimate(tmp_path: Path) -> None:
    weights = numpy_helper.from_array(np.ones((4, 8), np.float32), "w")
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, size]) for name, size in (("x", 4), ("y", 8)))
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [weights])
    path = tmp_path / "float.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    (fit,) = commands.check(path, [boards.get("mps2_an386")]).fits
    assert fit.fits and fit.time is None


@pytest.mark.parametrize(
    ("clock", "said"),
    [
        ("host", "the board's clock is unknown"),
        ("80", "80 Hz is too low; did you mean 80MHz?"),
        ("nucleo_l4r5zi@80", "did you mean 80MHz?"),
        ("80Hz", "no core runs at 80 Hz"),
        ("0MHz", "no core runs at 0 Hz"),
        ("-5MHz", "is not a frequency"),
        ("nanMHz", "is not a frequency"),
        ("1e99MHz", "no core runs at"),
        ("nucleo_l4r5zi@", "is not a frequency"),
    ],
)
def test_a_clock_that_is_none_is_refused(clock: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["check", "-b", "nucleo_l4r5zi"], ["bench", "-b", "mps2_an386", "--cycles"]):
        if clock != "host" or command[0] == "check":  # bench has no table for the host's core
            assert app.invoke([*command, str(DIGITS), "--clock", clock]) == 2
            assert said in capsys.readouterr().err


def test_check_and_bench_read_a_clock_alike() -> None:
    board = boards.get("mps2_an386")
    for clock, hz in (("nucleo_l4r5zi@80MHz", 80_000_000), ("nucleo_l4r5zi", 120_000_000), ("64e6", 64_000_000)):
        assert hertz(clock) == clocks([clock], board)[0].hz == hz


@pytest.mark.parametrize(
    ("name", "milliseconds"),
    [("nucleo_l4r5zi", 2.34), ("nucleo_h743zi", 0.28), ("mps3_an547", 1.76), ("esp32c3_devkitm", 2.82)],
)
def test_the_error_covers_what_is_counted_for_a_small_model(name: str, milliseconds: float) -> None:
    """`bench --cycles --clock` of digits_int8: waits for code count, and what is done once a row."""
    (fit,) = commands.check(DIGITS, [boards.get(name)]).fits
    assert fit.time is not None
    assert abs(milliseconds - fit.time.milliseconds) <= fit.time.error * fit.time.milliseconds
