"""A module's bytes."""

import re
from dataclasses import replace

import pytest

from mtool.base.errors import UsageError
from mtool.manifest import Tensor
from mtool.manifest.modules.format import (
    HEAD_BYTES,
    MOST_DESCRIPTION_BYTES,
    Description,
    Kind,
    Module,
    OperatorNote,
    declaration_hash,
    pack,
    unpack,
)

X = Tensor(name="x/0", c_name="x_0", dtype="int8", shape=(1, 4), bytes=4, arena_offset=0, scale=(0.5,), zero_point=(3,))
Y = Tensor(name="y", c_name="y", dtype="float32", shape=(2,), bytes=8, arena_offset=16)
MODULE = Module(
    kind=Kind.NATIVE,
    machine=3,
    counter=7,
    alignment=16,
    image=bytes(range(100)),
    code_bytes=40,
    entry=4,
    imports=(1, 0xFFFFFFFF),
    name="kws",
    model_hash=bytes(range(32)),
    description=Description(
        mtool_version="1",
        model_file="kws.onnx",
        inputs=(X,),
        outputs=(Y,),
        operators=(OperatorNote(name="dense_0", label="dense", macs=8),),
    ),
    arena_bytes=24,
    arena_alignment=16,
    stack_bytes=0,
)


def test_a_description_that_is_too_long_is_reported() -> None:
    long = MODULE.description.model_copy(update={"model_file": "x" * MOST_DESCRIPTION_BYTES})
    with pytest.raises(UsageError, match="too many names"):
        pack(replace(MODULE, description=long))


def test_what_is_packed_is_unpacked() -> None:
    data = pack(MODULE)
    assert unpack(data) == MODULE
    naming = replace(MODULE, next_key=bytes(range(32)))
    assert unpack(pack(naming)) == naming
    assert data[:4] == b"MTM1" and int.from_bytes(data[4:8], "little") == len(data)
    assert data[HEAD_BYTES : HEAD_BYTES + 16] == bytes([0, 0, 0, 0, 4, 0, 0, 0, 16, 0, 0, 0, 8, 0, 0, 0])
    assert data.endswith(MODULE.image) and (len(data) - len(MODULE.image)) % 16 == 0
    assert MODULE.ram_bytes() == 32 + 2 * 4 + 2 * 8


@pytest.mark.parametrize("at", [0, 4, 8, 12, 24, 28, 32, 36, 40, 48, 52, 56, 64, 72, 136, HEAD_BYTES, -1])
def test_a_changed_byte_is_reported(at: int) -> None:
    data = bytearray(pack(MODULE))
    data[at] ^= 0x81
    with pytest.raises(UsageError, match="can't be read"):
        unpack(bytes(data))


def test_a_wrong_size_is_reported_with_its_place() -> None:
    data = pack(MODULE)
    head = data[:4] + (1 << 31).to_bytes(4, "little") + data[8:]
    for changed, found in ((head, f"header is wrong.*found {1 << 31} bytes"), (data[:-1], f"{len(data) - 1}")):
        with pytest.raises(UsageError) as reported:
            unpack(changed)
        assert re.search(f"(?s){found}.*, expected {len(data)}", str(reported.value))


@pytest.mark.parametrize("wrong", [{"arena_bytes": 23}, {"entry": 40}, {"alignment": 8}, {"name": "a b"}])
def test_what_no_module_may_hold_is_reported(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="can't be read"):
        unpack(pack(replace(MODULE, **wrong)))  # type: ignore[arg-type]


def test_a_cut_module_is_reported() -> None:
    data = pack(MODULE)
    for size in (0, 3, 4, HEAD_BYTES - 1, HEAD_BYTES, len(data) - 1):
        with pytest.raises(UsageError):
            unpack(data[:size])
    with pytest.raises(UsageError):
        unpack(data + b"\0")


def test_declarations_are_named_by_fnv_1a() -> None:
    assert declaration_hash("") == 0x811C9DC5 and declaration_hash("foobar") == 0xBF9CF968
