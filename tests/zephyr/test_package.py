"""A model as a module of an application: its arena's place, threads in user mode, two instances; run in QEMU."""

import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import packages
import pytest
from elftools.elf.elffile import ELFFile

from mtool import boards, commands
from mtool.base import resources
from mtool.boards import zephyr
from mtool.commands import Options
from mtool.compiler.codegen import conventions
from mtool.device.transport.emulator import command

DIGITS = resources.path("examples/digits")
BOARD = "mps2_an386"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    pytest.mark.skipif("ZEPHYR_BASE" not in os.environ, reason="ZEPHYR_BASE names no Zephyr tree"),
    pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake is not installed"),
]

LISTS = """cmake_minimum_required(VERSION 3.20)
list(APPEND EXTRA_ZEPHYR_MODULES ${CMAKE_CURRENT_SOURCE_DIR}/model)
find_package(Zephyr REQUIRED HINTS $ENV{ZEPHYR_BASE})
project(app)
target_sources(app PRIVATE main.c)
"""
USER = "CONFIG_ARM_MPU=y\nCONFIG_USERSPACE=y\n"
LOG = "CONFIG_LOG=y\nCONFIG_LOG_MODE_MINIMAL=y\n"  # without it, Zephyr does not report a fault of a user thread
CONF = "CONFIG_MTOOL_DIGITS_INT8=y\nCONFIG_MAIN_STACK_SIZE=4096\n"

# One thread with the module's own arena; options: K_USER or 0.
ONE = """
#include <digits_int8.h>
#include <string.h>
#include <zephyr/kernel.h>
#include <zephyr/sys/printk.h>

static const int8_t image[DIGITS_INT8_IMAGE_COUNT] = {IMAGE};

static void model_thread(void *a, void *b, void *c)
{
    (void)a, (void)b, (void)c;
    memcpy(digits_int8_arena_inputs.image, image, sizeof image);
    printk("status %d scores", (int)digits_int8_run(&digits_int8_arena_inputs, &digits_int8_arena_outputs));
    for (int i = 0; i < DIGITS_INT8_SCORES_COUNT; ++i) {
        printk(" %d", digits_int8_arena_outputs.scores[i]);
    }
    printk(" end\\n");
}

K_THREAD_DEFINE(worker, 4096, model_thread, NULL, NULL, NULL, 5, OPTIONS, 0);

int main(void)
{
    return 0;
}
"""

# Two threads, each with an instance in a partition of the application, that yield to each other between runs.
TWO = """
#include <digits_int8.h>
#include <zephyr/app_memory/app_memdomain.h>
#include <zephyr/kernel.h>
#include <zephyr/sys/printk.h>

K_APPMEM_PARTITION_DEFINE(own_partition);
K_APP_BMEM(own_partition) static uint8_t arenas[2][DIGITS_INT8_ARENA_BYTES] __attribute__((aligned(16)));
K_APP_BMEM(own_partition) static int8_t scores[2][DIGITS_INT8_SCORES_COUNT];
K_APP_BMEM(own_partition) static int32_t failures;
static const int8_t images[2][DIGITS_INT8_IMAGE_COUNT] = {IMAGES};
static const int8_t expected[2][DIGITS_INT8_SCORES_COUNT] = {EXPECTED};
static struct k_mem_domain domain;
static struct k_thread threads[2];
K_THREAD_STACK_ARRAY_DEFINE(stacks, 2, 4096);

static void model_thread(void *number, void *b, void *c)
{
    const int own = (int)(intptr_t)number;
    (void)b, (void)c;
    for (int round = 0; round < 20; ++round) {
        const struct digits_int8_inputs inputs = {(int8_t *)images[own]};
        const struct digits_int8_outputs outputs = {scores[own]};
        failures += digits_int8_run(arenas[own], &inputs, &outputs) != 0;
        for (int i = 0; i < DIGITS_INT8_SCORES_COUNT; ++i) {
            failures += scores[own][i] != expected[own][i];
        }
    }
}

int main(void)
{
    struct k_mem_partition *partitions[] = {&own_partition};
    k_mem_domain_init(&domain, 1, partitions);
    for (int i = 0; i < 2; ++i) {
        k_tid_t id = k_thread_create(&threads[i], stacks[i], K_THREAD_STACK_SIZEOF(stacks[i]), model_thread,
                                     (void *)(intptr_t)i, NULL, NULL, 5, OPTIONS, K_FOREVER);
        k_mem_domain_add_thread(&domain, id);
        k_thread_start(id);
    }
    k_thread_join(&threads[0], K_FOREVER);
    k_thread_join(&threads[1], K_FOREVER);
    printk("failures %d end\\n", (int)failures);
    return 0;
}
"""


