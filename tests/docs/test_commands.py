"""docs/commands.md is up to date: it has every option of every command."""

from pathlib import Path
from types import ModuleType

import pytest
from script import load

from mtool.cli import app

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "commands.md").read_text()


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load("commands")


def test_the_page_is_as_the_commands_are(script: ModuleType) -> None:
    assert script.page() == PAGE, "run `make commands`"


@pytest.mark.parametrize("name", app.COMMANDS)
def test_each_option_of_a_command_stands_in_its_part(name: str) -> None:
    part = PAGE.partition(f"\n## mtool {name}\n")[2].partition("\n## ")[0]
    shared = PAGE.partition("\n## Options of several commands\n")[2]
    for parameter in app.command_of(name).params:
        for option in parameter.opts:
            if option.startswith("--") and option != "--help":
                common = option in ("--json", "--verbose", "--quiet", "--boards", "--help-all")
                assert common or f"{option}`" in part or f"{option} " in part, f"{name} {option}"
                assert common or f"{option} " in part + shared or f"{option}`" in part + shared, option


def test_every_exit_code_is_reported() -> None:
    assert all(f"\n| {code} | " in PAGE for code in (*range(11), 130))
