"""Zephyr firmware that accepts modules, in QEMU, with Zephyr's flash simulator."""

import time
from pathlib import Path

import numpy as np
import pytest

import mtool
from mtool import boards, commands
from mtool.base.errors import DeviceError
from mtool.commands import modules
from mtool.device import session
from mtool.device.build import west
from mtool.device.rpc import Client, loading
from mtool.device.rpc.loading import Place
from mtool.device.transport import Transport, open_emulator
from mtool.manifest import load
from mtool.manifest.modules import keys
from mtool.stages.building import write_project
from mtool.stages.options import module_options
from tests.zephyr.test_zephyr import BOOT_S, need, pytestmark  # noqa: F401

BOARD = "mps2_an386"
DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits_int8.onnx"

# The board's partition in Zephyr's flash simulator: in a memory that a reset leaves as it is, at first with zeros.
PARTITION = """
/ {
	flash_memory: memory@21000000 {
		compatible = "zephyr,memory-region", "mmio-sram";
		reg = <0x21000000 0x80000>;
		zephyr,memory-region = "FLASH_MEMORY";
	};
};
&sim_flash_controller { erase-value = <0xff>; memory-region = <&flash_memory>; };
&flash_sim0 { reg = <0x0 0x80000>; erase-block-size = <4096>; };
&storage_partition { reg = <0x0 BYTES>; };
"""


@pytest.mark.slow
def test_a_module_runs_from_the_flash_of_zephyr(tmp_path: Path) -> None:
    need(BOARD)
    keys.make(tmp_path / "own.key")
    taken = module_options(True, tmp_path / "own.key.pub")
    options = mtool.Options(name="own", template="zephyr", template_options=taken)
    folder = mtool.prepare(DIGITS, board=BOARD, folder=tmp_path / "project", options=options).folder
    made = modules.make_module(DIGITS, board=BOARD, key=tmp_path / "own.key", options=mtool.Options(name="net"))
    x = {"image": np.arange(64, dtype=np.int8).reshape(1, 1, 8, 8)}
    for ram in (False, True):
        with session.open(folder) as device:
            found = device.load(made.data, ram=ram).run(x)["scores"]
            assert np.array_equal(found, device["own"].run(x)["scores"])


def in_flash_simulator(folder: Path, kib: int) -> tuple[boards.Board, Path]:
    """Return the board without the memory that emulates flash elsewhere, and a project with a partition."""
    known = need(BOARD)
    board = known.model_copy(update={"memories": {name: one for name, one in known.memories.items() if one.holds}})
    taken = {**module_options(True, None, unsigned=True), "module_slot_bytes": str(64 << 10)}
    options = mtool.Options(name="own", template="zephyr", template_options=taken)
    model = commands.compile(DIGITS, board=board, options=options)
    project = write_project(model, folder)
    (project / "app.overlay").write_text(PARTITION.replace("BYTES", str(kib << 10)))
    return board, project


def transport_of(board: boards.Board, folder: Path) -> Transport:
    manifest = load(folder)
    west.build(folder, manifest, ["host_driven"])
    firmware = manifest.in_project.firmware["host_driven"]
    assert board.emulator is not None
    return open_emulator(board.emulator, (folder / firmware).absolute(), channel="uart")


@pytest.mark.slow
def test_a_module_in_a_partition_of_the_flash_survives_a_reset(tmp_path: Path) -> None:
    board, folder = in_flash_simulator(tmp_path / "project", 256)
    made = [
        modules.make_module(DIGITS, board=BOARD, options=mtool.Options(name=name), counter=counter).data
        for name, counter in (("net", 3), ("net", 2), ("other", 1))
    ]
    with transport_of(board, folder) as transport:
        for names in (["own", "net"], ["own", "net", "other"]):
            client = Client(transport, timeout_s=BOOT_S)
            assert loading.load(client, made[0 if names[-1] == "net" else 2], Place.FLASH) == 0
            client.reset()
            time.sleep(1)
            client = Client(transport, timeout_s=BOOT_S)
            assert [one.name for one in loading.models(client)] == names
            assert loading.module_limits(client, "net").counter == 3
            with pytest.raises(DeviceError, match="MT_OLD_MODULE"):
                loading.load(client, made[1], Place.FLASH)


@pytest.mark.slow
def test_power_that_is_cut_at_a_write_of_zephyrs_flash_leaves_what_was_there(tmp_path: Path) -> None:
    board, folder = in_flash_simulator(tmp_path / "project", 72)
    (folder / "src/main.c").write_bytes((Path(__file__).parent / "power_cuts.c").read_bytes())
    with (folder / "prj.conf").open("a") as file:
        file.write("CONFIG_CONSOLE=y\nCONFIG_UART_CONSOLE=y\nCONFIG_PRINTK=y\n")
    printed, deadline = b"", time.monotonic() + 300
    with transport_of(board, folder) as transport:
        while b"\n" not in printed and time.monotonic() < deadline:
            printed += transport.read(timeout_s=1)
    word, cuts = printed.decode().split()[:2]
    assert word == "done:" and int(cuts) > 300, printed
