"""Errors of `open` for a wrong folder or firmware."""

import logging
import os
from pathlib import Path

import pytest

from mtool import boards
from mtool.base.errors import BuildError, CommunicationError, UsageError
from mtool.boards import Emulator
from mtool.device import session
from tests.crt import firmware
from tests.device.session import projects


def test_no_project(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not an mtool project"):
        session.open(tmp_path)


def test_a_compiled_model_without_a_project(tmp_path: Path) -> None:
    (tmp_path / "mtool.json").write_bytes(firmware.MANIFEST.to_json())
    with pytest.raises(UsageError, match="holds a compiled model, not a project"):
        session.open(tmp_path)


def test_a_project_that_is_not_built(tmp_path: Path) -> None:
    folder = projects.write(tmp_path / "p")
    (folder / "build" / "host_driven").unlink()
    with pytest.raises(UsageError, match="is not built") as caught:
        session.open(folder)
    assert "mtool build" in caught.value.hint


def test_a_project_without_a_server(tmp_path: Path) -> None:
    project = projects.project_of(boards.get("host"), firmware={"standalone": "build/standalone"})
    with pytest.raises(UsageError, match="has no host_driven firmware"):
        session.open(projects.write(tmp_path / "p", project=project))


def test_a_board_without_an_emulator(tmp_path: Path) -> None:
    project = projects.project_of(boards.get("host"), transport="emulator")
    with pytest.raises(UsageError, match="host has no emulator"):
        session.open(projects.write(tmp_path / "p", project=project))


def test_a_missing_emulator(tmp_path: Path) -> None:
    board = boards.get("host").model_copy(update={"emulator": Emulator(program="no-such-emulator", arguments=())})
    project = projects.project_of(board, transport="emulator")
    with pytest.raises(BuildError, match="no-such-emulator is not installed"):
        session.open(projects.write(tmp_path / "p", project=project))


def test_a_firmware_of_another_model(tmp_path: Path) -> None:
    with pytest.raises(CommunicationError, match="the process host_driven runs another model"):
        session.open(projects.write(tmp_path / "p", model_hash="ab" * 32))


def test_a_stale_firmware(tmp_path: Path) -> None:
    project = projects.project_of(boards.get("host"), build_hash="ab" * 32)
    with pytest.raises(CommunicationError, match="runs another build of this model"):
        session.open(projects.write(tmp_path / "p", project=project))


def test_a_firmware_that_only_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_TEXT", "temperature: 21.5")
    with pytest.raises(CommunicationError, match="prints text, but sends no frames"):
        session.open(projects.write(tmp_path / "p"), timeout_s=0.3)


def test_a_program_that_ends_at_once(tmp_path: Path) -> None:
    with pytest.raises(CommunicationError, match="the process host_driven ended with exit code 1"):
        session.open(projects.write(tmp_path / "p", program=Path("/bin/false")))


def test_an_emulated_flash_that_is_a_pipe(tmp_path: Path) -> None:
    """The firmware would open it, and wait for a writer."""
    folder = projects.write(tmp_path / "p")
    os.mkfifo(folder / "build" / "host_driven.flash")
    with pytest.raises(UsageError, match=r"host_driven\.flash is a pipe, not a file"):
        session.open(folder)


def test_a_program_that_says_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    program = tmp_path / "silent"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o755)
    with pytest.raises(CommunicationError, match="no answer"):
        session.open(projects.write(tmp_path / "p", program=program), timeout_s=0.2)
    assert not caplog.records
