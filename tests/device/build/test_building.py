"""Builds: nothing happens if nothing changed, and errors are clear."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import toy

from mtool import boards, manifest, project
from mtool.base import filetree
from mtool.base.errors import BuildError, FitError, UsageError
from mtool.base.filetree import FileTree
from mtool.device import build
from mtool.device.build import cmake, fit, toolchains

MODEL, MANIFEST = toy.compiled()
HOST = boards.get("host")
HERE = [board for board in boards.load_all().values() if next(iter(board.templates)) in ("host", "baremetal")]


def toy_sources(folder: Path) -> Path:
    filetree.write(FileTree({**MODEL.files, "mtool.json": MANIFEST.to_json()}), folder)
    return folder


def write(folder: Path, board: boards.Board = HOST, **changed: str) -> Path:
    files = FileTree({**MODEL.files, **{name.replace("_c", ".c"): text.encode() for name, text in changed.items()}})
    filetree.write(project.render(files, MANIFEST, board)[0], folder)
    return folder


def test_a_build_with_nothing_changed_does_nothing(tmp_path: Path) -> None:
    first = build.build(write(tmp_path), kinds=["standalone"])
    made = first.firmware["standalone"].stat().st_mtime_ns
    assert not first.up_to_date
    again = build.build(write(tmp_path), kinds=["standalone"])
    assert again.up_to_date
    assert again.firmware["standalone"].stat().st_mtime_ns == made
    write(tmp_path, toy_c=MODEL.text("toy.c") + "\n/* changed */\n")
    assert not build.build(tmp_path, kinds=["standalone"]).up_to_date
    first.firmware["standalone"].unlink()
    assert not build.build(tmp_path, kinds=["standalone"]).up_to_date


def test_a_firmware_that_was_replaced_or_damaged_is_built_again(tmp_path: Path) -> None:
    built = build.build(write(tmp_path), kinds=["standalone"])
    firmware, stamp = built.firmware["standalone"], tmp_path / "build" / "standalone.key"
    for damage in (
        lambda: firmware.write_bytes(b""),
        lambda: shutil.copy("/bin/true", firmware),
        lambda: firmware.chmod(0o644),
        lambda: stamp.write_bytes(b"\xff"),
    ):
        damage()
        assert not build.build(tmp_path, kinds=["standalone"]).up_to_date
        assert build.build(tmp_path, kinds=["standalone"]).up_to_date
    subprocess.run([firmware], check=False, timeout=9)


def test_the_builds_own_description_has_the_stack(tmp_path: Path) -> None:
    """The project's is the same on every computer; the build's has what the compiler made of it."""
    folder = write(tmp_path, boards.get("mps2_an386"))
    before = (folder / "mtool.json").read_bytes()
    build.build(folder, kinds=["standalone"])
    assert (folder / "mtool.json").read_bytes() == before
    point = next(one for one in manifest.load(folder / "build").entry_points if one.name == "toy_run")
    assert point.stack is not None and point.stack.unknown == ""
    assert point.stack.bytes and point.stack.path[0][0] == "toy_run"
    assert "-mcpu=cortex-m4" in point.stack.compiler and "-O2" in point.stack.compiler
    (folder / "build" / "mtool.json").unlink()
    assert build.build(folder, kinds=["standalone"]).up_to_date
    assert point in manifest.load(folder / "build").entry_points
    write(tmp_path, HOST)
    build.build(folder, kinds=["standalone"])
    assert manifest.load(folder / "build").entry_points[0].stack is None, "the code of this computer can't be read"


def test_a_build_that_failed_is_not_taken_for_done(tmp_path: Path) -> None:
    build.build(write(tmp_path), kinds=["standalone"])
    write(tmp_path, toy_c="int toy_run = x;\n")
    for _ in range(2):
        with pytest.raises(BuildError, match="build of the standalone firmware failed with exit code 1") as caught:
            build.build(tmp_path, kinds=["standalone"])
        assert any("undeclared" in line for line in caught.value.details)


@pytest.mark.slow
@pytest.mark.parametrize("board", [HOST, boards.get("mps2_an386")], ids=lambda board: board.name)
def test_a_warning_fails_the_builds_of_tests_only(
    board: boards.Board, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = MODEL.text("toy.c") + "int8_t toy_narrow(int32_t wide);\nint8_t toy_narrow(int32_t wide) { return wide; }\n"
    with pytest.raises(BuildError) as caught:
        build.build(write(tmp_path, board, toy_c=text), kinds=["standalone"])
    assert "-Werror=conversion" in str(caught.value)
    monkeypatch.delenv("MTOOL_WERROR")
    assert build.build(write(tmp_path, board, toy_c=text), kinds=["standalone"]).firmware["standalone"].exists()


@pytest.mark.parametrize("board", HERE, ids=lambda board: board.name)
def test_a_missing_compiler_is_reported_with_its_command(
    board: boards.Board, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("cmake", "ninja"):
        (programs / name).write_text("#!/bin/sh\necho version 1.2.3\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setattr(toolchains, "compiler_here", lambda name: [name])  # nor that of ziglang
    with pytest.raises(BuildError, match=f"^{board.toolchain} is not installed") as caught:
        build.build(write(tmp_path / "project", board), kinds=["standalone"])
    assert caught.value.hint.partition(";")[0] == toolchains.load_all()[board.toolchain].install
    assert caught.value.hint.startswith("sudo apt-get install ")
    assert ("--board sim_" in caught.value.hint) == (board.name != "host")


@pytest.mark.parametrize(
    ("says", "version"),
    [
        ("cc (Debian 12.2.0-14+deb12u1) 12.2.0", "12.2.0"),
        ("arm-none-eabi-gcc (15:12.2.rel1-1) 12.2.1 20221205", "12.2.1"),
        ("QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18+b3)", "7.2.22"),
        ("cmake version 3.25.1", "3.25.1"),
        ("Apple clang version 15.0.0 (clang-1500.3.9.4)", "15.0.0"),
    ],
)
def test_a_version_is_read(says: str, version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "cc"
    fake.write_text(f"#!/bin/sh\necho '{says}'\necho 'Copyright 1.2.3'\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert toolchains.check(toolchains.load_all()["cc"]).version == version


def _wrapper(folder: Path, program: str, more: str) -> Path:
    """Write a program of the name and version of another that does a little more."""
    folder.mkdir(exist_ok=True)
    wrapper = folder / program
    wrapper.write_text(f'#!/bin/sh\nexec {shutil.which(program)} {more} "$@"\n')
    wrapper.chmod(0o755)
    return folder


@pytest.mark.slow
def test_another_compiler_of_the_same_version_builds_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MTOOL_CACHE", str(tmp_path / "cache"))

    def made() -> tuple[bool, bool]:
        built = build.build(write(tmp_path / "project"), kinds=["standalone"])
        return bool(built.rebuilt), b"another compiler" in built.firmware["standalone"].read_bytes()

    assert made() == (True, False) and made() == (False, False)
    marker = tmp_path / "include" / "string.h"
    marker.parent.mkdir()
    marker.write_text(
        '#include_next <string.h>\nstatic const char mark[] __attribute__((used)) = "another compiler";\n'
    )
    with monkeypatch.context() as reported:
        reported.setenv("C_INCLUDE_PATH", str(marker.parent))
        assert made() == (True, True) and made() == (False, True)
    wrapped = _wrapper(tmp_path / "bin", "cc", f"-isystem {marker.parent}")
    with monkeypatch.context() as reported:
        reported.setenv("PATH", str(wrapped), prepend=":")
        assert made() == (True, True) and made() == (False, True)
    assert made() == (False, False)  # from the cache


@pytest.mark.slow
def test_objects_of_another_compiler_are_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    board = boards.get("mps2_an386")
    if any(shutil.which(program) is None for program in (board.toolchain, "cmake", "ninja")):
        pytest.skip("its tools are not installed")
    build.build(write(tmp_path / "p", board), kinds=["standalone"])
    objects = {path: path.stat().st_mtime_ns for path in (tmp_path / "p" / "build").rglob("*.obj")}
    path = os.pathsep.join([str(_wrapper(tmp_path / "bin", board.toolchain, "")), os.environ["PATH"]])
    monkeypatch.setenv("PATH", path)
    assert not build.build(tmp_path / "p", kinds=["standalone"]).up_to_date
    assert objects and all(path.stat().st_mtime_ns > made for path, made in objects.items())


def test_a_compiler_without_its_library_is_not_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "riscv64-unknown-elf-gcc"
    answer = 'case "$1" in --version) echo "gcc (x) 12.2.0";; *) echo picolibc.specs;; esac'
    fake.write_text(f"#!/bin/sh\n{answer}\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = toolchains.check(toolchains.load_all()["riscv64-unknown-elf-gcc"])
    assert found.version == "12.2.0"
    assert found.missing == ("picolibc.specs",)


def test_a_model_folder_and_an_unknown_kind_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds a compiled model, not a project"):
        build.build(toy_sources(tmp_path / "c"))
    with pytest.raises(UsageError, match="has no bootloader firmware") as caught:
        build.build(write(tmp_path / "p"), kinds=["bootloader"])
    assert "host_driven, standalone" in caught.value.details[0]


@pytest.mark.slow
def test_a_folder_that_moved_or_changed_its_board_is_configured_again(tmp_path: Path) -> None:
    first, second = boards.get("mps2_an386"), boards.get("qemu_riscv32")
    for program in (first.toolchain, second.toolchain, "cmake", "ninja"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    build.build(write(tmp_path / "a", first), kinds=["standalone"])
    (tmp_path / "a").rename(tmp_path / "b")
    for board in (second, first):
        built = build.build(write(tmp_path / "b", board), kinds=["standalone"])
        assert not built.up_to_date
        assert built.toolchain.startswith(board.toolchain)


def test_an_overflow_says_what_takes_the_space(tmp_path: Path) -> None:
    board = boards.get("mps2_an386")
    if shutil.which(board.toolchain) is None or shutil.which("cmake") is None or shutil.which("ninja") is None:
        pytest.skip("arm-none-eabi-gcc, cmake or ninja is not installed")
    memories = board.memories
    small = {
        "ssram1": memories["ssram1"].model_copy(update={"size": 512}),
        "ssram23": memories["ssram23"].model_copy(update={"size": 4100}),
    }
    with pytest.raises(FitError, match=r"toy\.onnx does not fit mps2_an386") as caught:
        build.build(write(tmp_path, board.model_copy(update={"memories": small})), kinds=["standalone"])
    assert caught.value.exit_code == 4
    flash, ram = caught.value.details
    assert flash.startswith("ssram1   needs ") and "of 512 B" in flash and "weights 80 B" in flash
    assert ram.startswith("ssram23  needs ") and "of 4,100 B" in ram and "arena 32 B" in ram


def test_an_arena_that_the_compiler_can_not_address_is_an_overflow_too() -> None:
    board = boards.get("arduino_uno")
    project_of = MANIFEST.model_copy(update={"arena_bytes": 34856, "constant_bytes": 4000, "parameters": 1000})
    _, read = project.render(MODEL, project_of, board)
    error = fit.explain(f"toy.c:20:18: error: size of array ‘{read.symbols['arena']}’ is too large", read)
    assert error is not None and error.what.endswith("does not fit arduino_uno")
    assert any(line.startswith("sram     needs 35 KB of 2,048 B") for line in error.details)
    assert error.hint.startswith("even an int8 version would need about 8,714 B of sram")


def test_another_linker_error_is_not_an_overflow(tmp_path: Path) -> None:
    read = manifest.load(write(tmp_path, boards.get("mps2_an386")))
    assert fit.explain("undefined reference to `toy_run'", read) is None


def test_sizes_are_those_of_an_elf_file(tmp_path: Path) -> None:
    (tmp_path / "not.elf").write_text("text")
    with pytest.raises(BuildError, match="is not an ELF file"):
        build.measure(tmp_path / "not.elf", MANIFEST)
    with pytest.raises(BuildError, match="does not exist"):
        build.measure(tmp_path / "gone.elf", MANIFEST)


def test_a_build_folder_of_another_is_left_alone(tmp_path: Path) -> None:
    write(tmp_path / "p")
    (tmp_path / "p" / "build").mkdir()
    (tmp_path / "p" / "build" / "thesis.txt").write_text("years of work")
    with pytest.raises(UsageError, match="build was not made by mtool") as caught:
        build.build(tmp_path / "p", kinds=["standalone"])
    assert "thesis.txt" in caught.value.details[0]
    assert [path.name for path in (tmp_path / "p" / "build").iterdir()] == ["thesis.txt"]
    (tmp_path / "p" / "build").rename(tmp_path / "elsewhere")
    (tmp_path / "p" / "build").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="build is a link, not a folder"):
        build.build(tmp_path / "p", kinds=["standalone"])
    (tmp_path / "p" / "build").unlink()
    (tmp_path / "p" / "build").write_text("")
    with pytest.raises(UsageError, match="build is a file, not a folder"):
        build.build(tmp_path / "p", kinds=["standalone"])


def test_a_build_by_hand_is_built_upon(tmp_path: Path) -> None:
    write(tmp_path)
    argv = build.plan(boards_project(tmp_path), kinds=["standalone"])[0].split()
    (tmp_path / "build").mkdir()
    subprocess.run(argv, cwd=tmp_path, check=True)
    (tmp_path / "build" / "notes.txt").write_text("mine")
    assert not build.build(tmp_path, kinds=["standalone"]).up_to_date
    (tmp_path / "build" / "standalone").unlink()
    assert not build.build(tmp_path, kinds=["standalone"]).up_to_date  # it is mtool's now
    assert (tmp_path / "build" / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("name", ["a\nb", 'a"b', "a;b", "a[1]b", "a\\b", "$(touch x)"])
def test_a_path_that_cmake_reads_as_its_own_syntax_is_refused(name: str, tmp_path: Path) -> None:
    folder = write(tmp_path / name, boards.get("mps2_an386"))
    read = manifest.load(folder)
    with pytest.raises(UsageError, match="CMake can't build in") as caught:
        cmake.build(folder, read, ["standalone"])
    read_as_syntax = next(character for character in name if character in '\n";[\\$')
    assert repr(read_as_syntax) in caught.value.details[0]
    assert not (folder / "build").exists()


def test_cmake_is_configured_again_without_losing_what_lies_in_its_folder(tmp_path: Path) -> None:
    build_folder = tmp_path / "build"
    (build_folder / "CMakeFiles" / "old").mkdir(parents=True)
    (build_folder / "CMakeCache.txt").write_text("of another folder")
    (build_folder / "notes.txt").write_text("mine")
    cmake.forget_configuration(build_folder)
    assert [path.name for path in build_folder.iterdir()] == ["notes.txt"]


def test_a_half_written_project_is_not_built(tmp_path: Path) -> None:
    record = write(tmp_path) / ".mtool" / "files.json"
    record.write_text('{"schema_version": 1, "files": {}, "writing": {"toy.c": "00"}}')
    with pytest.raises(UsageError, match="is incomplete: mtool was stopped while writing it"):
        build.build(tmp_path, kinds=["standalone"])


def test_a_users_own_files_do_not_count_where_they_are_hidden(tmp_path: Path) -> None:
    build.build(write(tmp_path), kinds=["standalone"])
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/main")
    (tmp_path / "elsewhere").symlink_to("/")
    assert not build.build(tmp_path, kinds=["standalone"]).up_to_date
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/other")
    assert build.build(tmp_path, kinds=["standalone"]).up_to_date
    (tmp_path / "own.c").write_text("int own;")
    assert not build.build(tmp_path, kinds=["standalone"]).up_to_date


@pytest.mark.parametrize("path", ["../../bin/sh", "/bin/sh", "build/../../sh", "build/./x", "crt/sh", ""])
def test_a_manifest_of_anothers_names_files_in_its_project_only(path: str, tmp_path: Path) -> None:
    file = write(tmp_path) / "mtool.json"
    file.write_text(file.read_text().replace('"build/standalone"', f'"{path}"'))
    with pytest.raises(UsageError, match="is not a manifest of schema 2") as caught:
        build.build(tmp_path, kinds=["standalone"])
    assert "firmware" in caught.value.details[0]
    file.write_text(file.read_text().replace(f'"{path}"', '"build/standalone"', 1))


def test_nor_by_a_link(tmp_path: Path) -> None:
    write(tmp_path / "p")
    (tmp_path / "sh").write_text("")
    (tmp_path / "p" / "build").mkdir()
    (tmp_path / "p" / "build" / "standalone").symlink_to(tmp_path / "sh")
    with pytest.raises(UsageError, match="is outside of the project"):
        build.build(tmp_path / "p", kinds=["standalone"])
    assert (tmp_path / "sh").read_text() == ""


def boards_project(folder: Path) -> manifest.Project:
    found = manifest.load(folder).project
    assert found is not None
    return found
