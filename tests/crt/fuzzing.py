"""libFuzzer on the parts of the runtime that take bytes from outside: the server, modules, deltas and bytecode."""

import struct
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import networks

from mtool.compiler import passes
from mtool.compiler.bytecode.call import SHARED
from mtool.compiler.bytecode.model import encode, plan_bytecode
from mtool.device.rpc.protocol import Message
from mtool.manifest.delta import delta
from mtool.manifest.modules.format import pack
from tests import sanitized
from tests.compiler.bytecode import host, small
from tests.crt.firmware import CRT, SOURCES, STRICT
from tests.manifest.modules.test_format import MODULE


@dataclass(frozen=True)
class Target:
    """What of the runtime is linked with crt/tests/mt_fuzz_NAME.c, and the inputs that the fuzzer begins with."""

    sources: Sequence[Path]
    seeds: Callable[[], Sequence[bytes]]
    most_bytes: int = 2000


def _of_server() -> list[bytes]:
    """Return records of each kind of message, and repetitions."""
    return [
        *map(
            bytes.fromhex,
            (
                "ff 05050000000000 f107050000 0000000000",  # a CALL, and the same again
                "ff 0c04 66696c6c 0d15 0100 01 07 00 00 00000000 00 08 02 05000000 04000000",  # LOOKUP, INVOKE
                "ff 0d23 0000 03 00 0100000000000000 02 000000000000f03f 07 02 00 08000000 02 20 01 02000000",  # of all
                "ff 0606 02000000ffff f108 0600 02000000ffff",  # a TIME of the model
                "ff 0606 010000000100 0b0100 0b0101 0700 0200",  # a TIME of an operator, TIMER, STACK, INFO
                "ff 0308 0000 00000000 aabb 0408 0000 00000000 0200 f10a 0401 0000 00000000 0200",  # WRITE, READ
                "ff 0900 f4020100 0a00 f4022220 0505 0100000000 0800",  # PING, HELLO, BYE, RESET
                "fe 00 02 01 01 00",  # bytes on the line
            ),
        )
    ]


def _of_loader() -> list[bytes]:
    """Return records that load modules into flash and RAM, by a delta too, ask for them, and reset."""

    def record(what: int, data: bytes = b"") -> bytes:
        return struct.pack("<BH", what, len(data)) + data

    module, send, reset = 0xF0, 0xF1, 0xF2
    old = pack(MODULE)
    other = pack(replace(MODULE, name="ad", arena_bytes=64))
    newer = pack(replace(MODULE, counter=8, image=bytes(range(1, 101))))
    asked = (
        record(Message.MT_MODELS, b"\0")
        + record(Message.MT_ROOM, b"kws")
        + record(Message.MT_FETCH, b"\1\0\0\0\0\x20\0")
    )
    change = delta(old, newer)
    by_delta = record(Message.MT_LOAD, b"\x81" + newer[:272] + change[:4]) + record(Message.MT_DATA, bytes(4) + change)
    return [
        record(module, old) + record(send, b"\1") + asked + record(reset) + asked,
        record(module, old) + record(send, b"\2") + asked,
        record(module, old) + record(send, b"\1") + record(module, other) + record(send, b"\1") + record(reset) + asked,
        record(module, old) + record(send, b"\1") + by_delta + record(Message.MT_COMMIT) + asked,
    ]


def _of_delta() -> list[bytes]:
    old, new = bytes(range(200)), bytes(range(1, 180)) + bytes(40)
    made = delta(old, new)
    return [
        struct.pack("<BHH", piece, len(old), len(new)) + old + made[start:] for piece in (0, 255) for start in (0, 16)
    ]


def _of_bytecode() -> list[bytes]:
    protos = [small.network(), networks.integers(3), networks.floats(15)]  # they call all kernels
    return [encode(plan_bytecode(passes.run(networks.imported(proto), SHARED))).data for proto in protos]


def _parts(*names: str) -> list[Path]:
    return [path for folder in ("src", "modules") for path in sorted((CRT / folder).glob("*.c")) if path.stem in names]


TARGETS = {
    "server": Target(SOURCES, _of_server),
    "loader": Target(
        _parts(
            "mt_loader", "mt_loader_delta", "mt_slots", "mt_module", "mt_sha512", "mt_delta", "mt_link", "mt_cobs",
            "mt_crc32",
        ),
        _of_loader,
    ),
    "delta": Target(_parts("mt_delta", "mt_crc32"), _of_delta),
    "bytecode": Target(host.SOURCES, _of_bytecode, most_bytes=8000),
}  # fmt: skip


def command(name: str, folder: Path, *, seconds: int, seed: int = 1) -> list[str]:
    """Build a target in a folder; the command that feeds it for `seconds`, and leaves what it finds there."""
    target = TARGETS[name]
    corpus = folder / f"corpus_{name}"
    corpus.mkdir(exist_ok=True)
    for number, data in enumerate(target.seeds()):
        assert len(data) <= target.most_bytes, (name, number, len(data))
        (corpus / f"seed{number}").write_bytes(data)
    program = folder / f"fuzz_{name}"
    sources = [*target.sources, CRT / "tests" / f"mt_fuzz_{name}.c"]
    flags = [*STRICT, *sanitized.FLAGS, "-O1", "-fsanitize=fuzzer"]
    subprocess.run(["clang", *flags, *sources, "-o", program, "-lm"], check=True)
    limits = [f"-max_total_time={seconds}", f"-seed={seed}", f"-max_len={target.most_bytes}", "-timeout=10"]
    return [str(program), str(corpus), *limits, "-print_final_stats=1", f"-artifact_prefix={folder}/{name}-"]
