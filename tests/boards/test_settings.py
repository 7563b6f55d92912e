"""Each key of boards.yaml, of a flash runner and of mtool.toml is used somewhere."""

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from mtool import boards
from mtool.base import configuration, resources
from mtool.base.errors import MtoolError, UsageError
from mtool.base.flash_runners import records, settings_of
from mtool.base.records import Strict
from mtool.boards import zephyr
from mtool.commands import Options, applications, user_project
from mtool.commands.flashing import runner_of
from mtool.device import flash
from mtool.device.flash import ports, power, uf2
from mtool.stages.deployment import Deployment
from mtool.stages.options import tuning_results_of
from tests.device.flash.jobs import BOARD, job

ROOT = Path(boards.__file__).parents[1]
OTHER: dict[str, str | int] = {
    "touch": 0,
    "offset": 0x8000,
    "address": 0x9000,
    "runner": "jlink",
    "family": "0x12345678",
}


@pytest.fixture(scope="module")
def names_read() -> set[str]:
    """Return the attributes and keys that are read in mtool's code and its templates."""
    found: set[str] = set()
    for path in ROOT.rglob("*.py"):
        for attribute, key in re.findall(r"(?<=[\w)\]])\.(\w+)\b|[\[(]\"(\w+)\"", path.read_text()):
            found.add(attribute or key)
    for path in resources.path("project_templates").rglob("*"):
        text = f"{path.name}\n{path.read_text(errors='replace')}" if path.is_file() else ""
        for expression in re.findall(r"\{[{%].*?[%}]\}", text, re.DOTALL):
            found.update(re.findall(r"\w+", expression))
    return found


def test_each_key_of_a_board_is_read(names_read: set[str]) -> None:
    read = [one for one in vars(boards).values() if isinstance(one, type) and issubclass(one, Strict)]
    keys = {(one.__name__, key) for one in read for key in one.model_fields}
    assert len(keys) > 50
    assert {(record, key) for record, key in keys if key not in names_read} == set()
    assert {key for key in boards.PORT if key not in names_read} == set()


@pytest.mark.parametrize(("name", "key"), [(name, key) for name in records() for key in settings_of(name)])
def test_each_setting_of_a_runner_changes_what_is_run(name: str, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    runner, plain = flash.all_runners()[name], job(name, port="/dev/ttyACM7")
    monkeypatch.setattr(uf2, "convert", lambda elf, family: str(family).encode())

    def run(**settings: str | int) -> object:
        chosen = dataclasses.replace(plain, settings={**plain.settings, **settings})
        try:
            return flash.plan(runner, chosen), runner.files(chosen), runner.unlock(chosen)
        except MtoolError as refused:  # a volume that is not there, which the message names
            return str(refused), refused.details

    assert run() != run(**{key: OTHER.get(key, "other")})


def _refused(run: Callable[[], object]) -> str:
    with pytest.raises(UsageError) as caught:
        run()
    return "\n".join(caught.value.lines())


KEYS: dict[str, tuple[str, Callable[[], object]]] = {
    "port": ('port = "/dev/x"', lambda: ports.selector(environment={}).port == "/dev/x"),
    "probe": ('probe = "X"', lambda: ports.selector(environment={}).probe == "X"),
    "flash": ('flash = "tool"', lambda: runner_of(BOARD, template="zephyr", deployment=Deployment()).name == "command"),
    "power": ('power = "relay on"', lambda: power.of(BOARD, "") == power.Power("relay on")),
    "boards": ('boards = "missing.yaml"', lambda: "missing.yaml" in _refused(boards.load_all)),
    "tuned": (
        'tuned = "missing.jsonl"',
        lambda: "missing.jsonl" in _refused(lambda: tuning_results_of(BOARD, Options())),
    ),
    **{
        key: (f'{key} = "x"', lambda key=key: zephyr.roots()[key.upper()] == [Path.cwd() / "x"])
        for key in configuration.ROOTS
    },
    "project": ('[project]\nmodel = "m.onnx"\nboard = "b"', lambda: user_project.require().board == "b"),
    "options": (
        '[project]\nmodel = "m.onnx"\nboard = "b"\n[options]\nio = "external"',
        lambda: user_project.require().options == {"io": "external"},
    ),
    "app": (
        '[project]\nmodel = "m.onnx"\nboard = "b"\ntype = "wakeword"\n[app]\nthreshold = 0.25\nrelease = 0.125',
        lambda: user_project.require().settings == applications.WakeWord(threshold=0.25, release=0.125),
    ),
}


@pytest.mark.parametrize("key", KEYS)
def test_each_key_of_mtool_toml_has_its_effect(key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for variable in zephyr.ROOTS:
        monkeypatch.delenv(variable, raising=False)
    text, holds = KEYS[key]
    (tmp_path / configuration.FILE_NAME).write_text(text)
    assert holds()


def test_no_key_of_mtool_toml_is_forgotten() -> None:
    assert {one.name for one in dataclasses.fields(configuration.Configuration)} == {*KEYS, "file"}
