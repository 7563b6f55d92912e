"""Packed functions: their checks, DLTensor's layout on every core, and calls over the wire."""

import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from mtool.base.errors import DeviceError
from mtool.device.rpc import Client, protocol
from mtool.device.rpc.framing import Decoder, Frame, encode
from mtool.device.rpc.protocol import ARENA, INPUTS, Message, Placed, Request, Status
from mtool.device.transport import ProcessTransport
from tests.crt import firmware
from tests.crt.test_compilers import CORES

# Offsets of DLTensor's members and its size as dlpack.h's structure has them, for pointers of 8 and of 4 bytes.
MEMBERS = ("data", "device", "ndim", "dtype", "shape", "strides", "byte_offset")
LAYOUTS = {
    "x86-64": ([0, 8, 16, 20, 24, 32, 40], 48),
    "cortex-m0plus": ([0, 4, 12, 16, 20, 24, 32], 40),
    "cortex-m4": ([0, 4, 12, 16, 20, 24, 32], 40),
    "rv32imc": ([0, 4, 12, 16, 20, 24, 32], 40),
}


def test_checks() -> None:
    done = subprocess.run([firmware.build("mt_test_packed.c")], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), "the exit status is the line that is wrong, modulo 256"


@pytest.mark.parametrize("core", LAYOUTS)
def test_dltensor_is_laid_out_as_in_dlpack(core: str, tmp_path: Path) -> None:
    compiler, *flags = CORES[core]
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    offsets, size = LAYOUTS[core]
    facts = [f"offsetof(DLTensor, {member}) == {offset}" for member, offset in zip(MEMBERS, offsets, strict=True)]
    facts += [f"sizeof(DLTensor) == {size}", "sizeof(DLDevice) == 8", "sizeof(DLDataType) == 4"]
    lines = [f"typedef char fact{number}[({fact}) ? 1 : -1];" for number, fact in enumerate(facts)]
    source = tmp_path / "layout.c"
    source.write_text("\n".join(['#include "mt_dlpack.h"', "#include <stddef.h>", *lines, ""]))
    subprocess.run([compiler, *firmware.STRICT, *flags, "-c", str(source), "-o", str(tmp_path / "o")], check=True)


def test_headers_can_be_used_from_cpp(tmp_path: Path) -> None:
    source = tmp_path / "sketch.cpp"
    source.write_text('#include "mt_functions.h"\nstatic mt_packed *function;\nint main() { return function != 0; }\n')
    include = f"-I{firmware.CRT / 'include'}"
    subprocess.run(["g++", "-Wall", "-Wextra", "-Werror", include, "-fsyntax-only", str(source)], check=True)


@pytest.fixture
def client() -> Iterator[Client]:
    program = firmware.build("mt_test_main.c", "mt_test_functions.c")
    transport = ProcessTransport([str(program)], name="the server")
    yield Client(transport)
    transport.close()


def vector(offset: int, *shape: int, dtype: str = "float32", kind: int = ARENA, index: int = 0) -> Placed:
    return Placed(dtype, shape or (4,), kind, index, offset)


def test_a_function_of_tensors(client: Client) -> None:
    data = np.array([1, -2, 0.5, 4], np.float32)
    client.write_at(ARENA, 0, 8, data.tobytes())
    number = client.lookup("test_double")
    assert client.invoke(number, [vector(8), vector(40)], work_s=5) is None
    assert client.read_at(ARENA, 0, 40, 16) == (2 * data).tobytes()


def test_a_function_of_numbers_returns_one(client: Client) -> None:
    assert client.invoke(client.lookup("test_sum"), [-(1 << 40), 0.25], work_s=5) == 0.25 - (1 << 40)


