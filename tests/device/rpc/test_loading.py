"""Modules over RPC: into RAM and into flash, over bad lines, and with power cuts at every write."""

import contextlib
import hashlib
import os
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import amount
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from mtool.base.errors import CommunicationError, DeviceError
from mtool.device.rpc import Client, Served, loading, protocol
from mtool.device.rpc.framing import Frame
from mtool.device.rpc.loading import Place
from mtool.device.rpc.protocol import Message, Request, Status
from mtool.device.transport import ProcessTransport, Transport
from mtool.manifest.modules.format import HEAD_BYTES, Description, Kind, Module, OperatorNote, pack, signed
from tests.crt import firmware
from tests.crt.test_server import Server
from tests.device.rpc.channels import Lossy
from tests.manifest.modules.test_format import X, Y

FLASH_BYTES = 54 << 10
CUT = 99  # how mt_test_modules.c ends at a cut


def module(adds: int, *, counter: int = 1, padding: int = 0, name: str = "adder", **more: object) -> bytes:
    """Return a module of the test firmware's kind: it adds a number to each of four bytes."""
    y = Y.model_copy(update={"dtype": "int8", "shape": (1, 4), "bytes": 4})
    made = Module(
        kind=Kind.BYTECODE,
        machine=0,
        counter=counter,
        alignment=16,
        image=bytes([adds]) + bytes((7 * at + adds) & 0xFF for at in range(padding)),
        code_bytes=1,
        entry=0,
        imports=(),
        name=name,
        model_hash=bytes([adds]) * 32,
        description=Description(
            mtool_version="1",
            model_file="adder.onnx",
            inputs=(X,),
            outputs=(y,),
            operators=(OperatorNote(name="add", label="add", macs=4),),
        ),
        arena_bytes=32,
        arena_alignment=16,
        stack_bytes=0,
    )
    return pack(replace(made, **more))  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def flash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "flash"
    path.write_bytes(bytes([0xFF]) * FLASH_BYTES)
    monkeypatch.setenv("TEST_FLASH", str(path))
    return path


def process(*defines: str) -> ProcessTransport:
    return ProcessTransport([str(firmware.build(*firmware.MODULES, defines=defines))], name="the firmware")


@pytest.fixture
def client() -> Iterator[Client]:
    with process() as transport:
        yield Client(transport, timeout_s=5)


def added(client: Client, index: int) -> int:
    """Return what the model of a number adds to its inputs."""
    model = client.of_model(Served(index, on_fault=lambda fault: DeviceError("fault")))
    (found,) = model.run([b"\1\2\3\4"], [4], work_s=5, in_steps=False)
    assert [byte - found[0] for byte in found] == [0, 1, 2, 3]
    return found[0] - 1


def listed(client: Client) -> list[tuple[Place, str]]:
    return [(one.place, one.name) for one in loading.models(client)]


@pytest.mark.slow
def test_a_module_in_ram_is_a_model_of_the_device(client: Client) -> None:
    assert listed(client) == [(Place.FIRMWARE, "test_model")]
    reported: list[tuple[int, int]] = []
    file = module(5, padding=900)
    assert loading.load(client, file, Place.RAM, progress=lambda there, whole: reported.append((there, whole))) == 0
    assert (reported[0], reported[-1]) == ((0, len(file)), (len(file), len(file)))
    assert listed(client) == [(Place.FIRMWARE, "test_model"), (Place.RAM, "adder")]
    assert loading.models(client)[1].model_hash == "05" * 8
    assert added(client, 1) == 5
    assert loading.fetch(client, 1, 0, len(file)) == file
    loading.load(client, module(6), Place.RAM)
    assert added(client, 1) == 6
    with pytest.raises(DeviceError, match="MT_BAD_INDEX"):
        loading.fetch(client, 0, 0, 1)
    with pytest.raises(DeviceError, match="MT_BAD_RANGE"):
        loading.fetch(client, 1, len(module(6)), 1)


def test_a_module_in_flash_survives_a_reset() -> None:
    for adds, counter in ((5, 3), (6, 3), (7, 4)):
        with process() as transport:
            client = Client(transport, timeout_s=5)
            assert loading.load(client, module(adds, counter=counter, padding=3000), Place.FLASH) == 0
            assert added(client, 1) == adds
        with process() as transport:
            client = Client(transport, timeout_s=5)
            assert added(client, 1) == adds
            assert loading.module_limits(client, "adder").counter == counter
            file = module(adds, counter=counter, padding=3000)
            assert loading.load(client, file, Place.FLASH) == len(file)  # it is there already
            loading.load(client, module(1, counter=4), Place.RAM)
            assert listed(client)[1:] == [(Place.FLASH, "adder"), (Place.RAM, "adder")]
            assert (added(client, 1), added(client, 2)) == (adds, 1)


