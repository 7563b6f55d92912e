import shutil
import subprocess
from pathlib import Path

import pytest
from pydantic import ValidationError

from mtool import boards
from mtool.base import resources
from mtool.base.errors import BoardError, UsageError

MEMORIES = {
    "flash": {"base": 0, "size": "1 MiB", "holds": ["code", "weights"]},
    "ram": {"base": 0x20000000, "size": "64 KiB", "holds": ["arena", "data", "stack"]},
}
ENTRY = {
    "name": "b",
    "description": "d",
    "source": "s",
    "cpu": "cortex-m0",
    "toolchain": "cc",
    "templates": {"baremetal": "b"},
    "memories": MEMORIES,
}

# What GCC's flags for the core turn on, against what the entry says of it.
MACROS = {"fpu": "__ARM_FP ", "dsp": "__ARM_FEATURE_DSP ", "mve": "__ARM_FEATURE_MVE "}


def test_every_board_has_a_template_and_a_source() -> None:
    assert len(boards.load_all()) >= 6
    for board in boards.load_all().values():
        assert board.source, board.name
        assert board.templates, board.name
        assert set(board.status) == set(board.templates), board.name


def test_sizes_are_read_with_their_units() -> None:
    board = boards.Board.model_validate(ENTRY)
    assert board.memories["flash"].size == 1024 * 1024
    memory = board.memory_for("arena")
    assert memory is not None
    assert memory.size == 65536
    assert board.region_for("weights") == "flash"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"colour": "green"}, "colour"),
        ({"memories": {**MEMORIES, "more": {"base": 4096, "size": 16, "holds": ["arena"]}}}, "flash and more overlap"),
        ({"memories": {"flash": MEMORIES["flash"]}}, "no memory holds data, arena, stack"),
        ({"memories": {"flash": {**MEMORIES["flash"], "size": "1 MB"}}}, "is not a size"),
        ({"memories": {"flash": {**MEMORIES["flash"], "holds": ["cache"]}}}, "holds"),
        ({"timer": {"kind": "t", "hz": 0}}, "timer.hz"),
    ],
)
def test_a_wrong_entry_is_refused_by_its_key(change: dict[str, object], says: str) -> None:
    with pytest.raises(ValidationError) as caught:
        boards.Board.model_validate({**ENTRY, **change})
    assert says in str(caught.value)


def test_an_unknown_board_names_those_that_come_near() -> None:
    with pytest.raises(BoardError, match="mps2_an387") as caught:
        boards.get("mps2_an387")
    assert "mps2_an386" in caught.value.details[0]


@pytest.mark.parametrize(("asked", "near"), [("uno", "arduino_uno"), ("HOST", "host"), ("386", "mps2_an386")])
def test_part_of_a_name_or_in_capitals_comes_near(asked: str, near: str) -> None:
    with pytest.raises(BoardError) as caught:
        boards.get(asked)
    assert near in caught.value.details[0]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("host: [", "can't be read"),
        ("host: {\x00", "can't be read"),
        ("\ud800", "can't be read"),
        ("", "contains no boards"),
        ("- host", "contains no boards"),
        ("host:", "invalid entry for host"),
        ("host: [cpu]", "invalid entry for host"),
        ("host: {cpu: host}", "invalid entry for host"),
        ("1: {cpu: host}", "invalid entry for 1"),
        (None, "board file not found"),
    ],
)
def test_a_broken_list_of_boards_is_reported(text: str | None, says: str, tmp_path: Path) -> None:
    path = tmp_path / "boards.yaml"
    if text is not None:
        path.write_bytes(text.encode(errors="surrogatepass"))
    with pytest.raises(UsageError, match=says):
        boards.read_files.__wrapped__((path,))


def test_a_folder_may_have_boards_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = "{description: ours, source: s, cpu: cortex-m4, toolchain: cc, templates: {host: native}}"
    (tmp_path / "ours.yaml").write_text(f"our_board: {entry}\nhost: {entry}\n")
    (tmp_path / "below").mkdir()
    (tmp_path / "mtool.toml").write_text('boards = ["ours.yaml"]')
    before = boards.load_all()
    monkeypatch.chdir(tmp_path / "below")
    assert boards.get("our_board").cpu == "cortex-m4" and boards.get("host").description == "ours"
    assert [*boards.load_all()] == [*before, "our_board"]


@pytest.mark.parametrize("board", boards.load_all().values(), ids=lambda board: board.name)
def test_the_features_are_those_of_the_compilers_flags(board: boards.Board) -> None:
    if "arm" not in board.toolchain:
        pytest.skip("the features of this core have no Arm macros")
    if shutil.which(board.toolchain) is None:
        pytest.skip(f"{board.toolchain} is not installed")
    argv = [board.toolchain, *board.cflags, "-dM", "-E", "-x", "c", "-"]
    done = subprocess.run(argv, input=b"", capture_output=True, check=False)
    if b"-mcpu" in done.stderr:
        pytest.skip(f"this {board.toolchain} does not know {board.cpu}")
    assert done.returncode == 0, done.stderr.decode()
    macros = done.stdout.decode()
    assert board.features == {name for name, macro in MACROS.items() if macro in macros}


def test_each_shipped_entry_is_read_by_itself_as_in_the_whole_file() -> None:
    path = resources.path("boards.yaml")
    whole = resources.read_yaml(path)
    assert boards.shipped() == {*whole}
    assert all(boards.get(name) == boards.board_of(path, name, entry) for name, entry in whole.items())
