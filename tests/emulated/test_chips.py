"""Chips that QEMU models by their registers: each command on each of them, over the chip's own UART, as on a board."""

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mtool import boards
from mtool.base.errors import DeviceError
from mtool.boards import Board
from mtool.cli import app
from mtool.commands import prepare
from mtool.device import build, session
from mtool.device.transport import ProcessTransport
from mtool.device.transport.emulator import command
from tests.device.session import faulty

DIGITS = str(faulty.DIGITS)
GATE = str(faulty.DIGITS.parents[1] / "cascade" / "gate.onnx")
CHIPS = {name: board for name, board in boards.load_all().items() if board.emulator and "uart" in board.ports}
ANSWER_S = 30.0

pytestmark = pytest.mark.skipif(shutil.which("qemu-system-arm") is None, reason="QEMU is not installed")


def test_all_chips_are_there() -> None:
    assert [*CHIPS] == ["netduinoplus2", "netduino2", "stm32vldiscovery", "microbit", "lm3s6965evb"]


@pytest.fixture(scope="module")
def top(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("chips")


@contextmanager
def on_a_desk(board: Board, elf: Path) -> Iterator[str]:
    """Yield the port of a board that runs a firmware: a pseudo-terminal, the emulator's serial line."""
    assert board.emulator is not None
    emulator = board.emulator.model_copy(update={"uart": ("-serial", "pty")})
    with ProcessTransport(command(emulator, elf, channel="uart"), name="the emulator") as running:
        said = ""
        while "redirected to " not in said:
            said += running.read(timeout_s=ANSWER_S).decode()
        yield said.partition("redirected to ")[2].split()[0]


class Desk:
    """A board with a firmware, and the command line that drives it."""

    def __init__(self, board: Board, top: Path, said: pytest.CaptureFixture[str]) -> None:
        self.board, self.folder, self.said = board, top / board.name, said
        self.elf = self.folder / "build" / "host_driven.elf"
        if not self.elf.is_file():
            prepare(DIGITS, board=board, folder=self.folder)

    def do(self, name: str, *arguments: str, over_port: bool = True) -> str:
        """Run a command on the model, over the port of a board or in the emulator; return what it prints."""
        self.said.readouterr()
        words = [name, DIGITS, "-b", self.board.name, "-d", str(self.folder), *arguments]
        if not over_port:
            assert app.invoke(words) == 0
        else:
            with on_a_desk(self.board, self.elf) as port:
                assert app.invoke([*words, "--port", port]) == 0
        reported = self.said.readouterr()
        return reported.out if "--json" in arguments else reported.out + reported.err


def do_run(desk: Desk) -> None:
    runs = [json.loads(desk.do("run", "--json", over_port=over_port)) for over_port in (True, False)]
    assert runs[0]["outputs"] == runs[1]["outputs"]
    assert runs[0]["cost"] == runs[1]["cost"] and runs[0]["cost"]["instructions"] > 100_000


def do_verify(desk: Desk) -> None:
    assert "matches onnxruntime over 4 samples" in desk.do("verify")


def do_bench(desk: Desk) -> None:
    reported = [desk.do("bench", "--layers", over_port=over_port) for over_port in (True, False)]
    totals = [re.findall(r"^all operators .*", text, re.MULTILINE) for text in reported]
    assert totals[0] == totals[1] and len(totals[0]) == 1


def do_flash(desk: Desk) -> None:
    if shutil.which("gdb-multiarch") is None:
        pytest.skip("gdb-multiarch is not installed")
    reported = desk.do("flash", over_port=False)
    assert "verified" in reported and "equal to onnxruntime" in reported


def do_monitor(desk: Desk) -> None:
    """A program prints through mtool.h's port."""
    folder = desk.folder.with_name(f"{desk.board.name}-prints")
    shutil.copytree(desk.folder, folder)
    (folder / "src" / "main.c").write_text(PRINTS)
    build.build(folder)
    with on_a_desk(desk.board, folder / "build" / "host_driven.elf") as port:
        assert app.invoke(["monitor", str(folder), "--port", port, "--for", "1", "--json"]) == 0
    heard = [json.loads(line) for line in desk.said.readouterr().out.splitlines()]
    assert ["text", "all is well"] in [[one["kind"], one["text"]] for one in heard]


PRINTS = r"""#include "mtool.h"
int main(void);
int main(void)
{
    static const uint8_t text[] = "all is well\n";
    (void)mt_port_init();
    for (;;) {
        (void)mt_port_write(text, sizeof text - 1);
        for (volatile int32_t i = 0; i < 100000; ++i) {
        }
    }
}
"""


def do_debug(desk: Desk) -> None:
    if shutil.which("gdb-multiarch") is None:
        pytest.skip("gdb-multiarch is not installed")
    reported = desk.do("debug", "--operator", "2", "--batch", "--ex", "info registers pc", over_port=False)
    assert "Breakpoint 1, digits_int8_conv_2 (" in reported and re.search(r"^pc +0x", reported, re.MULTILINE)


def do_fault(desk: Desk) -> None:
    folder = faulty.make(desk.board, desk.folder.with_name(f"{desk.board.name}-faults"))
    kinds = {faulty.UNMAPPED: "(MemManage|fault) in ", faulty.DEEP: "stack overflow in ", faulty.ENDLESS: "timeout in "}
    with on_a_desk(desk.board, folder / "build" / "host_driven.elf") as port:
        for fault, says in kinds.items():  # after each of them the board has restarted
            with session.open(folder, port=port, timeout_s=ANSWER_S) as device:
                device.run(faulty.sample(device.manifest))
                sample, limit_s = faulty.sample(device.manifest, fault), 0.05 if fault == faulty.ENDLESS else None
                with pytest.raises(DeviceError, match=says + re.escape(faulty.NAMED)) as caught:
                    device.run(sample, timeout_s=limit_s)
            assert fault == faulty.DEEP or faulty.line(folder, fault) in caught.value.details[0]


def do_tune(desk: Desk) -> None:
    log = desk.folder.with_name(f"{desk.board.name}.jsonl")
    words = ["tune", GATE, "-b", desk.board.name, "-o", str(log), "--trials", "3"]
    assert app.invoke(words) == 0
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    measured = [row for row in rows if row["kind"] == "measurement"]
    assert measured and all(row["status"] == "ok" and row["times"] for row in measured)


COMMANDS = (do_run, do_verify, do_bench, do_flash, do_monitor, do_debug, do_fault)
DO = {each.__name__.removeprefix("do_"): each for each in COMMANDS}


@pytest.mark.long
@pytest.mark.product(12)
@pytest.mark.parametrize("what", DO)
@pytest.mark.parametrize("name", CHIPS)
def test_a_command(name: str, what: str, top: Path, capfd: pytest.CaptureFixture[str]) -> None:
    DO[what](Desk(CHIPS[name], top, capfd))


@pytest.mark.slow
@pytest.mark.parametrize("name", CHIPS)
def test_tuning(name: str, top: Path, capfd: pytest.CaptureFixture[str]) -> None:
    do_tune(Desk(CHIPS[name], top, capfd))


FLASH = r"""#include "mtool.h"
#include "mt_board.h"
#include "mt_ports.h"
int main(void);
int main(void)
{
    static uint8_t bytes[64];
    const char *said = "well\n";
    (void)mt_port_init();
    for (uint32_t i = 0; i < sizeof bytes; ++i) {
        bytes[i] = (uint8_t)(i + 1u);
    }
    for (uint32_t round = 0; round < 2u; ++round) {
        const uint8_t *const there = (const uint8_t *)(MT_FLASH_START + 64u);
        if (mt_flash_erase(MT_FLASH_START) != MT_OK || there[0] != 0xFFu || there[63] != 0xFFu ||
            mt_flash_program(MT_FLASH_START + 64u, bytes, sizeof bytes) != MT_OK || there[-1] != 0xFFu) {
            said = "bad!\n";
        }
        if (mt_flash_program(MT_FLASH_START + 64u, bytes, sizeof bytes) != MT_OK) { /* the same bits again */
            said = "bad!\n";
        }
    }
    for (;;) {
        (void)mt_port_write((const uint8_t *)said, 5);
        for (volatile int32_t i = 0; i < 100000; ++i) {
        }
    }
}
"""


@pytest.mark.slow
def test_the_flash_of_an_nrf(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """QEMU models the controller of this chip's flash alone."""
    chip = CHIPS["microbit"]
    flash = {"driver": "nrf_nvmc", "base": 0x4001E000, "start": 0x3F000, "bytes": 4096, "sector": 1024}
    memories = {**chip.memories, "flash": chip.memories["flash"].model_copy(update={"size": flash["start"]})}
    changes = {"name": "with_flash", "ports": {**chip.ports, "flash": flash}, "memories": memories}
    board = chip.model_copy(update=changes)
    folder = faulty.make(board, tmp_path / "project", replace={"src/main.c": FLASH})
    with on_a_desk(board, folder / "build" / "host_driven.elf") as port:
        assert app.invoke(["monitor", "--port", port, "--for", "1"]) == 0
    printed = capfd.readouterr().out  # whose first line and last one may be cut
    assert "well" in printed.split() and "b" not in printed, printed
