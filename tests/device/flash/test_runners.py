"""Each runner's exact commands."""

import re
import shlex
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from mtool import boards
from mtool.base.errors import BoardError, FlashError, UsageError
from mtool.device import flash
from mtool.device.flash import all_runners, power, uf2
from mtool.device.flash.by_command import by_command
from mtool.device.flash.power import Power
from mtool.stages.deployment import Deployment
from tests.device.flash.jobs import BOARD, fake, job
from tests.device.flash.known import BIN, ELF, HEX, LINES, SETTINGS, TO_BIN, TO_HEX


@pytest.fixture
def no_tools(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return an empty folder, which is all that PATH has: what is installed here does not matter."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python3"))  # west is looked for beside it
    return tmp_path / "bin"


@pytest.mark.parametrize("runner", LINES)
def test_a_runners_commands(runner: str, no_tools: Path) -> None:
    found = flash.plan(all_runners()[runner], job(runner, port="/dev/ttyACM7", probe="0671FF"))
    assert found == LINES[runner]


def test_every_runner_has_its_commands_asserted() -> None:
    assert set(LINES) | {"uf2"} == set(all_runners()) == set(SETTINGS)


@pytest.mark.parametrize("runner", all_runners())
def test_without_a_probe_none_is_named(runner: str, no_tools: Path) -> None:
    text = "\n".join(flash.plan(all_runners()[runner], job(runner)))
    assert "serial" not in text.replace("--serial-number", "serial") and "0671" not in text
    assert ("PORT" in text) == (all_runners()[runner].selects == "port")


@pytest.mark.parametrize("runner", [name for name in all_runners() if name != "command"])
def test_a_runner_reports_how_it_is_installed(runner: str, no_tools: Path) -> None:
    with pytest.raises(FlashError, match=r"is not installed") as caught:
        all_runners()[runner].probe_version()
    assert caught.value.exit_code == 7
    assert caught.value.hint == all_runners()[runner].install != ""


def test_a_flash_command_gets_the_format_that_it_names() -> None:
    runner = by_command("lab/tool {hex} {bin} {probe}")
    program = Path.cwd() / "lab" / "tool"
    assert flash.plan(runner, job("command", probe="06 71")) == [TO_HEX, TO_BIN, f"{program} {HEX} {BIN} '06 71'"]
    with pytest.raises(BoardError, match="needs the board's probe"):
        runner.commands(job("command"))