def test_a_module_on_trial_stays_only_if_it_is_confirmed() -> None:
    old, new = module(5, counter=3, padding=3000), module(6, counter=4, padding=3000)

    def start(*files: bytes, trial: int = 0) -> tuple[int, int, int | None]:
        """Start, load files; return what the model adds, the least counter, and the model on trial."""
        with process() as transport:
            client = Client(transport, timeout_s=5)
            for file in files:
                loading.load(client, file, Place.FLASH, trial=trial)
            limits = loading.module_limits(client, "adder")
            return added(client, 1), limits.counter, limits.trial

    assert start(old) == (5, 3, None)
    assert start(new, trial=2) == (6, 3, 1)
    assert [start() for _ in range(4)] == [(6, 3, 1), (6, 3, 1), (5, 3, None), (5, 3, None)]
    assert start(new, old, trial=1) == (5, 3, None)  # loading another file ends the trial
    assert start(new, trial=1) == (6, 3, 1)
    assert start(new) == (6, 4, None)
    assert [start() for _ in range(2)] == [(6, 4, None)] * 2


def test_the_device_says_what_it_takes(client: Client) -> None:
    limits = loading.module_limits(client)
    assert (limits.kinds, limits.flash_bytes, limits.ram_bytes, limits.counter) == ({Kind.BYTECODE}, 23 << 10, 4096, 0)
    assert (limits.modules, limits.replaces, limits.delta_base) == (1, None, None)
    loading.load(client, module(2, counter=9), Place.FLASH)
    assert (loading.module_limits(client).counter, loading.module_limits(client).replaces) == (0, 1)
    assert loading.module_limits(client, "adder") == replace(limits, counter=9, replaces=1, delta_base=1)


def test_a_device_keeps_models_of_several_names_each_with_its_counter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_SLOT_BYTES", str(11 << 10))  # four slots, three models
    files = {name: module(adds, counter=counter, name=name) for name, adds, counter in
             (("kws", 5, 7), ("ad", 6, 1), ("vww", 7, 0))}  # fmt: skip
    with process() as transport:
        client = Client(transport, timeout_s=5)
        for file in files.values():
            loading.load(client, file, Place.FLASH)
        assert [name for _, name in listed(client)] == ["test_model", *files]
    with process() as transport:
        client = Client(transport, timeout_s=5)
        assert [added(client, index) for index in (1, 2, 3)] == [5, 6, 7]
        with pytest.raises(DeviceError, match="MT_OLD_MODULE"):
            loading.load(client, module(8, counter=6, name="kws"), Place.RAM)
        loading.load(client, module(8, counter=7, name="kws"), Place.FLASH)
        assert sorted(added(client, index) for index in (1, 2, 3)) == [6, 7, 8]
        limits = loading.module_limits(client, "ic")
        assert (limits.modules, limits.replaces is not None and listed(client)[limits.replaces][1]) == (3, "ad")
        loading.load(client, module(9, name="ic"), Place.FLASH)
        assert sorted(name for _, name in listed(client)) == ["ic", "kws", "test_model", "vww"]
        with pytest.raises(DeviceError, match="MT_OLD_MODULE"):
            loading.load(client, module(6, counter=0, name="ad"), Place.FLASH)
        with pytest.raises(DeviceError, match="MT_NO_MEMORY"):  # beside the RAM of the others
            loading.load(client, module(1, name="ad", counter=1, arena_bytes=3800), Place.RAM)
        loading.load(client, files["ad"], Place.FLASH)
        assert sorted(name for _, name in listed(client)) == ["ad", "ic", "kws", "test_model"]


@pytest.mark.slow
@pytest.mark.product(2)
@pytest.mark.parametrize("counter", [4, 6])
def test_a_damaged_module_and_a_load_that_broke_off_leave_the_counter(flash: Path, counter: int) -> None:
    with process("TEST_BUFFER_BYTES=1024") as transport:
        loading.load(Client(transport, timeout_s=5), module(5, counter=5, padding=3000), Place.FLASH)
    data = bytearray(flash.read_bytes())
    data[data.index(b"adder")] ^= 1
    flash.write_bytes(data)
    for _ in range(2):
        with process("TEST_BUFFER_BYTES=1024") as transport:
            assert len(listed(Client(transport, timeout_s=5))) == 1
            with pytest.raises(CommunicationError, match="unplugged"):
                loading.load(
                    Client(Unplugged(transport, 2400), timeout_s=5, take_over=True),
                    module(7, counter=6, padding=4000),
                    Place.FLASH,
                )
    with process() as transport:
        client = Client(transport, timeout_s=5)
        if counter < 5:
            with pytest.raises(DeviceError, match="MT_OLD_MODULE"):
                loading.load(client, module(8, counter=counter), Place.FLASH)
        else:
            loading.load(client, module(8, counter=counter), Place.FLASH)
            assert added(client, 1) == 8
        assert loading.module_limits(client, "adder").counter == max(counter, 5)


