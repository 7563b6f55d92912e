"""microTVM's project options: definitions, extra files, no optimization, a gdb server."""

from pathlib import Path
from typing import Any

import pytest
import toy

from mtool import boards, project
from mtool.base import filetree
from mtool.base.errors import UsageError
from mtool.device import build, session
from mtool.device.build.symbolizer import Symboliser
from mtool.device.session import opening


@pytest.mark.slow
def test_extra_files_are_compiled_with_the_definitions(tmp_path: Path) -> None:
    extra = tmp_path / "sensors"
    (extra / "deep").mkdir(parents=True)
    (extra / "own.h").write_text("int own_filter(int x);\n")
    (extra / "own.c").write_text('#include "own.h"\n_Static_assert(LIMIT == 3 && CALIBRATED, "");\n'
                                 "int own_filter(int x) { return x * LIMIT; }\n")  # fmt: skip
    (extra / "deep" / "table.inc").write_text("1, 2, 3\n")
    options = {"opt": "-O0", "definitions": "LIMIT=3 CALIBRATED", "extra_files": str(extra)}
    files, described = toy.compiled(boards.get("host"))
    tree, _ = project.render(files, described, boards.get("host"), options=options)
    assert {"extra/own.c", "extra/own.h", "extra/deep/table.inc"} <= set(tree)
    folder = tmp_path / "p"
    filetree.write(tree, folder)
    built = build.build(folder)
    with Symboliser(built.firmware["host_driven"]) as symbols:
        assert symbols.address("own_filter")
    with session.open(folder) as device:
        assert device.is_alive()


@pytest.mark.parametrize("board", ["mps2_an386", "sim_m4", "host"])
def test_what_is_not_a_definition_is_refused(board: str) -> None:
    files, described = toy.compiled(boards.get(board))
    for wrong in ("A;B", "A=1) message(x", "-include", "A='1'", "@file"):
        with pytest.raises(UsageError, match="definitions"):
            project.render(files, described, boards.get(board), options={"definitions": wrong})
    with pytest.raises(UsageError, match="extra_files"):
        project.render(files, described, boards.get(board), options={"extra_files": "not/there"})
    tree, _ = project.render(files, described, boards.get(board), options={"definitions": "A=1 B"})
    where = "CMakeLists.txt" if board == "mps2_an386" else "host_driven.args"
    text = tree.text(where)
    assert "add_compile_definitions(A=1 B)" in text or "-DA=1\n-DB\n" in text


def test_the_emulator_waits_for_gdb(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    files, described = toy.compiled(boards.get("mps2_an386"))
    started: list[Any] = []
    monkeypatch.setattr(opening, "open_emulator", lambda emulator, *_, **__: started.append(emulator))
    for port, expected in (("0", ()), ("3333", ("-gdb", "tcp:127.0.0.1:3333", "-S"))):
        options = {"gdbserver": port}
        tree, whole = project.render(files, described, boards.get("mps2_an386"), options=options)
        filetree.write(tree, tmp_path / port)
        assert whole.project is not None
        firmware = tmp_path / port / whole.project.firmware["host_driven"]
        firmware.parent.mkdir()
        firmware.write_bytes(b"")
        session.open_transport(tmp_path / port)
        assert started[-1].arguments[-len(expected) :] == expected or not expected
        assert ("-gdb" in started[-1].arguments) == bool(expected)
