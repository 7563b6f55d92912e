"""Compressed constants of TFLM: look-up tables, Huffman codes and pruned tensors, as its own decoder reads them."""

import json
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import pytest
from tflite_cases import compute
from tflite_models import Array, Op, T, model

from mtool.base.errors import ModelError
from mtool.compiler.frontend import load
from mtool.compiler.frontend.options import ModelOptions
from mtool.compiler.frontend.tflite.schema import Tensor, read
from mtool.compiler.kernels.target import Target

LOOK_UP, HUFFMAN, PRUNED = range(3)

# Codes, table and text of tflite-micro's decode_state_huffman_test.cc.
CODES = bytes.fromhex("F00D79FC9C1A6E4C32AF29B35DF6360250158CA795DB29683FBAB7EDB119E2E0")
ENTRIES = [
    0x986D, 0x9861, 0x986A, 0x0005, 0x0806, 0x0809, 0x000E, 0x000F, 0x886F, 0x8868, 0x8864, 0x8864,
    0x9069, 0x9066, 0x8863, 0x8863, 0x0002, 0x906B, 0x8867, 0x886C, 0x8865, 0x8862, 0x8870, 0x886E,
]  # fmt: skip
TEXT = b"nmmacnanefdacopjomeckifookhbdbdmjjdmjgojfecpbiibmanbbjbnlgjafejp"


def ancillary(kind: int, table: Array, *, parameters: int = 0, stride: int = 0, version: int = 1) -> Array:
    header = np.array([kind, version, 0, 0, 1, parameters, stride, *[0] * 9], np.uint8)
    return np.concatenate([header, np.frombuffer(table.tobytes(), np.uint8)])


def packed(indices: Array, bits: int) -> Array:
    fields = np.unpackbits(indices.astype(np.uint8).reshape(-1, 1), axis=1)[:, 8 - bits :]
    return np.packbits(fields.reshape(-1))


def file_of(target: T, encoded: Array, table: Array) -> bytes:
    """Return a model that adds a tensor, which TFLM_DECODE makes, to its input."""
    tensors = [
        T("encoded", [encoded.size], np.uint8, target.scale, axis=target.axis, data=encoded),
        T("table", [table.size], np.uint8, data=table), target,
        T("x", target.shape, target.dtype, 0.1), T("y", target.shape, target.dtype, 0.1),
    ]  # fmt: skip
    decode = Op("CUSTOM TFLM_DECODE", ["encoded", "table"], [target.name])
    return model(tensors, [decode, Op("ADD", ["x", target.name], ["y"], "AddOptions")], ["x"], ["y"])


def made(data: bytes, name: str, folder: Path) -> Tensor:
    (folder / "m.tflite").write_bytes(data)
    network = read(folder / "m.tflite")
    assert [operator.kind for operator in network.operators] == ["ADD"]
    return next(tensor for tensor in network.tensors if tensor.name == name)


def decoded(target: T, encoded: Array, table: Array, folder: Path) -> Array:
    found = made(file_of(target, encoded, table), target.name, folder).data
    assert found is not None and found.shape == tuple(target.shape) and found.dtype == target.dtype
    return found


@pytest.mark.parametrize(("dtype", "is_wide"), [(np.int8, False), (np.int8, True), (np.int16, True)])
def test_huffman_codes_of_tflm_s_own_test(dtype: Any, is_wide: bool, tmp_path: Path) -> None:
    entries = np.array([(entry >> 11) << 27 | entry & 0x7FF for entry in ENTRIES], np.uint32)
    table = ancillary(HUFFMAN, entries if is_wide else np.array(ENTRIES, np.uint16), parameters=0x20 | is_wide)
    found = decoded(T("w", [8, 8], dtype, 0.1), np.frombuffer(CODES, np.uint8), table, tmp_path)
    assert bytes(found.reshape(-1).astype(np.uint8)) == TEXT