@pytest.mark.parametrize("place", [Place.FLASH, Place.RAM])
@pytest.mark.parametrize(
    ("file", "status"),
    [
        (module(5, counter=1), "MT_OLD_MODULE"),
        (module(5, counter=2, machine=3), "MT_WRONG_MACHINE"),
        (module(5, counter=2, kind=Kind.NATIVE), "MT_WRONG_MACHINE"),
        (module(5, counter=2, key_id=bytes(range(8))), "MT_BAD_SIGNATURE"),
        (module(5, counter=2, arena_bytes=5000), "MT_NO_MEMORY"),
        (module(5, counter=2, padding=24000), "MT_NO_MEMORY"),
        (module(13, counter=2), "MT_MODEL"),  # it will not begin
        (module(5, counter=2)[:-1] + b"\0", "MT_BAD_MODULE"),
        (b"MTM2" + module(5, counter=2)[4:], "MT_BAD_MODULE"),
    ],
)
def test_what_is_refused_leaves_what_was_there(client: Client, place: Place, file: bytes, status: str) -> None:
    loading.load(client, module(9, counter=2, padding=600), Place.FLASH)
    with pytest.raises(DeviceError, match=status):
        loading.load(client, file, place)
    assert added(client, 1) == 9
    assert loading.load(client, module(10, counter=2, padding=600), Place.FLASH) == 0
    assert added(client, 1) == 10


@pytest.mark.parametrize(
    "wrong", [{"key_id": bytes(range(8))}, {"arena_bytes": 5000}, {"padding": 24000}, {"counter": 1}]
)
def test_a_module_that_is_refused_leaves_the_trial_as_it_is(client: Client, wrong: dict[str, Any]) -> None:
    loading.load(client, module(9, counter=2), Place.FLASH)
    loading.load(client, new := module(10, counter=2), Place.FLASH, trial=5)
    with pytest.raises(DeviceError):
        loading.load(client, module(5, **{"counter": 2, **wrong}), Place.FLASH)
    assert (loading.load(client, new, Place.FLASH, trial=5), added(client, 1)) == (len(new), 10)


def test_a_signature_by_another_key_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    own, other = (Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32) for number in (1, 2))
    public = own.public_key().public_bytes_raw()
    monkeypatch.setenv("TEST_KEY", public.hex())
    key_id = hashlib.sha512(public).digest()[:8]
    with process() as transport:
        client = Client(transport, timeout_s=5)
        for file in (signed(module(5), key_id, other.sign), module(5)):
            with pytest.raises(DeviceError, match="MT_BAD_SIGNATURE"):
                loading.load(client, file, Place.FLASH)
        loading.load(client, signed(module(5), key_id, own.sign), Place.FLASH)
        assert added(client, 1) == 5
    with process() as transport:
        assert added(Client(transport, timeout_s=5), 1) == 5


def signed_by(number: int, file: bytes) -> bytes:
    """Return a file signed by the key of a number; `raw_key` is its public key."""
    key = Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32)
    return signed(file, hashlib.sha512(raw_key(number)).digest()[:8], key.sign)


def raw_key(number: int) -> bytes:
    return Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32).public_key().public_bytes_raw()


def accepts(file: bytes, place: Place = Place.FLASH, trial: int = 0) -> bool:
    """Start the device and load a file; return whether its signature is accepted."""
    with process() as transport:
        try:
            loading.load(Client(transport, timeout_s=5), file, place, trial=trial)
        except DeviceError as refused:
            if "MT_BAD_SIGNATURE" not in str(refused):
                raise
            return False
        return True