def images(count: int) -> np.ndarray:
    with np.load(DIGITS / "test_data.npz") as data:
        return np.asarray(data["x"][:count])


def expected(count: int) -> np.ndarray:
    ort = pytest.importorskip("onnxruntime")
    session = ort.InferenceSession(DIGITS / "digits_int8.onnx", providers=["CPUExecutionProvider"])
    return np.array([session.run(None, {"image": one[np.newaxis]})[0].reshape(-1) for one in images(count)])


def rows(array: np.ndarray) -> str:
    return ", ".join("{" + ", ".join(map(str, row.reshape(-1))) + "}" for row in array)


def build(
    folder: Path,
    source: str,
    conf: str = "",
    overlay: str = "",
    board: str = BOARD,
    zephyr_board: str = "mps2/an386",
    **options: object,
) -> tuple[Path, str]:
    """Build an application with the module; return its ELF file and what the build printed."""
    for program in ("arm-none-eabi-gcc", "gperf"):  # the latter for user mode
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    model = commands.compile(DIGITS / "digits_int8.onnx", board=board, options=Options(**options))  # type: ignore[arg-type]
    packages.write(model, folder / "model", form="zephyr-module")
    for name, text in (
        ("CMakeLists.txt", LISTS),
        ("prj.conf", CONF + conf),
        ("app.overlay", overlay),
        ("main.c", source),
    ):
        (folder / name).write_text(text)
    env = {**os.environ, **zephyr.variant_of("arm-none-eabi-gcc")}
    argv = [
        "cmake",
        "-G",
        "Ninja",
        "-B",
        "build",
        f"-DBOARD={zephyr_board}",
        f"-DPython3_EXECUTABLE={sys.executable}",
        ".",
    ]
    printed = ""
    for step in (argv, ["cmake", "--build", "build"]):
        done = subprocess.run(step, cwd=folder, env=env, capture_output=True, text=True, check=False)
        printed += done.stdout + done.stderr
        assert done.returncode == 0, printed[-4000:]
    return folder / "build/zephyr/zephyr.elf", printed


def run(elf: Path) -> str:
    """Run firmware in the emulator until it prints "end" or a fault; return what it printed."""
    machine = boards.get(BOARD).emulator
    assert machine is not None
    if shutil.which(machine.program) is None:
        pytest.skip(f"{machine.program} is not installed")
    found = ""
    argv = command(machine, elf, channel="uart")
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        stops = threading.Timer(60, running.kill)
        stops.start()
        for line in running.stdout:
            found += line
            if line.rstrip().endswith("end") or "Current thread" in line:
                break
        stops.cancel()
        running.kill()
    return found


def one(options: str) -> str:
    return ONE.replace("{IMAGE}", "{" + ", ".join(map(str, images(1).reshape(-1))) + "}").replace("OPTIONS", options)


def scores() -> str:
    return f"status 0 scores {' '.join(map(str, expected(1)[0]))} end"


@pytest.mark.parametrize("options", ["0", "K_USER"])
def test_the_modules_own_arena(options: str, tmp_path: Path) -> None:
    conf = USER if options == "K_USER" else ""
    elf, printed = build(tmp_path, one(options), conf)
    assert "warning:" not in printed and scores() in run(elf)