@pytest.mark.parametrize("bits", range(1, 8))
@pytest.mark.parametrize("axis", [None, 0, 2])
def test_look_up_tables(bits: int, axis: int | None, tmp_path: Path) -> None:
    rng, shape = np.random.default_rng(bits), (3, 5, 4)
    channels = 1 if axis is None else shape[axis]
    stride = 2**bits - (bits > 2)
    values = rng.integers(-128, 128, (channels, stride)).astype(np.int8)
    places = rng.integers(0, stride, shape)
    target = T("w", shape, np.int8, np.linspace(0.1, 0.2, channels), axis=axis or 0)
    found = decoded(target, packed(places, bits), ancillary(LOOK_UP, values, parameters=bits, stride=stride), tmp_path)
    for place, element in np.ndenumerate(found):
        assert element == values[0 if axis is None else place[axis], places[place]]


@pytest.mark.parametrize("dtype", [np.float32, np.int16, np.int32, np.int64])
def test_look_up_tables_of_other_types(dtype: Any, tmp_path: Path) -> None:
    values, places = np.array([7, -3, 1000, 0], dtype), np.array([[0, 3, 2], [1, 1, 2]])
    table = ancillary(LOOK_UP, values, parameters=2, stride=4)
    np.testing.assert_array_equal(decoded(T("w", [2, 3], dtype), packed(places, 2), table, tmp_path), values[places])


@pytest.mark.parametrize("zero", [0, 5])
def test_pruned_elements_are_the_zero_point(zero: int, tmp_path: Path) -> None:
    stored = np.array([[1, 0, 0, 1, 1], [0, 0, 1, 0, 1]])
    table = ancillary(PRUNED, np.array([1, 2, 3, 4, 5], np.int8))
    found = decoded(T("w", [2, 5], np.int8, [0.1, 0.2], zero), packed(stored, 1), table, tmp_path)
    assert found.tolist() == [[1, zero, zero, 2, 3], [zero, zero, 4, zero, 5]]


def metadata(tensor: int, values: int, bits: int, version: int = 1) -> Array:
    """Return the table COMPRESSION_METADATA with one tensor of the first subgraph."""
    b = flatbuffers.Builder(64)

    def table(*slots: tuple[str, int]) -> int:
        b.StartObject(len(slots))
        for number, (kind, value) in enumerate(slots):
            getattr(b, f"Prepend{kind}Slot")(number, value, 0)
        return int(b.EndObject())

    def vector(item: int) -> int:
        b.StartVector(4, 1, 4)
        b.PrependUOffsetTRelative(item)
        return int(b.EndVector())

    lut = table(("Int32", tensor), ("Uint32", values), ("Uint8", bits))
    subgraph = table(("UOffsetTRelative", vector(lut)))
    b.Finish(table(("Uint32", version), ("UOffsetTRelative", vector(subgraph))))
    return np.frombuffer(bytes(b.Output()), np.uint8)


def with_metadata(values: Array, places: Array, bits: int, found: Array) -> bytes:
    tensors = [
        T("x", [4, 2], np.int8, 0.1), T("y", [4, 2], np.int8, 0.1),
        T("w", [4, 2], np.int8, [0.1, 0.2], axis=1, data=packed(places, bits).view(np.int8)),
        T("values", [values.size], np.int8, data=values),
    ]  # fmt: skip
    ops = [Op("ADD", ["x", "w"], ["y"], "AddOptions")]
    return model(tensors, ops, ["x"], ["y"], metadata={"COMPRESSION_METADATA": found})


VALUES, PLACES = np.array([[5, -6, 7], [8, 9, 0]], np.int8), np.array([[0, 1], [2, 0], [1, 1], [0, 1]])


def test_look_up_tables_in_the_metadata(tmp_path: Path) -> None:
    """The form of 2024: no operator decodes, the metadata name the tensor, the buffer of its values and the bits."""
    found = made(with_metadata(VALUES, PLACES, 3, metadata(2, 2, 3)), "w", tmp_path).data
    assert found is not None and found.tolist() == [[5, 9], [7, 8], [-6, 9], [5, 9]]