def test_a_module_names_the_key_after_its_signers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_KEY", raw_key(1).hex())
    to_2, to_3, to_1 = (
        signed_by(of, module(5 + of, counter=of, next_key=raw_key(to))) for of, to in ((1, 2), (2, 3), (3, 1))
    )
    by = {number: signed_by(number, module(9, counter=9, name="other")) for number in (1, 2, 3)}

    def accepted(*files: bytes) -> list[int]:
        assert all(accepts(file) for file in files)
        return [number for number, file in by.items() if accepts(file, Place.RAM)]

    with pytest.raises(DeviceError, match="MT_BAD_MODULE"):  # another key than the signed one
        accepts(to_2[:-1] + b"x")
    assert accepts(to_2, Place.RAM) and accepted() == [1]
    assert accepts(to_2, trial=1) and accepted() == [1]  # on trial, and then over
    assert accepted(to_2) == [2]
    with process() as transport:
        assert added(Client(transport, timeout_s=5), 1) == 6  # what was loaded stays
    assert accepted(to_3) == [3]
    assert not accepts(to_1) and accepted() == [3]  # a replaced key never comes back


def test_a_key_replaced_while_the_power_is_cut_is_the_old_or_the_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_KEY", raw_key(1).hex())
    file = signed_by(1, module(5, next_key=raw_key(2)))
    by = {number: signed_by(number, module(9, name="other")) for number in (1, 2)}
    found = []
    for cut in range(50, 90, 4):
        Path(os.environ["TEST_FLASH"]).write_bytes(bytes([0xFF]) * FLASH_BYTES)
        monkeypatch.setenv("TEST_CUT", str(cut))
        with contextlib.suppress(CommunicationError):
            assert accepts(file)
        monkeypatch.delenv("TEST_CUT")
        (one,) = [number for number, other in by.items() if accepts(other, Place.RAM)]
        found.append(one)
    assert found == sorted(found) and {*found} == {1, 2}


def test_frames_that_come_again_load_nothing_twice() -> None:
    server, file = Server(sources=firmware.MODULES), module(5, padding=100)
    with server.transport:
        server.hello()
        ask = server.ask
        head = bytes([Place.FLASH]) + file[:HEAD_BYTES]
        first = ask(Message.MT_LOAD, 0, head)
        assert first.payload == bytes([Status.MT_OK, 0, 0, 0, 0])
        half = len(file) // 2
        for _ in range(2):
            assert ask(Message.MT_DATA, 1, bytes(4) + file[:half]).payload == bytes([Status.MT_OK])
            assert ask(Message.MT_LOAD, 0, head) == first  # though more is there now
        rest = half.to_bytes(4, "little") + file[half:]
        assert ask(Message.MT_DATA, 2, bytes(4) + file[half:]).payload == bytes([Status.MT_BAD_ORDER])
        assert ask(Message.MT_DATA, 3, rest + b"x").payload == bytes([Status.MT_BAD_RANGE])
        assert ask(Message.MT_COMMIT, 4, b"").payload == bytes([Status.MT_BAD_ORDER])
        assert ask(Message.MT_DATA, 5, rest).payload == bytes([Status.MT_OK])
        for _ in range(2):
            assert ask(Message.MT_COMMIT, 6, b"").payload == bytes([Status.MT_OK])
        assert ask(Message.MT_COMMIT, 7, b"").payload == bytes([Status.MT_BAD_ORDER])  # nothing is being loaded
        assert ask(Message.MT_DATA, 8, b"abc").payload == bytes([Status.MT_BAD_MESSAGE])
        assert ask(Message.MT_LOAD, 9, head[:-1]).payload == bytes([Status.MT_BAD_MESSAGE])
        assert ask(Message.MT_LOAD, 10, b"\3" + head[1:]).payload == bytes([Status.MT_NOT_SUPPORTED])


@pytest.mark.product(2)
@pytest.mark.parametrize("place", [Place.FLASH, Place.RAM])
def test_a_bad_line_changes_no_byte(place: Place) -> None:
    file = module(5, padding=2000)
    with process("TEST_BUFFER_BYTES=1024") as transport:
        lossy = Lossy(transport, rate=1e-3, seed=3)
        client = Client(lossy, timeout_s=5)
        loading.load(client, file, place)
        assert loading.fetch(client, 1, 0, len(file)) == file
        assert added(client, 1) == 5
        assert lossy.harmed > 2 and client.resent > 0


class Unplugged(Lossy):
    """Fail after some bytes were sent; the device continues."""

    def __init__(self, inner: Transport, count: int) -> None:
        super().__init__(inner, rate=0, seed=0)
        self._left = count

    def write(self, data: bytes, *, timeout_s: float) -> None:
        super().write(data[: self._left], timeout_s=timeout_s)
        self._left -= len(data)
        if self._left < 0:
            raise CommunicationError("unplugged")


