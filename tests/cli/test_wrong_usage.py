"""Wrong options, values and names: the error has the expected ones and a suggestion."""

from pathlib import Path
from typing import get_args

import pytest

from mtool import boards
from mtool.base import option_values, spelling
from mtool.base.errors import UsageError
from mtool.cli import app, parameters

CHOICES = {
    "run": {"--io": option_values.Io, "--partial": option_values.Partial, "--rounding": option_values.Rounding,
            "--interface-api": option_values.InterfaceApi, "--operators-api": option_values.OperatorsApi,
            "--executor": option_values.Executor, "--weights": option_values.Weights},
    "compile": {"--emit": option_values.Format},
    "quantize": {"--method": option_values.Method, "--activations": option_values.Integer},
}  # fmt: skip


@pytest.mark.parametrize(("command", "option"), [(name, option) for name, of in CHOICES.items() for option in of])
def test_a_misspelt_choice_is_answered_with_its_neighbour(
    command: str, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for right in get_args(CHOICES[command][option]):
        if len(right) < 2:
            continue
        wrong = f"{right[:-2]}{right[-1]}{right[-2]}x"
        needed = ["--data", "d"] if command == "quantize" else []
        assert app.invoke([command, "m.onnx", *needed, option, wrong]) == 2
        reported = capsys.readouterr().err
        assert f"invalid value for '{option}': '{wrong}' is not one of" in reported and "Value error" not in reported
        assert "did you mean " in reported


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["bench", "m.onnx", "--repeat", "x"], "'--repeat': expected a whole number, found 'x'"),
        (["bench", "m.onnx", "--repeat", "0"], "'--repeat': expected at least 1, found '0'"),
        (["verify", "m.onnx", "--samples", "1000000"], "'--samples': expected at most 100000, found '1000000'"),
        (["quantize", "m.onnx", "--data", "d", "--scale", "a"], "'--scale': expected a number, found 'a'"),
        (["compil"], "did you mean compile?"),
        (["my net.onnx"], "a command comes first: mtool run 'my net.onnx'"),
        (["help"], "did you mean mtool --help?"),
        (["--board", "host", "run", "m.onnx"], "put a command's options after the command; see: mtool --help"),
        (["run", ""], "the model's path is empty"),
        (["run", "."], ". is not an mtool project"),
        (["compile", "m.onnx", "--emitt", "c"], "did you mean --emit?"),
        (["run", "m.onnx", "--dim", "n=1", "--dim", "n=2"], "--dim n is set twice"),
        (["run", "m.onnx", "--max", "n=1", "--max", "n=1"], "--max n is set twice"),
        (["run", "m.onnx", "--limit", "nodes=1", "--limit", "nodes=2"], "--limit nodes is set twice"),
        (["run", "m.onnx", "--const", "a=1", "--const", "a=2"], "--const a is set twice"),
        (["build", "m.onnx", "--option", "opt=-O2", "--option", "opt=-O3"], "--option opt is set twice"),
    ],
)
def test_errors_are_in_mtools_words(arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.invoke(arguments) == 2
    assert expected in capsys.readouterr().err


def test_names_come_near_in_capitals_and_in_parts() -> None:
    names = ["OpenOCD", "st-flash", "esptool"]
    assert spelling.near("openocd", names) == ["OpenOCD"] and spelling.near("tool", names) == ["esptool"]
    assert spelling.did_you_mean("stflash", names) == "did you mean st-flash?"
    assert spelling.did_you_mean("zzz", names, otherwise="no") == "no"


def test_a_long_name_is_shown_by_the_end_that_is_its_own() -> None:
    names = [
        "net/act/Relu;net/conv_1/Add;net/conv/Conv1",
        "net/act_1/Relu;net/conv_1/Add;net/conv_1/Conv1",
        "net",
        "fc",
    ]
    shown = [spelling.shortest_part(name, names) for name in names]
    assert shown == ["conv/Conv1", "conv_1/Conv1", "net", "fc"]
    assert [spelling.whole_name(part, names) for part in shown] == names
    assert spelling.whole_name("Conv1", names) == "Conv1"


def test_a_misspelt_runner_is_found_when_boards_are_read() -> None:
    entry = boards.get("nucleo_l4r5zi").model_dump(mode="json", exclude={"name"})
    for flash in ({"opencd": {}}, ["opencd"]):
        with pytest.raises(UsageError) as caught:
            boards.board_of(
                Path("boards.yaml"),
                "mine",
                {key: value for key, value in entry.items() if key != "name"} | {"flash": flash},
            )
        assert any("unknown flash runner 'opencd'; did you mean openocd?" in line for line in caught.value.details)


def test_a_shell_completes_every_board_and_runner() -> None:
    assert parameters.complete_boards("") == [*boards.load_all()]
    assert {*parameters.complete_boards("mps2_an38")} == {"mps2_an383", "mps2_an385", "mps2_an386"}
    assert parameters.complete_runners("st") == ["st-flash", "stm32cubeprogrammer"]
