"""Projects with a link key: firmware and folder have it, `mtool.json` and other firmware have nothing of it."""

import contextlib
import subprocess
from pathlib import Path

import pytest

import mtool
from mtool import commands
from mtool.base import filetree, resources
from mtool.base.errors import CommunicationError, UsageError
from mtool.base.filetree import FileTree
from mtool.manifest import link_key
from mtool.stages.options import parse

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits_int8.onnx"
KEY = "00112233445566778899aabbccddeeff"


def rendered(board: str, template: str, **values: str) -> FileTree:
    options = mtool.Options(name="net", template=template, template_options=values)
    return mtool.compile(DIGITS, board=board, options=options).render_project()[0]


@pytest.mark.parametrize(
    ("board", "template"),
    [("host", "host"), ("mps2_an386", "baremetal"), ("mps2_an386", "zephyr"), ("nano_33_ble", "arduino")],
)
def test_the_key_is_in_two_files_only(board: str, template: str, tmp_path: Path) -> None:
    file = tmp_path / "device.key"
    file.write_text(f"{KEY}\n")
    without, found = rendered(board, template), rendered(board, template, **parse(link_key=file).template_options)
    (header,) = (path for path in without if path.endswith("mt_key.h"))
    secret = header.replace("mt_key.h", "mt_link_key.h")
    assert {path for path in found if KEY in found.text(path)} == {"link.key"}
    assert "#define MT_LINK_KEY {0x00, 0x11, 0x22," in found.text(secret)
    assert without[header] == (resources.path("crt") / "include" / "mt_key.h").read_bytes()
    changed = {path for path in found if found[path] != without.files.get(path)}
    assert {path for path in changed if not path.endswith("mt_build.h")} == {
        ".gitignore",
        "link.key",
        header,
        secret,
        "mtool.json",
    }
    assert {*found} - {*without} == {".gitignore", "link.key", secret}


ARDUINO = """#include <stddef.h>
#include <stdint.h>
#define A0 14
unsigned long micros(void);
unsigned long millis(void);
int analogRead(uint8_t pin);
void yield(void);
struct Port {
    void begin(unsigned long baud);
    int available(void);
    int read(void);
    size_t write(const uint8_t *bytes, size_t count);
    operator bool();
};
extern Port Serial;
"""


def test_firmware_with_a_key_compiles_for_arduino(tmp_path: Path) -> None:
    tree = rendered("nano_33_ble", "arduino", link_key=KEY)
    filetree.write(tree, tmp_path)
    (tmp_path / "Arduino.h").write_text(ARDUINO)
    sources = [path for path in tree if path.startswith("libraries/") and path.endswith((".c", ".cpp"))]
    includes = {f"-I{Path(path).parent}" for path in tree if path.endswith(".h")} | {"-I."}
    flags = ["-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16", "-fsyntax-only", "-Wall", "-Werror"]
    for compiler, ending in (("arm-none-eabi-gcc", ".c"), ("arm-none-eabi-g++", ".cpp")):
        own = [path for path in sources if path.endswith(ending)]
        subprocess.run([compiler, *flags, *includes, *own], cwd=tmp_path, check=True)


def test_a_port_without_random_numbers_needs_the_flash_of_modules() -> None:
    with pytest.raises(UsageError, match="needs random numbers, which the port of bluepill with channel=uart lacks"):
        rendered("bluepill", "baremetal", link_key=KEY)
    modules = {"modules": "signed", "module_key": bytes(range(32)).hex(), "module_slot_bytes": "4096"}
    assert "link.key" in rendered("microbit", "baremetal", link_key=KEY, module_ram_bytes="4096", **modules)


def test_firmware_of_ones_own_has_the_key() -> None:
    options = mtool.Options(name="net", template_options={"link_key": KEY})
    files = mtool.compile(DIGITS, board="host", options=options).package("cmake", rpc=True)
    assert [path for path in files if "MT_LINK_KEY {0x00, 0x11," in files.text(path)] == ["include/mt_link_key.h"]
    assert files.text("link.key") == f"{KEY}\n"


def test_firmware_with_modules_keeps_its_key(tmp_path: Path) -> None:
    modules = {"modules": "signed", "module_key": bytes(range(32)).hex()}
    for key in ({}, {"link_key": KEY}):
        options = mtool.Options(name="net", template_options=modules | key)
        model = mtool.compile(DIGITS, board="mps2_an386", options=options)
        if not key:
            commands.write_project(model, tmp_path / "project")
    with pytest.raises(UsageError, match="changes the link key"):
        commands.write_project(model, tmp_path / "project")


def test_only_its_owner_and_not_git_can_read_a_project_with_a_key(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file, other, folder = tmp_path / "a.key", tmp_path / "b.key", tmp_path / "project"
    link_key.make(file)
    link_key.make(other)
    built = mtool.prepare(DIGITS, board="host", folder=folder, options=mtool.Options(link_key=str(file)))
    secrets = {path for path in folder.rglob("*") if path.name in ("link.key", "mt_link_key.h")}
    assert len(secrets) == 2
    subprocess.run("git init -q && git add -A", shell=True, cwd=folder, check=True)
    added = subprocess.check_output(["git", "ls-files"], cwd=folder, text=True).split()
    digits = file.read_text().strip()
    assert "mtool.json" in added
    for data in map(Path.read_bytes, (folder / path for path in added)):
        assert digits.encode() not in data and bytes.fromhex(digits) not in data
    ignored = folder / ".gitignore"
    for lines, is_enough in (("mt_link_key.h\n*.o\nbuild/\nlink.key\n", True), ("*.o\nlink.key\n", False)):
        ignored.write_text(lines)
        with contextlib.nullcontext() if is_enough else pytest.raises(UsageError) as refused:
            mtool.prepare(DIGITS, board="host", folder=folder, options=mtool.Options(link_key=str(file)))
        assert ignored.read_text() == lines
    assert (
        refused is not None and "add these lines to .gitignore: link.key, mt_link_key.h, build/; " in refused.value.hint
    )
    assert not [path for path in (*secrets, folder / "build") if path.stat().st_mode & 0o077]
    assert built.link_key is None and not caplog.records
    with mtool.open(folder, link_key=str(file)):
        pass
    for key in (None, other):
        with pytest.raises(CommunicationError, match="another link key" if key else "only for a host") as failed:
            if key is None:
                (folder / "link.key").unlink()
            mtool.run(folder, board="host", options=mtool.Options(link_key=key))
    assert failed.value.details == ("the key of link_key was used",) and 'link_key="FILE"' in failed.value.hint
    mtool.run(folder, board="host", options=mtool.Options(link_key=file))
    with pytest.raises(UsageError, match="the option link_key is not a link key"):
        mtool.compile(DIGITS, board="host", options=mtool.Options(template_options={"link_key": "a.key"})).package(
            "cmake", rpc=True
        )
    (folder / "link.key").write_text(f"{KEY}\n")
    (folder / "link.key").chmod(0o644)
    with pytest.raises(CommunicationError, match="another link key") as failed:
        mtool.run(folder, board="host")
    assert failed.value.details == (f"the key of {folder / 'link.key'} was used",) and "chmod 600" in caplog.text


def test_a_build_that_drops_or_changes_the_key_warns(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cases = ((KEY, ""), (KEY[::-1], "with another link key"), (None, "with --link-key"), (KEY, ""))
    for key, warning in cases:
        caplog.clear()
        options = mtool.Options(template_options={"link_key": key} if key else {})
        commands.write_project(mtool.compile(DIGITS, board="host", options=options), tmp_path / "project")
        assert warning in caplog.text and bool(warning) == bool(caplog.records)
