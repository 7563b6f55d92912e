"""Real messages of Zephyr 4.1, CMake and the compilers, and mtool's error for each. No tree is needed."""

from pathlib import Path

import pytest

from mtool.base.errors import BoardError, BuildError
from mtool.boards import zephyr
from mtool.boards.zephyr.failures import explain

VERSION = "VERSION_MAJOR = 4\nVERSION_MINOR = 1\nPATCHLEVEL = 0\n"
BOARDS = {
    "nxp/frdm_k64f": ("frdm_k64f", "mk64f12"),
    "nordic/nrf52840dk": ("nrf52840dk", "nrf52840"),
    "st/nucleo_f746zg": ("nucleo_f746zg", "stm32f746xx"),
    "qemu/riscv32": ("qemu_riscv32", "qemu_virt_riscv32"),
    "qemu/cortex_m3": ("qemu_cortex_m3", "ti_lm3s6965"),
}
CHIPS = {
    "nxp/kinetis": ("mk64f12", "HAS_MCUX"),
    "nordic": ("nrf52840", "HAS_NRFX"),
    "st/stm32": ("stm32f746xx", "HAS_STM32CUBE"),
    "qemu": ("qemu_virt_riscv32", "HAS_COVERAGE_SUPPORT"),
    "ti/lm3s6965": ("ti_lm3s6965", "HAS_SWO"),  # of a vendor with a module, which it does not need
}
GLUE = {"Kconfig.mcux": "HAS_MCUX", "hal_nordic/nrfx/Kconfig": "HAS_NRFX", "Kconfig.stm32": "HAS_STM32CUBE"}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a Zephyr tree as small as one can be: its boards, their chips and its modules."""
    (tmp_path / "VERSION").write_text(VERSION)
    for place, (name, chip) in BOARDS.items():
        folder = tmp_path / "boards" / place
        folder.mkdir(parents=True)
        socs = f"  socs:\n  - name: '{chip}'\n    variants:\n      - name: ns\n"
        (folder / "board.yml").write_text(f"board:\n  name: {name}\n  full_name: The {name}\n{socs}")
        (folder / f"{name}.yaml").write_text(f"identifier: {name}\narch: {'riscv' if 'riscv' in name else 'arm'}\n")
    for place, (chip, symbol) in CHIPS.items():
        (tmp_path / "soc" / place).mkdir(parents=True)
        (tmp_path / "soc" / place / "soc.yml").write_text(f"family:\n- series:\n  - socs:\n    - name: {chip}\n")
        (tmp_path / "soc" / place / "Kconfig").write_text(f"config SOC_X\n\tselect ARM\n\tselect {symbol}\n")
    for path, symbol in GLUE.items():
        (tmp_path / "modules" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "modules" / path).write_text(f"config {symbol}\n\tbool\n")
    modules = ("hal_nxp", "hal_nordic", "hal_stm32", "hal_ti", "cmsis")
    names = "".join(f"    - name: {name}\n      revision: x\n" for name in modules)
    (tmp_path / "west.yml").write_text(f"manifest:\n  projects:\n{names}")
    return tmp_path


HEADER = (
    "/z/boards/nxp/frdm_k64f/frdm_k64f-pinctrl.dtsi:10:10: fatal error: nxp/kinetis/MK64FN1M0VLL12-pinctrl.h: "
    "No such file or directory\n   10 | #include\ncompilation terminated."
)
KCONFIG = "warning: HAS_NRFX (defined at modules/hal_nordic/nrfx/Kconfig:4) has direct dependencies 0 with value n"
QUALIFIER = """CMake Error at /z/cmake/modules/boards.cmake:304 (message):
  Board qualifiers `` for board `nrf52840dk` not found.  Please specify a
  valid board target.

  Valid board targets for nrf52840dk are:

  nrf52840dk/nrf52840

  nrf52840dk/nrf52811

Call Stack (most recent call first):
"""
NEWLIB = (
    "/z/lib/libc/newlib/libc-hooks.c:404:15: warning: assignment to '_LOCK_T' {aka 'int'} from 'void *' makes integer "
    "from pointer without a cast\nninja: build stopped: subcommand failed."
)
OTHER = "arm-none-eabi-gcc: error: unrecognized -march target: rv32imac_zicsr_zifencei\n"
NO_SDK = '  Could not find a package configuration file provided by "Zephyr-sdk"\n  (requested version 0.16)'
NOWHERE = "  Nothing found at GNUARMEMB_TOOLCHAIN_PATH: '/nowhere'"
MALFORMED = '    ERROR: Malformed "build" section in file:\n    /w/modules/hal/nxp/zephyr/module.yml\n'
ABI = (
    "/usr/bin/ld.bfd: /usr/lib/gcc/riscv64-unknown-elf/12.2.0/libgcc.a(_clz.o): ABI is incompatible with that of the "
    "selected emulation:\n  target emulation `elf64-littleriscv' does not match `elf32-littleriscv'"
)
SOFT = (
    "/usr/bin/ld.bfd: /usr/lib/gcc/riscv64-unknown-elf/12.2.0/libgcc.a(_ctzsi2.o): can't link double-float modules "
    "with soft-float modules"
)
NO_CMSIS = "a.c:1: fatal error: cmsis_core.h: No such file or directory"
LABEL = "devicetree error: /swj: undefined node label 'x'"
NO_32_BITS = "x.h:27: fatal error: bits/libc-header-start.h: No such file or directory"
NO_PYKWALIFY = "    import pykwalify.core\n\n  ModuleNotFoundError: No module named 'pykwalify'\n\nCall Stack"
NO_WORKSPACE = 'west: unknown command "build"; do you need to run this inside a workspace?'
UNPROTECTED = """CMake Error at CMakeLists.txt:76 (message):
  --protect on mps2/an386 needs CONFIG_XIP=y: set it in prj.conf if the board
  allows it, or give --no-protect