def test_names_that_are_none(client: Client) -> None:
    for name in ("", "test_doubl", "test_doublee", "x" * 100):
        with pytest.raises(DeviceError, match="MT_UNKNOWN_FUNCTION"):
            client.lookup(name)


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        ([vector(8)], "MT_BAD_COUNT"),
        ([vector(8), vector(8), vector(8)], "MT_BAD_COUNT"),
        ([1, 2.0], "MT_BAD_TYPE"),
        ([vector(8, dtype="int32"), vector(8)], "MT_BAD_TYPE"),
        ([vector(8, 2, 2), vector(8)], "MT_BAD_SHAPE"),
        ([vector(8), vector(8, 3)], "MT_BAD_SHAPE"),
        ([vector(8, 1, 1, 1, 4), vector(8)], "MT_BAD_SHAPE"),
        ([vector(52), vector(8)], "MT_BAD_RANGE"),
        ([vector(8, 1 << 31, 1 << 31), vector(8)], "MT_BAD_RANGE"),
        ([vector(9), vector(8)], "MT_BAD_RANGE"),
        ([vector(0xFFFFFFF8), vector(8)], "MT_BAD_RANGE"),
        ([vector(8, index=1), vector(8)], "MT_BAD_INDEX"),
        ([vector(8, kind=INPUTS), vector(8)], "MT_BAD_INDEX"),
        ([vector(8)] * 4, "MT_BAD_COUNT"),
    ],
)
def test_arguments_that_are_wrong(client: Client, arguments: list[int | float | Placed], status: str) -> None:
    number = client.lookup("test_double")
    with pytest.raises(DeviceError, match=status):
        client.invoke(number, arguments, work_s=5)
    assert client.invoke(number, [vector(8), vector(24)], work_s=5) is None  # the session goes on


def test_a_status_of_the_function_is_reported(client: Client) -> None:
    with pytest.raises(DeviceError, match="the function failed on the device with MT_BAD_SHAPE"):
        client.invoke(client.lookup("test_fail"), [], work_s=5)
    with pytest.raises(DeviceError, match="MT_BAD_INDEX"):
        client.invoke(99, [], work_s=5)


def test_a_model_without_functions_says_so() -> None:
    transport = ProcessTransport([str(firmware.build())], name="the server")
    opened = Client(transport)
    for ask in (lambda: opened.lookup("run"), lambda: opened.invoke(0, [], work_s=5)):
        with pytest.raises(DeviceError, match="MT_NOT_SUPPORTED"):
            ask()
    transport.close()


def test_a_call_is_not_done_twice_when_its_frame_is_repeated(client: Client) -> None:
    client.write_at(ARENA, 0, 0, np.ones(4, np.float32).tobytes())
    request = protocol.invoke(client.lookup("test_double"), [vector(0), vector(0)], 1.0)
    window = client.window
    (first,) = window.exchange([request])
    again = encode(Frame(request.type, window.session, (window.next_sequence - 1) & 0xFFFF, request.payload))
    window.transport.write(again, timeout_s=5)
    frames = [frame for frame in Decoder().feed(window.transport.read(timeout_s=5)) if frame is not None]
    assert [frame.payload for frame in frames] == [bytes([first.status]) + first.payload]
    assert client.read_at(ARENA, 0, 0, 16) == np.full(4, 2, np.float32).tobytes()


def test_no_message_leaves_the_memory(client: Client) -> None:
    """Thousands of calls made up and edited, to a server under the sanitizers."""
    random_ = random.Random(3)
    good = protocol.invoke(0, [vector(8), vector(40)], 1.0).payload
    seen = set()
    for _ in range(300):
        requests = []
        for _ in range(8):
            data = bytearray(good)
            for _ in range(random_.choice((0, 1, 2, 5))):
                data[random_.randrange(len(data))] = random_.choice((0, 1, 2, 4, 7, 8, 32, 127, 128, 255))
            data = data[: random_.choice((len(data), len(data), random_.randrange(len(data))))]
            requests.append(Request(Message.MT_INVOKE, bytes(data), reply_bytes=14, work_s=1.0))
        for request in requests:
            seen |= {reply.status for reply in client.window.exchange([request])}
    assert {Status.MT_OK, Status.MT_MODEL, Status.MT_BAD_MESSAGE, Status.MT_BAD_RANGE, Status.MT_BAD_INDEX} <= seen
    assert client.lookup("test_sum") == 1