@pytest.mark.parametrize("place", [Place.FLASH, Place.RAM])
def test_a_load_goes_on_in_the_next_session(place: Place) -> None:
    file = module(5, padding=2500)
    with process("TEST_BUFFER_BYTES=1024") as transport:
        with pytest.raises(CommunicationError, match="unplugged"):
            loading.load(Client(Unplugged(transport, 2400), timeout_s=5), file, place)
        second = Client(transport, timeout_s=5, take_over=True)
        assert len(file) // 3 < loading.load(second, file, place) < len(file)
        assert added(second, 1) == 5


def test_power_that_is_cut_at_any_write_of_a_load_leaves_a_good_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole of the loader, with processes that die; mt_test_slots.c cuts the slots alone, more often."""
    old, cuts, went_on = 0, 0, 0
    for cut in range(0, 320, 1 if amount.IS_ALL else 17):
        file = module(20 + cut % 200, counter=cut, padding=4000)
        monkeypatch.setenv("TEST_CUT", str(cut))
        try:
            with process() as transport:
                client = Client(transport, timeout_s=5)
                assert [added(client, 1)] == [old] if old else len(listed(client)) == 1
                loading.load(client, file, Place.FLASH)
        except CommunicationError as lost:
            assert f"ended with exit code {CUT}" in str(lost)
            cuts += 1
        monkeypatch.delenv("TEST_CUT")
        with process() as transport:
            client = Client(transport, timeout_s=5)
            found = added(client, 1) if len(listed(client)) > 1 else 0
            assert found in (old, 20 + cut % 200)
            there = loading.load(client, file, Place.FLASH)
            went_on += 0 < there < len(file)
            old = added(client, 1)
            assert old == 20 + cut % 200
    assert cuts > 10 and went_on > 0


def mutated(file: bytes, draw: random.Random) -> bytes:
    """Return a module with some bytes changed; every other time with the hash of what it then holds."""
    data = bytearray(file)
    for _ in range(draw.randrange(1, 4)):
        at = draw.randrange(draw.choice((100, HEAD_BYTES + 24, len(data))))
        data[at] = draw.choice((0, 1, 0x7F, 0x80, 0xFF, draw.randrange(256), data[at] ^ 1 << draw.randrange(8)))
    if draw.random() < 0.5:
        data[136:200] = hashlib.sha512(data[HEAD_BYTES:]).digest()
    return bytes(data)


def test_modules_that_were_mutated_harm_nothing(client: Client) -> None:
    """Unsigned, so that nothing but the checks stands between them and the firmware, which the sanitizers watch."""
    draw, statuses = random.Random(1), set()
    good = module(9, padding=300)
    loading.load(client, good, Place.FLASH)
    for number in range(amount.of(20_000, 400)):
        try:
            loading.load(client, mutated(good, draw), draw.choice((Place.RAM, Place.FLASH)))
            statuses.add("MT_OK")
        except DeviceError as refused:
            statuses |= {one.name for one in Status if f"{one.name}:" in str(refused)}
        if number % 40 == 39:
            client.ask([protocol.select(0)])
            loading.models(client)
    assert {"MT_OK", "MT_BAD_MODULE", "MT_WRONG_MACHINE", "MT_BAD_SIGNATURE"} <= statuses


def test_a_list_of_models_without_an_end_is_reported() -> None:
    class Endless:
        def ask(self, requests: list[Request]) -> list[Frame]:
            assert requests[0].payload[0] <= 0xFF
            return [Frame(Message.MT_MODELS, 0, 0, 8 * (b"\0" + b"0" * 16 + b"\1m"))]

    with pytest.raises(CommunicationError, match="list of models is too long"):
        loading.models(Endless())  # type: ignore[arg-type]


def test_firmware_that_takes_no_modules_says_so() -> None:
    with ProcessTransport([str(firmware.build())], name="the firmware") as transport:
        client = Client(transport, timeout_s=5)
        with pytest.raises(DeviceError, match="MT_UNKNOWN_MESSAGE"):
            loading.module_limits(client)


def test_the_requests_are_numbered_as_in_c() -> None:
    assert (Place.FIRMWARE, Place.FLASH, Place.RAM) == (0, 1, 2)
    assert HEAD_BYTES == loading.HEAD_BYTES
    assert protocol.REPLY | Message.MT_FETCH == 0x94


def test_a_module_is_read_back_only_up_to_its_image() -> None:
    file = module(5, padding=500)
    with process(firmware.UNREADABLE) as transport:
        client = Client(transport, timeout_s=5)
        loading.load(client, file, Place.RAM)
        image_at = len(file) - 501
        assert loading.fetch(client, 1, 0, image_at) == file[:image_at]
        with pytest.raises(DeviceError, match="MT_BAD_RANGE"):
            loading.fetch(client, 1, image_at, 1)