def test_metadata_of_a_newer_version(tmp_path: Path) -> None:
    with pytest.raises(ModelError) as caught:
        made(with_metadata(VALUES, PLACES, 3, metadata(2, 2, 3, version=2)), "w", tmp_path)
    assert caught.value.details[0] == "its compression has schema version 2; expected 1"


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (np.zeros(8, np.uint8), "the ancillary tensor of 'w' has 8 bytes; expected 16 or more"),
        (ancillary(LOOK_UP, VALUES, version=2), "the encoding of 'w' has version 2.1; expected 1.1"),
        (ancillary(127, VALUES), "the encoding of 'w' is 127; expected 0 (look-up table), 1 (Huffman) or 2 (pruned)"),
        (ancillary(LOOK_UP, VALUES, stride=6), "'w' has 2 bytes for 8 indices of 0 bits"),
        (ancillary(LOOK_UP, VALUES, parameters=3, stride=6), "'w' has 2 bytes for 8 indices of 3 bits"),
        (ancillary(LOOK_UP, VALUES, parameters=1, stride=1), "'w' has index 1, outside a table of 1 value"),
        (
            ancillary(LOOK_UP, VALUES, parameters=1, stride=99),
            "'w' has 1 channel of 99 values; expected 99 values; found",
        ),
        (ancillary(PRUNED, VALUES[0]), "'w' has 4 elements, but 3 values"),
        (ancillary(HUFFMAN, np.zeros(4, np.uint16), parameters=16), "element 0 of 'w' has an invalid Huffman code"),
        (ancillary(HUFFMAN, np.zeros(1, np.uint16)), "element 0 of 'w' has an invalid Huffman code"),
    ],
)
def test_an_encoding_that_is_damaged(table: Array, words: str, tmp_path: Path) -> None:
    data = file_of(T("w", [4, 2], np.int8, 0.1), np.array([0xAA, 0xAA], np.uint8), table)
    with pytest.raises(ModelError, match="is damaged or truncated") as caught:
        made(data, "w", tmp_path)
    assert caught.value.details[0].startswith(words)


def test_a_compressed_tensor_is_as_large_as_the_budget_allows(tmp_path: Path) -> None:
    target = T("w", [2**14, 2**14], np.float32)
    (tmp_path / "m.tflite").write_bytes(file_of(target, np.zeros(4, np.uint8), ancillary(PRUNED, VALUES)))
    with pytest.raises(ModelError, match="limit 'constants'"):
        load(tmp_path / "m.tflite", ModelOptions())


@pytest.mark.slow
@pytest.mark.parametrize("bits", [2, 3, 5])
def test_a_network_compressed_by_tflm_computes_what_tflm_computes(bits: int, tmp_path: Path) -> None:
    tflm = pytest.importorskip("tflite_micro", reason="tflite-micro is not installed: scripts/setup --all")
    rng, step = np.random.default_rng(bits), 1 << (8 - bits)
    tensors = [
        T("x", [1, 40], np.int8, 0.1), T("b", [24], np.int32, 0.002, data=rng.integers(-99, 99, 24)),
        T("w", [24, 40], np.int8, 0.02, data=rng.integers(-128, 128, (24, 40)) // step * step),
        T("y", [1, 24], np.int8, 0.3),
    ]  # fmt: skip
    whole = model(tensors, [Op("FULLY_CONNECTED", ["x", "w", "b"], ["y"], "FullyConnectedOptions", {})], ["x"], ["y"])
    method = {"lut": {"index_bitwidth": bits, "per_tensor": None}}
    listed = {"tensors": [{"subgraph": 0, "tensor": 2, "compression": [method]}]}
    data = bytes(tflm.compression.compress(whole, tflm.compression.parse_yaml(json.dumps(listed))))
    x = rng.integers(-128, 128, (1, 40)).astype(np.int8)
    interpreter = tflm.runtime.Interpreter.from_bytes(data)
    interpreter.set_input(x, 0)
    interpreter.invoke()
    (found,) = compute(data, {"x": x}, tmp_path, "tflite", Target("host", frozenset()))
    np.testing.assert_array_equal(found, interpreter.get_output(0))
