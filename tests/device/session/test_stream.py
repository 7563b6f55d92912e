"""A streaming wake word, here for a minute, in scripts/soak.py for hours: each hop against LiteRT, times and memory."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

import models
import numpy as np
import pytest
from numpy.typing import NDArray

from mtool import boards, commands, project
from mtool.base import filetree
from mtool.base.filetree import FileTree
from mtool.device import build
from mtool.device.transport.emulator import command

MODEL = models.FOLDER / "sww" / "str_ww_ref_model.tflite"
HOP_S, WINDOW, ROW, OUTPUTS = 0.032, 30, 40, 3
BOARDS = ("host", "mps2_an386", "qemu_riscv32")
_RECORD = np.dtype([("outputs", np.int8, OUTPUTS), ("ns", "<u4")])
_STACK_BYTES = 4


@dataclass(frozen=True)
class Streamed:
    """What came of hops.

    Attributes:
        hops, wrong: their number, and how many have other outputs than LiteRT.
        outputs: different outputs.
        early_ns, ns: the longest of the first half and of all, where instructions are counted.
        early_stack, stack: the bytes of stack that the first half and all have used.
        pages: by which the process's data have grown since the first half.
    """

    hops: int
    wrong: int
    outputs: int
    early_ns: int
    ns: int
    early_stack: int
    stack: int
    pages: int

    @property
    def is_good(self) -> bool:
        """Whether no output is wrong, no hop takes 1% longer than those of the first half, and no memory grows."""
        has_grown = self.ns > 1.01 * self.early_ns or self.stack != self.early_stack or self.pages
        return not self.wrong and self.outputs > self.hops // 1000 and not has_grown


def expected(hops: int) -> NDArray[np.int8]:
    """Return LiteRT's outputs for the whole window after each hop."""
    from ai_edge_litert.interpreter import Interpreter

    network = Interpreter(str(MODEL))
    network.allocate_tensors()
    (given,), (answer,) = network.get_input_details(), network.get_output_details()
    numbers = np.arange(hops, dtype=np.uint32)[:, None] // 8 * ROW + np.arange(ROW, dtype=np.uint32)
    rows = (numbers * np.uint32(2654435761) >> 24).astype(np.uint8).view(np.int8)
    rows = np.concatenate([np.full((WINDOW - 1, ROW), given["quantization"][1], np.int8), rows])
    found = np.empty((hops, OUTPUTS), np.int8)
    for hop in range(hops):
        network.set_tensor(given["index"], rows[hop : hop + WINDOW].reshape(given["shape"]))
        network.invoke()
        found[hop] = network.get_tensor(answer["index"])
    return found


def streamed(name: str, right: NDArray[np.int8], folder: Path) -> Streamed:
    """Run the hops on a board; the clocks of a RISC-V core begin just below 32 bits."""
    board, hops = boards.get(name), len(right)
    options = commands.Options(name="model", slides="input_1=1")
    model = commands.compile(MODEL, board=board, options=options)
    head = f"#define HOPS {hops}u\n#define CLINT {board.port.get('clint', 0):#x}u\n"
    main = {"src/main.c": (head + (Path(__file__).parent / "stream.c").read_text()).encode()}
    filetree.write(FileTree({**project.render(model.files, model.manifest, board)[0].files, **main}), folder)
    firmware = build.build(folder, kinds=["host_driven"]).firmware["host_driven"]
    argv = command(board.emulator, firmware) if board.emulator else [str(firmware)]
    data, pages, early = bytearray(), list[int](), hops // 2 * _RECORD.itemsize
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        while part := process.stdout.read(1 << 20 if pages else early + _STACK_BYTES):
            data += part
            pages.append(0 if board.emulator else int(Path(f"/proc/{process.pid}/statm").read_text().split()[5]))
    stacks = [int.from_bytes(data[at : at + _STACK_BYTES], "little") for at in (early, len(data) - _STACK_BYTES)]
    found = np.frombuffer(bytes(data[:early] + data[early + _STACK_BYTES : -_STACK_BYTES]), _RECORD)
    assert len(found) == hops
    wrong, outputs = int((found["outputs"] != right).any(axis=1).sum()), len(np.unique(right, axis=0))
    times = [int(part.max()) if board.emulator else 0 for part in (found["ns"][: hops // 2], found["ns"])]
    return Streamed(hops, wrong, outputs, *times, *stacks, max(pages) - pages[0])


@pytest.mark.slow
@models.needed
@pytest.mark.parametrize("name", BOARDS)
def test_hops_are_those_of_the_whole_window(name: str, tmp_path: Path) -> None:
    found = streamed(name, expected(2000), tmp_path)
    assert found.is_good, found
