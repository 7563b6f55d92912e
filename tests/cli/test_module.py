"""`mtool key` and `mtool module`: a model becomes a signed module; errors are reported."""

import json
import shutil
from pathlib import Path

import pytest

from mtool.cli.app import invoke

DIGITS = str(Path(__file__).parents[2] / "examples" / "digits" / "digits_int8.onnx")
pytestmark = pytest.mark.skipif(shutil.which("arm-none-eabi-gcc") is None, reason="needs arm-none-eabi-gcc")


def test_a_module_is_made_signed_and_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert invoke(["key", "own.key"]) == 0 and invoke(["key", "other.key"]) == 0
    assert invoke(["key", "own.key"]) == 2
    made = ["module", DIGITS, "--board", "mps2_an386", "--key", "own.key", "--counter", "7"]
    assert invoke([*made, "-o", "digits.mtm"]) == 0 and invoke([*made, "-o", "again.mtm"]) == 0
    assert (tmp_path / "digits.mtm").read_bytes() == (tmp_path / "again.mtm").read_bytes()
    capsys.readouterr()
    assert invoke(["module", "--show", "digits.mtm", "--key", "own.key.pub", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["name"] == "digits_int8" and shown["counter"] == 7 and shown["signed"] and shown["kind"] == "native"
    assert shown["machine"] == "ARMV7EM, HARD_FLOAT, FPU, DSP" and shown["imports"] == ["memcpy", "memset"]
    parts = shown["code_bytes"] + shown["constant_bytes"] + shown["about_bytes"]
    assert parts == shown["bytes"] == (tmp_path / "digits.mtm").stat().st_size
    assert [one["shape"] for one in shown["description"]["inputs"]] == [[1, 1, 8, 8]]
    assert invoke(["module", "--show", "digits.mtm", "--key", "other.key.pub"]) == 2
    changed = bytearray((tmp_path / "digits.mtm").read_bytes())
    changed[20] ^= 1  # the counter, which the signature is over
    (tmp_path / "changed.mtm").write_bytes(changed)
    assert invoke(["module", "--show", "changed.mtm", "--key", "own.key.pub"]) == 2
    for what in ("own.key", "/dev/zero", "none"):
        assert invoke(["module", "--show", what]) == 2
    capsys.readouterr()


@pytest.mark.parametrize(
    ("options", "reported"),
    [
        (["--board", "host"], "native modules do not support host"),
        (["--board", "arduino_uno"], "native modules do not support arduino_uno"),
        (["--board", "mps2_an386", "--counter", "-1"], "--counter -1 is out of range"),
        (["--board", "mps2_an386", "--key", "none"], "the key none can't be read"),
        (["--board", "mps2_an386", "--name", "a_name_that_is_too_long_for_it_all"], "too long for a module"),
    ],
)
def test_models_that_can_not_be_modules_are_reported(
    options: list[str],
    reported: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert invoke(["module", DIGITS, *options]) == 2
    assert reported in capsys.readouterr().err
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("argv", "reported"),
    [
        (["key", "b.key", "--link", "--encrypt"], "--encrypt is for a private key"),
        (
            ["module", DIGITS, "--board", "mps2_an386", "--key", "a.key", "--next-key", "a.key.pub"],
            "is the key that signs",
        ),
        (["module", DIGITS, "--board", "mps2_an386", "--key", "a.key.pub", "--signer", ""], "--signer is empty"),
        (["module", DIGITS, "--board", "mps2_an386", "--key", "a.key", "--signer", "cat"], "use a.key.pub instead"),
    ],
)
def test_keys_that_make_no_sense_are_reported(
    argv: list[str],
    reported: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert invoke(["key", "a.key"]) == 0
    assert invoke(argv) == 2 and reported in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {"a.key", "a.key.pub"}