@pytest.mark.parametrize(
    ("text", "says"), [("a 'b", "can't be read"), (" ", "contains no program"), ("'' a", "no program")]
)
def test_an_invalid_command_line_is_reported(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        Power(text).argv()


@pytest.mark.parametrize(
    ("what", "text", "known", "hint"),
    [
        ("flash", "labtool {nope}", "known: {elf}, {hex}, {bin}, {folder}, {port}, {probe}", ""),
        ("flash", "labtool --to={ports}", "{port}", "did you mean port?"),
        ("flash", "labtool {PORT} {elf}", "{port}", ""),
        ("power", "hub {elf}", "known: {port}, {probe}", ""),
    ],
)
def test_an_unknown_placeholder_is_reported_with_the_known_ones(what: str, text: str, known: str, hint: str) -> None:
    wrong = re.search(r"\{\w+\}", text)
    assert wrong is not None
    message = re.escape(f"the {what} command has the unknown placeholder {wrong[0]}")
    with pytest.raises(UsageError, match=message) as reported:
        Deployment(**{what: text})
    assert reported.value.details[0] == text and known in reported.value.details[1] and hint in reported.value.hint
    with pytest.raises(UsageError, match="unknown placeholder"):
        by_command(text).argv(job("command", port="P")) if what == "flash" else Power(text, port="P").argv()


@pytest.mark.parametrize("text", ["sh -c 'echo ${HOME}'", "awk '{ print $1 }'", "tool {} {1}"])
def test_braces_around_anything_else_are_left_alone(text: str) -> None:
    Deployment(flash=text, power=text)
    assert Power(text).argv() == shlex.split(text)


def test_the_power_command_is_the_options_then_the_folders_then_the_boards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = BOARD.model_copy(update={"power": "uhubctl -l 1-1 -a cycle -p 2"})
    monkeypatch.chdir(tmp_path)
    assert power.of(BOARD, "") is None
    assert power.of(board, "") == Power("uhubctl -l 1-1 -a cycle -p 2")
    (tmp_path / "mtool.toml").write_text("power = 'relay \"a b\" {probe}'")
    found = power.of(board, "", probe="{port}", port="P")
    assert found is not None and found.argv() == ["relay", "a b", "{port}"]  # a value is not expanded again
    given = power.of(board, "x")
    assert given is not None and given.argv() == ["x"]


def test_a_failing_power_command_is_reported_with_its_output() -> None:
    Power("true").cycle()
    with pytest.raises(BoardError, match="the power cycle failed with exit code 3") as failed:
        Power("sh -c 'echo no hub; exit 3'").cycle()
    assert "no hub" in str(failed.value)
    with pytest.raises(BoardError, match="no-such-program is not installed"):
        Power("no-such-program").cycle()


@pytest.mark.parametrize("name", [name for name, runner in all_runners().items() if runner.least_version])
def test_an_old_tool_is_refused(name: str, no_tools: Path) -> None:
    fake(no_tools, all_runners()[name].programs[0], version="0.0.1")
    no_tools.joinpath("cat").symlink_to("/bin/cat")
    with pytest.raises(FlashError, match="is too old") as caught:
        all_runners()[name].probe_version()
    assert "found     0.0.1" in caught.value.details


def test_options_follow_the_tools_version() -> None:
    older = all_runners()["openocd"].argv(job("openocd", probe="X"), (0, 11, 0))
    assert "hla_serial X" in older
    older = all_runners()["esptool"].argv(job("esptool", port="P"), (4, 7))
    assert older[7:12] == ["--before", "default_reset", "--after", "hard_reset", "write_flash"]


def test_west_names_the_probe_as_the_runner_beneath_needs_it(tmp_path: Path) -> None:
    built = job("west", tmp_path, probe="X", runner="")
    built.firmware.parent.mkdir(parents=True)
    (built.firmware.parent / "runners.yaml").write_text("runners:\n- jlink\nflash-runner: stm32cubeprogrammer\n")
    assert all_runners()["west"].argv(built)[-2:] == ["--conn-modifiers", "sn=X"]
    assert all_runners()["west"].argv(job("west", probe="X", runner="jlink"))[-2:] == ["--dev-id", "X"]
    assert all_runners()["west"].argv(job("west", probe="X", runner=""))[-2:] == ["--dev-id", "X"]


def test_files_that_the_framework_makes_are_not_made_again(no_tools: Path) -> None:
    made = flash.job_of(
        Path("/p"),
        _project(builder="west"),
        all_runners()["st-flash"],
        kind="host_driven",
    )
    assert flash.plan(all_runners()["st-flash"], made) == [f"st-flash --reset write {BIN} 0x08000000"]


def test_a_setting_that_is_missing_is_named() -> None:
    with pytest.raises(UsageError, match="needs the setting 'target'"):
        all_runners()["pyocd"].argv(flash.Job(Path("/p"), Path(ELF), BOARD))


def test_a_runner_is_chosen(no_tools: Path) -> None:
    assert flash.choose(BOARD).name == "west"
    assert flash.choose(BOARD, "jlink").name == "jlink"
    assert flash.choose(BOARD, template="arduino").name == "openocd"
    fake(no_tools, "st-flash")
    assert flash.choose(BOARD).name == "st-flash"
    with pytest.raises(UsageError, match="can't be flashed with 'magic'") as caught:
        flash.choose(BOARD, "magic")
    assert "west, openocd" in caught.value.details[0]
    with pytest.raises(FlashError, match="has no flash runner"):
        flash.choose(boards.get("host"))
    assert flash.choose(boards.get("mps2_an386")).name == "gdb"


def test_every_runner_of_a_board_is_one_of_mtools() -> None:
    for board in boards.load_all().values():
        assert set(board.flash) <= set(all_runners()), board.name


@pytest.mark.skipif(shutil.which("cc") is None, reason="cc is not installed")
def test_a_firmware_becomes_uf2(tmp_path: Path) -> None:
    source = tmp_path / "data.c"
    source.write_text("const unsigned char data[700] = {1, 2, 3};\n")
    elf = tmp_path / "data.elf"
    argv = ["cc", "-nostdlib", "-static", "-Wl,-Ttext=0x10000000,-e0,--build-id=none,-z,noseparate-code"]
    subprocess.run([*argv, "-o", elf, source], check=True)
    written = uf2.convert(elf, 0xE48BFF56)
    blocks = [written[at : at + 512] for at in range(0, len(written), 512)]
    heads = [struct.unpack("<8I", block[:32]) for block in blocks]
    assert {(head[0], head[1], block[-4:]) for head, block in zip(heads, blocks, strict=True)} == {
        (0x0A324655, 0x9E5D5157, bytes.fromhex("306fb10a"))
    }
    assert [head[5] for head in heads] == list(range(len(blocks)))
    assert {(head[2], head[4], head[6], head[7]) for head in heads} == {(0x2000, 256, len(blocks), 0xE48BFF56)}
    assert b"".join(block[32:288] for block in blocks).count(bytes([1, 2, 3]) + bytes(100)) == 1


def test_a_uf2_file_is_copied_to_the_drive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drive = tmp_path / "RPI-RP2"
    drive.mkdir()
    monkeypatch.setattr(uf2, "MOUNTS", (str(tmp_path),))
    lines = flash.plan(all_runners()["uf2"], job("uf2"))
    assert lines == [
        "# /p/build/zephyr/zephyr.uf2 holds: the firmware",
        f"cp /p/build/zephyr/zephyr.uf2 {drive}/",
    ]


def _project(builder: str) -> object:
    from mtool.manifest import Project

    return Project.model_construct(
        template="zephyr",
        builder=builder,
        transport="serial",
        board=BOARD,
        build_hash="",
        options={},
        firmware={"host_driven": "build/zephyr/zephyr.elf"},
    )
