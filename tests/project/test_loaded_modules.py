"""The additional parts of projects whose firmware accepts modules; others have none of them."""

from pathlib import Path

import pytest

import mtool
from mtool import boards
from mtool.base.filetree import FileTree

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits_int8.onnx"
KEY = {"modules": "signed", "module_key": bytes(range(32)).hex()}


def rendered(board: str, template: str, **values: str) -> FileTree:
    options = mtool.Options(name="net", template=template, template_options=values)
    return mtool.compile(DIGITS, board=board, options=options).render_project()[0]


@pytest.mark.parametrize("template", ["baremetal", "zephyr"])
def test_other_firmware_has_nothing_of_modules(template: str) -> None:
    files = rendered("mps2_an386", template)
    assert not [name for name in files if "crt/modules" in name or "third_party" in name or "storage.c" in name]
    for name in files:
        if not name.startswith(("crt/", "model/")) and name != "mtool.json":
            assert "mt_loader" not in files.text(name) and "mt_module" not in files.text(name)


@pytest.mark.parametrize("template", ["baremetal", "zephyr"])
def test_firmware_with_modules_has_the_key_and_the_loader(template: str) -> None:
    files = rendered("mps2_an386", template, **KEY, module_slot_bytes="8192")
    assert {"crt/modules/mt_loader.c", "crt/third_party/monocypher/LICENCE.txt", "src/modules.c", "src/storage.c"} <= {
        *files
    }
    assert "{ 0, 1, 2, 3, 4," in files.text("src/modules.c") and "takes_unsigned = 0;" in files.text("src/modules.c")
    assert "config.extension = mt_port_modules();" in files.text("src/main.c")
    assert "crt/modules/mt_slots.c" in files.text("CMakeLists.txt")
    assert "crt/bytecode/mt_bytecode.c" not in files
    both = rendered("mps2_an386", template, **KEY, module_kinds="both")
    assert "{&mt_module_native, &mt_module_bytecode, NULL}" in both.text("src/modules.c")
    assert "crt/bytecode/mt_bytecode.c" in both


def test_an_emulated_zephyr_board_has_a_flash_in_a_file_and_a_real_one_its_partition() -> None:
    emulated = rendered("mps2_an386", "zephyr", **KEY, module_slot_bytes="8192", module_ram_bytes="4096")
    assert f"{8 * 8192 + 8192 + 4096:#x}" in emulated.text("app.overlay")
    assert "CONFIG_SEMIHOST=y" in emulated.text("prj.conf") and "semihost_exec" in emulated.text("src/storage.c")
    emulator = boards.get("mps2_an386").emulator
    assert emulator is not None and "-semihosting-config" in emulator.uart
    real = rendered("nucleo_f746zg", "zephyr", **KEY)
    assert "mtool_modules" not in (real.text("app.overlay") if "app.overlay" in real else "")
    assert "CONFIG_FLASH_MAP=y" in real.text("prj.conf") and "semihost" not in real.text("src/storage.c")
