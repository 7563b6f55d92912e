"""--help shows the options that people use, in groups; --help-all shows every one."""

import re
from typing import get_args

import pytest

from mtool.base import option_table
from mtool.cli import app

Captured = pytest.CaptureFixture[str]
MOST = 17  # parameters in --help, beside those that every command has
LONG = ("run", "verify", "bench", "build", "flash", "compile", "check", "tune", "generate", "new", "debug", "report")


def shown(capsys: Captured, *arguments: str) -> str:
    assert app.invoke(arguments) == 0
    return capsys.readouterr().out


def options(text: str) -> set[str]:
    return set(re.findall(r"^  (?:-\w, )*(--[a-z-]+)", text, re.MULTILINE))


@pytest.mark.parametrize("name", app.COMMANDS)
def test_help_shows_what_people_use_and_help_all_shows_every_option(name: str, capsys: Captured) -> None:
    command = app.command_of(name)
    rare = {one.opts[0] for one in command.params if one.name in command.rare}
    short, full = shown(capsys, name, "--help"), shown(capsys, name, "--help-all")
    everything = {one.opts[0] for one in command.params if one.param_type_name == "option"} | {"--help"}
    assert options(full) == everything
    assert options(short) == everything - rare
    assert {"--json", "--verbose", "--quiet", "--boards", "--help-all"} <= options(short)
    last = f"{len(rare)} more option{'s' if len(rare) > 1 else ''}: mtool {name} --help-all"
    assert short.splitlines()[-1] == last if rare else short == full
    assert len(command.params) - len(rare) - 5 <= MOST, "mark options as rare in option_table.toml"


@pytest.mark.parametrize("name", LONG)
def test_a_long_list_is_shortened(name: str) -> None:
    assert len(app.command_of(name).rare) > 10


def test_an_option_that_is_rare_somewhere_is_one_there() -> None:
    for one in option_table.TABLE:
        assert isinstance(one.rare, bool) or set(one.rare) < set(one.of), one.name


def test_options_are_shown_in_groups(capsys: Captured) -> None:
    heads = [line for line in shown(capsys, "run", "--help-all").splitlines() if re.match(r"\S.*:$", line)]
    assert heads[:2] == ["Arguments:", "Options:"] and heads[-1] == "Every command:"
    assert {"The model:", "The generated C:", "The project:", "The board:"} <= {*heads}


def test_a_placeholder_is_a_word_not_a_type(capsys: Captured) -> None:
    for name in app.COMMANDS:
        text = shown(capsys, name, "--help-all")
        assert not re.search(r"<(int|float|str|path|list)\b|\[\[|\.\.\.\]?\.\.\.", text), name


def test_a_rare_option_is_completed_and_suggested(capsys: Captured) -> None:
    assert app.invoke(["run", "m.onnx", "--roundin", "onnx"]) == 2
    assert "did you mean --rounding?" in capsys.readouterr().err


@pytest.mark.parametrize("one", list(option_table.OPTIONS.values()), ids=lambda one: one.name)
def test_the_help_of_an_option_explains_each_of_its_values(one: option_table.Option) -> None:
    values = [value for kind in (one.kind, *get_args(one.kind)) for value in get_args(kind) if isinstance(value, str)]
    assert all(re.search(rf"\b{value}\b", one.help) for value in values), values
