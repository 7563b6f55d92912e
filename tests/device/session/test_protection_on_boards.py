"""A model under memory protection (--protect): a forbidden access ends only the model, and the session continues."""

from pathlib import Path

import numpy as np
import onnx
import pytest
import stateful
from amount import IS_ALL
from graphs import reference

from mtool.base.errors import DeviceError
from mtool.device import session
from mtool.device.session import Device
from tests.device.session import faulty, protected

pytestmark = pytest.mark.long
BOARDS = ["mps2_an386", *(["qemu_riscv32", "mps2_an385", "mps3_an547", "mps2_an505", "mps2_an500"] if IS_ALL else [])]
NAMED = "in operator 0, conv2d 3x3 "


class Cell:
    """The other model: a sequence of it, and what onnxruntime says of each step."""

    def __init__(self, built: protected.Protected, device: Device) -> None:
        self.proto, self.pairs, self.device = built.proto, built.pairs, device
        self.kept = {value: np.zeros((1, 1, stateful.HIDDEN), np.float32) for _, value in built.pairs}
        self.rng = np.random.default_rng(0)

    def step(self) -> None:
        x = self.rng.standard_normal((1, 1, stateful.SIZE)).astype(np.float32)
        names = [output.name for output in self.proto.graph.output]
        made = dict(zip(names, reference(self.proto, {"x": x, **self.kept}), strict=True))
        self.kept = {value: made[output] for output, value in self.pairs}
        np.testing.assert_allclose(self.device["cell"].run({"x": x})["y"], made["y"], atol=1e-5)


@pytest.mark.parametrize("board", BOARDS)
def test_what_a_model_may_not_do_ends_it_alone(board: str, tmp_path: Path) -> None:
    built = protected.make(board, tmp_path)
    scores = reference(onnx.load(faulty.DIGITS), protected.image())[0]
    with session.open(built.folder, timeout_s=30) as device:
        digits, cell = device["digits_int8"], Cell(built, device)

        def stopped(wanted: int, what: str, *, in_steps: bool = True, timeout_s: float | None = None) -> DeviceError:
            with pytest.raises(DeviceError) as caught:
                digits.run(protected.image(wanted), in_steps=in_steps, timeout_s=timeout_s)
            assert caught.value.what.startswith(what) and (caught.value.operator == 0 or not in_steps)
            cell.step()
            np.testing.assert_array_equal(digits.run(protected.image())["scores"], scores)
            return caught.value

        np.testing.assert_array_equal(digits.run(protected.image())["scores"], scores)
        is_arm = not board.startswith("qemu")
        has_flash_whole = board in ("mps2_an385", "mps2_an386", "mps2_an500")
        for number, place in enumerate(protected.PLACES, 1):
            error = stopped(
                number, f"{'MemManage' if is_arm else 'store access fault'} {NAMED}", in_steps=number % 2 > 0
            )
            assert "digits_int8.c:" in error.details[0] and ("MMFAR 0x" if is_arm else "mtval 0x") in error.details[0]
            if place != "input" and not (place == "vectors" and has_flash_whole):
                stopped(-number, f"{'MemManage' if is_arm else 'load access fault'} {NAMED}", in_steps=number % 2 == 0)
        assert stopped(protected.LEAVE, "the model failed on the device in operator 0 with code 5")
        stopped(protected.LOST_STACK, "MemManage" if is_arm else "store access fault")
        stopped(protected.TWICE, "MemManage" if is_arm else "illegal instruction")
        stopped(protected.ILLEGAL, f"{'UsageFault' if is_arm else 'breakpoint'} {NAMED}")
        stopped(protected.RAISE, f"{'BusFault' if is_arm else 'illegal instruction'} {NAMED}")
        if board in ("mps2_an386", "qemu_riscv32"):
            stopped(protected.ENDLESS, f"timeout {NAMED}", timeout_s=0.1)
        stopped(protected.DEEP, f"stack overflow {NAMED}")
        with pytest.raises(DeviceError, match=NAMED):
            digits.time(2, 1, inputs=protected.image(1))
        assert digits.time(2, 1, inputs=protected.image()).median > 0
        cell.step()