-- Configuring incomplete, errors occurred!
"""
MISSPELT = "  include could not find requested file:\n\n    /z/cmake/toolchain/gnuarmmeb/generic.cmake\n"


@pytest.mark.parametrize(
    ("board", "output", "what", "hint"),
    [
        ("frdm_k64f", HEADER, "frdm_k64f needs the Zephyr module hal_nxp, which is missing", "west update hal_nxp"),
        ("nrf52840dk/nrf52840", KCONFIG, "needs the Zephyr module hal_nordic", "west update hal_nordic"),
        ("nrf52840dk", QUALIFIER, "needs a qualifier", "--board zephyr:nrf52840dk/nrf52840"),
        ("nucleo_f746gz", "No board named 'nucleo_f746gz' found.", "has no board nucleo_f746gz", "west boards"),
        ("nucleo_f746zg", NEWLIB, "picolibc is missing", "sudo apt-get install picolibc-arm-none-eabi"),
        ("nucleo_f746zg", "arm-none-eabi-gcc: fatal error: cannot read spec file 'picolibc.specs'", "picolibc", "apt"),
        ("qemu_riscv32", OTHER, "can't compile for qemu_riscv32", "unset ZEPHYR_TOOLCHAIN_VARIANT"),
        ("nucleo_f746zg", NO_SDK, "no compiler for nucleo_f746zg", "west sdk install"),
        ("nucleo_f746zg", NOWHERE, "no compiler for", "west sdk install"),
        ("nucleo_f746zg", MISSPELT, "no compiler for", "west sdk install"),
        ("nucleo_f746zg", NO_CMSIS, "cmsis_6", "west update cmsis_6"),
        ("nucleo_f746zg", "run: west blobs fetch hal_stm32", "binary blobs of hal_stm32", "west blobs fetch hal_stm32"),
        ("nucleo_f746zg", LABEL, "do not match the Zephyr tree", "west update"),
        ("nucleo_f746zg", MALFORMED, "do not match the Zephyr tree", "west update"),
        ("qemu_riscv32", ABI, "has no libraries for qemu_riscv32's core", "west sdk install"),
        ("qemu_riscv64", SOFT, "has no libraries for qemu_riscv64's core", "west sdk install"),
        ("nucleo_f746zg", NO_WORKSPACE, "is not in a west workspace", "west init -l"),
        ("nucleo_f746zg", NO_PYKWALIFY, "the Python package pykwalify", "pip install 'mtool-mcu[zephyr]'"),
        (
            "mps2/an386",
            UNPROTECTED,
            "--protect on mps2/an386 needs CONFIG_XIP=y: set it in prj.conf if the board allows",
            "",
        ),
        ("native_sim", NO_32_BITS, "32-bit libraries", "multilib"),
    ],
)
def test_zephyrs_messages_in_mtools_words(board: str, output: str, what: str, hint: str, tree: Path) -> None:
    compiler = "riscv64-unknown-elf-gcc" if "riscv" in board else "arm-none-eabi-gcc"
    error = explain(output, tree=tree, board=board, modules=["cmsis", "hal_stm32"], compiler=compiler)
    assert isinstance(error, BuildError | BoardError)
    assert what in error.what and hint in error.hint


@pytest.mark.parametrize(
    ("board", "output"),
    [
        ("nucleo_f746zg", "src/main.c:3:10: fatal error: mine.h: No such file or directory"),  # its module is there
        ("qemu_riscv32", "src/main.c:3:10: fatal error: mine.h: No such file or directory"),  # it needs none
        ("frdm_k64f", "src/main.c:3:1: error: expected ';'"),
    ],
)
def test_a_mistake_of_the_users_own_is_not_blamed_on_a_module(board: str, output: str, tree: Path) -> None:
    assert explain(output, tree=tree, board=board, modules=["hal_stm32"]) is None


def test_a_board_is_found_by_its_own_name_alone(tree: Path) -> None:
    assert zephyr.knows(tree, "nrf52840dk/nrf52840") and not zephyr.knows(tree, "nrf52840")
    assert not zephyr.knows(tree, "ns") and not zephyr.knows(tree, "../frdm_k64f") and not zephyr.knows(tree, "")
    assert sorted(zephyr.board_names(tree)) == sorted(name for name, _ in BOARDS.values())
    assert [zephyr.hal_of(tree, name) for name, _ in BOARDS.values()] == ["hal_nxp", "hal_nordic", "hal_stm32", "", ""]
    assert zephyr.version(tree) == "4.1.0"