def test_without_user_mode_the_build_names_the_arena(tmp_path: Path) -> None:
    elf, printed = build(tmp_path, one("K_USER"), USER + LOG + "CONFIG_MTOOL_DIGITS_INT8_USER_MODE=n\n")
    assert re.search(
        r"only supervisor threads can run it.* digits_int8_arena: CONFIG_MTOOL_DIGITS_INT8_USER_MODE=y", printed
    )
    assert "MPU FAULT" in run(elf)


@pytest.mark.parametrize("options", ["0", "K_USER"])
def test_two_instances_on_two_threads(options: str, tmp_path: Path) -> None:
    source = TWO.replace("{IMAGES}", "{" + rows(images(2)) + "}").replace("{EXPECTED}", "{" + rows(expected(2)) + "}")
    conf = USER + "CONFIG_TIMESLICING=y\nCONFIG_TIMESLICE_SIZE=1\nCONFIG_FPU=y\nCONFIG_FPU_SHARING=y\n"
    elf, printed = build(tmp_path, source.replace("OPTIONS", options), conf, conventions=conventions(context=True))
    assert "warning:" not in printed and "failures 0 end" in run(elf)


def arena_address(elf: Path) -> int:
    with elf.open("rb") as file:
        table = ELFFile(file).get_section_by_name(".symtab")
        (arena,) = table.get_symbol_by_name("digits_int8_arena")
        return int(arena["st_value"])


def test_the_arena_lies_in_the_chosen_memory(tmp_path: Path) -> None:
    overlay = """
        / {
            chosen { mtool,arena = &ahb; };
            ahb: memory@20200000 {
                compatible = "zephyr,memory-region", "mmio-sram";
                reg = <0x20200000 0x10000>;
                zephyr,memory-region = "AHB";
            };
        };
    """
    elf, printed = build(tmp_path, one("0"), overlay=overlay)
    assert 0x20200000 <= arena_address(elf) < 0x20210000 and "warning:" not in printed
    assert scores() in run(elf)


@pytest.mark.parametrize(
    ("board", "memory", "start", "size"),
    [
        ("stm32f746g_disco", "DTCM", 0x20000000, 0x10000),  # RM0385, 2.2.2
        ("nucleo_h743zi", "DTCM", 0x20000000, 0x20000),  # RM0433, 2.3.2
        ("stm32f4_disco", "CCM", 0x10000000, 0x10000),  # RM0090, 2.3.1
        ("nucleo_h743zi", "CHOSEN", 0x30040000, 0x8000),  # SRAM3
    ],
)
def test_the_arena_lies_in_a_boards_own_memory(board: str, memory: str, start: int, size: int, tmp_path: Path) -> None:
    if not (Path(os.environ["ZEPHYR_BASE"]).parent / "modules/hal/stm32").is_dir():
        pytest.skip("the workspace has no hal_stm32")
    chosen = "/ { chosen { mtool,arena = &sram3; }; };" if memory == "CHOSEN" else ""
    conf = "" if chosen else f"CONFIG_MTOOL_DIGITS_INT8_ARENA_{memory}=y\n"
    compiled_for = board if board in boards.load_all() else "host"  # host: the module with each core's C
    elf, printed = build(tmp_path, one("0"), conf, chosen, compiled_for, zephyr_board=board)
    assert start <= arena_address(elf) < start + size and "warning:" not in printed
    assert re.search(rf"arena [\d,]+ B \(\d+\.\d% of {'SRAM3' if chosen else memory}\)", printed)


def test_without_an_fpu_the_module_for_all_cores_keeps_simd(tmp_path: Path) -> None:
    elf, printed = build(tmp_path, one("0"), "CONFIG_FPU=n\n", board="host")
    assert "digits_int8: Cortex-M4, M33 without FPU: SIMD in 32 bits" in printed and "warning:" not in printed
    assert scores() in run(elf)
