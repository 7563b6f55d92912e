"""Mistakes of a careless user: told in mtool's words, before the work, with the same exit code by all commands."""

from pathlib import Path

import pytest

from mtool import resources
from mtool.cli import app
from mtool.flash import ports

DIGITS = str(Path(__file__).parents[2] / "examples" / "digits" / "digits_int8.onnx")
BOARD = "nucleo_l4r5zi"
Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def nothing_attached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ports, "attached", lambda: [])
    for name in ("MTOOL_PORT", "MTOOL_PROBE"):
        monkeypatch.delenv(name, raising=False)

    def refuse(*_: object, **__: object) -> None:
        pytest.fail("the model is compiled")

    monkeypatch.setattr("mtool.compiler.compile_model", refuse)


@pytest.mark.parametrize("command", ["flash", "run", "bench", "verify", "tune", "report", "debug"])
@pytest.mark.parametrize("options", [[], ["--port", "/dev/ttyNONE"], ["--probe", "0670FF"]])
def test_nothing_attached_is_6_for_every_command(command: str, options: list[str], capsys: Captured) -> None:
    assert app.invoke([command, DIGITS, "-b", BOARD, *options]) == 6
    assert "attached" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["run", "bench", "verify", "tune", "debug"])
@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (["--port", "tcp://nowhere"], 2, "has no HOST:PORT"),
        (["--port", "rtt:jlnk"], 2, "'jlnk' is nobody who reads RTT"),
        (["--port", "rtt:jlink"], 2, "the firmware has no RTT"),
        (["--option", "channel=rtt"], 6, "nobody is named who reads it"),
        (["--option", "channel=uard"], 2, "expected: one of uart, rtt"),
        (["--option", "chanel=rtt"], 2, "did you mean channel?"),
    ],
)
def test_a_channel_that_can_not_be(command: str, options: list[str], code: int, says: str, capsys: Captured) -> None:
    assert app.invoke([command, DIGITS, "-b", BOARD, *options]) == code
    assert says in capsys.readouterr().err


def test_words_are_mtools_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    own = tmp_path / "own"
    own.mkdir()
    yaml = (resources.path("project_templates") / "host" / "template.yaml").read_text()
    for text, says in (
        (yaml + "colour: red\n", "colour: there is no such key"),
        (yaml.replace("builder: host\n", ""), "builder: is missing"),
        (yaml.replace("minimum: 256", "minimum: few"), "minimum: expected a whole number"),
        (yaml.replace("build/host_driven", "/etc/passwd"), "firmware.host_driven: "),
    ):
        (own / "template.yaml").write_text(text)
        assert app.invoke(["build", DIGITS, "-t", str(own)]) == 2
        told = capsys.readouterr().err
        assert says in told and not any(raw in told for raw in ("Value error", "Extra inputs", "Field required"))
    (own / "template.yaml").write_text(yaml)
    (own / "cookiecutter.json").write_text("{}")
    folder = own / "{{cookiecutter.folder}}"
    folder.mkdir()
    (folder / "a.txt").write_text("{{ cookiecutter.modle.name }}")
    assert app.invoke(["-q", "generate", DIGITS, "-t", str(own)]) == 2
    told = capsys.readouterr().err
    assert "a.txt: 'modle' is not there" in told and "dict object" not in told


def test_two_models_and_a_file_that_is_no_port(tmp_path: Path, capsys: Captured) -> None:
    assert app.invoke(["run", "host", DIGITS]) == 2
    assert "a board stands behind --board" in capsys.readouterr().err
    (tmp_path / "port").touch()
    assert app.invoke(["monitor", "--port", str(tmp_path / "port")]) == 8
    assert "it is no serial port" in capsys.readouterr().err
