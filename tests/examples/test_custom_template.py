"""A user's own template, through the Project API and the command line."""

import subprocess
from pathlib import Path

import numpy as np
import pytest

from mtool import commands
from mtool.base import resources
from mtool.base.errors import FlashError, UsageError
from mtool.cli import app
from mtool.commands.project_api import ProjectApi
from mtool.device.rpc import Client

ROOT = Path(__file__).parents[2]
TEMPLATE = ROOT / "examples" / "custom_template"
DIGITS = resources.path("examples/digits")


@pytest.mark.slow
def test_the_six_verbs_work_on_a_folder(tmp_path: Path) -> None:
    api = ProjectApi(TEMPLATE)
    info = api.info()
    assert (info.name, info.builder, info.kinds) == ("custom_template", "host", ("host_driven", "standalone"))
    assert set(api.options()) == {"opt", "greeting", "rpc_buffer_bytes"}
    model = commands.compile(DIGITS / "digits_int8.onnx", board="host")
    folder = api.generate_project(model, tmp_path / "mine", {"greeting": "hello there"})
    with pytest.raises(UsageError, match="has no option 'speed'"):
        api.generate_project(model, tmp_path / "mine", {"speed": "fast"})
    api.build(folder)
    with api.open_transport(folder) as transport:
        assert Client(transport).hello.model == "digits_int8"
    with pytest.raises(FlashError, match="host has no flash runner"):
        api.flash(folder)


def test_the_filter_reads_digits(tmp_path: Path) -> None:
    api = ProjectApi(TEMPLATE)
    model = commands.compile(DIGITS / "digits_int8.onnx", board="host")
    built = api.build(api.generate_project(model, tmp_path / "mine"), kind="standalone")
    with np.load(DIGITS / "test_data.npz") as data:
        images, labels = data["x"][:50], data["y"][:50]
    done = subprocess.run([built.firmware["standalone"]], input=images.tobytes(), capture_output=True, check=True)
    scores = np.frombuffer(done.stdout, np.int8).reshape(50, 10)
    assert done.stderr == b"ready\n"
    assert np.mean(scores.argmax(axis=1) == labels) > 0.95


def test_verbs_refuse_a_project_of_another_template(tmp_path: Path) -> None:
    model = commands.compile(DIGITS / "digits_int8.onnx", board="host")
    folder = ProjectApi("host").generate_project(model, tmp_path / "other")
    with pytest.raises(UsageError, match="is not a project of the template custom_template") as caught:
        ProjectApi(TEMPLATE).build(folder)
    assert caught.value.details == ("it is a project of the template host",)


def test_mtools_own_templates_have_boards() -> None:
    assert "mps2_an386" in ProjectApi("baremetal").info().boards
    assert "arduino_uno" in ProjectApi("arduino").info().boards


@pytest.mark.slow
def test_the_command_line_takes_it_by_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ["--template", str(TEMPLATE), "--option", "greeting=hello", "-q"]
    assert app.invoke(["run", str(DIGITS / "digits_int8.onnx"), *arguments]) == 0
    assert "hello" in (tmp_path / "build/digits_int8-host/src/filter.c").read_text()
