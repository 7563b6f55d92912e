"""Users' mistakes: reported in mtool's words, before any work, with the same exit code in all commands."""

from pathlib import Path

import pytest

from mtool.base import resources
from mtool.cli import app
from mtool.device.flash import ports

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

    monkeypatch.setattr("mtool.compiler.compilation.compile_models", refuse)


@pytest.mark.parametrize("command", ["flash", "run", "bench", "verify", "tune", "report", "debug"])
@pytest.mark.parametrize("options", [[], ["--port", "/dev/ttyNONE"], ["--probe", "0670FF"]])
def test_nothing_attached_is_6_for_every_command(command: str, options: list[str], capsys: Captured) -> None:
    assert app.invoke([command, DIGITS, "-b", BOARD, *options]) == 6
    assert "attached" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["run", "bench", "verify", "tune", "debug"])
@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (["--port", "tcp://nowhere"], 2, "HOST:PORT is missing"),
        (["--port", "rtt:jlnk"], 2, "'jlnk' is not a reader of RTT"),
        (["--port", "rtt:jlink"], 2, "the firmware has no RTT"),
        (["--option", "channel=rtt"], 6, "needs a debugger to read it"),
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
        reported = capsys.readouterr().err
        assert says in reported and not any(
            raw in reported for raw in ("Value error", "Extra inputs", "Field required")
        )
    (own / "template.yaml").write_text(yaml)
    (own / "cookiecutter.json").write_text("{}")
    folder = own / "{{cookiecutter.folder}}"
    folder.mkdir()
    (folder / "a.txt").write_text("{{ cookiecutter.modle.name }}")
    assert app.invoke(["-q", "generate", DIGITS, "-t", str(own)]) == 2
    reported = capsys.readouterr().err
    assert "a.txt: 'modle' is not defined" in reported and "dict object" not in reported


def test_two_models_and_a_file_that_is_not_a_port(tmp_path: Path, capsys: Captured) -> None:
    assert app.invoke(["run", "host", DIGITS]) == 2
    assert "with --board" in capsys.readouterr().err
    (tmp_path / "port").touch()
    assert app.invoke(["monitor", "--port", str(tmp_path / "port")]) == 8
    assert "it is not a serial port" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["boards", "--new", "mps2_an386", "--from", "mps2_an385"], 2, "give yours another name: --new my_mps2_an386"),
        (["boards", "--boards", "no.yaml"], 2, "board file not found"),
        (["build"], 2, "or cd into a project (mtool new)"),
        (["run", "own"], 2, "your own project (mtool new); run its commands inside it: cd own"),
        (["monitor", "own"], 2, "your own project (mtool new); run its commands inside it: cd own"),
    ],
)
def test_errors_name_a_solution(arguments: list[str], code: int, says: str, capsys: Captured) -> None:
    Path("own").mkdir()
    Path("own", "mtool.toml").write_text('[project]\nmodel = "m.onnx"\nboard = "host"\n')
    assert app.invoke(arguments) == code
    reported = capsys.readouterr().err
    assert says in reported and "Errno" not in reported and not Path("boards").exists()


@pytest.mark.parametrize("name", ["empty.onnx", "empty.tflite"])
def test_an_empty_file_is_reported_as_such(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes(b"")
    assert app.invoke(["check", name, "--board", "host"]) == 3
    assert f"{name} is empty" in capsys.readouterr().err


def test_samples_of_mlperf_are_looked_for_before_the_work(capsys: Captured) -> None:
    Path("mtool.toml").write_text(f'[project]\nmodel = "{DIGITS}"\nboard = "host"\ntype = "mlperftiny"\n')
    assert app.invoke(["mlperf", "--data", "nofile.npz"]) == 2
    reported = capsys.readouterr().err
    assert "there is no file or folder nofile.npz" in reported and "y_labels.csv" in reported


def test_a_module_of_zephyr_is_for_its_boards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    arguments = ["compile", DIGITS, "--emit", "zephyr-module", "-d", "module", "--board"]
    assert app.invoke([*arguments, "arduino_uno"]) == 2
    assert "arduino_uno is not a Zephyr board" in capsys.readouterr().err and not Path("module").exists()
    assert app.invoke([*arguments, "mps2_an386"]) == 0


def test_a_damaged_model_is_reported_without_pythons_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.undo()
    path = tmp_path / "cut.tflite"
    path.write_bytes(b"\x08\0\0\0TFL3" + (-70_000).to_bytes(4, "little", signed=True) + bytes(8))
    assert app.invoke(["check", str(path), "--board", "host"]) == 3
    reported = capsys.readouterr().err
    assert "cut.tflite is damaged or truncated" in reported and "an offset or length in it is wrong" in reported
    assert not any(word in reported for word in ("unpack", "buffer", "struct"))
