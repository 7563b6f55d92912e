"""TFLite files with wrong lengths or more than they contain: an error, soon and with little memory."""

import struct
import time
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import pytest
import tflite
from tflite_models import Op, T, model

from mtool.base.errors import ModelError
from mtool.compiler.frontend import ModelOptions, load
from mtool.compiler.frontend.tflite.schema import read

RELU = Op("RELU", ["x"], ["y"])


def save(folder: Path, data: bytes) -> Path:
    path = folder / "m.tflite"
    path.write_bytes(data)
    return path


def vector_of(table: Any, slot: int) -> int:
    """Return where in the file the length of a table's vector stands."""
    return int(table._tab.Vector(table._tab.Offset(slot)) - 4)


def lengths() -> dict[str, int]:
    """Return where the length of each vector of a small model stands."""
    data = model([T("x", [4]), T("w", [4], data=np.ones(4)), T("y", [4])], [Op("ADD", ["x", "w"], ["y"])], ["x"], ["y"])
    root = tflite.Model.GetRootAs(data, 0)
    graph = root.Subgraphs(0)
    return {
        "operator codes": vector_of(root, 6),
        "subgraphs": vector_of(root, 8),
        "buffers": vector_of(root, 12),
        "tensors": vector_of(graph, 4),
        "inputs": vector_of(graph, 6),
        "outputs": vector_of(graph, 8),
        "operators": vector_of(graph, 10),
        "a shape": vector_of(graph.Tensors(0), 4),
        "an operator's inputs": vector_of(graph.Operators(0), 6),
        "an operator's outputs": vector_of(graph.Operators(0), 8),
        "a buffer's data": vector_of(root.Buffers(1), 4),
    }


@pytest.mark.parametrize("number", [2**31 - 1, 2**28, 2**16])
@pytest.mark.parametrize("what", [name for name in lengths() if name not in ("subgraphs", "buffers")])
def test_a_vector_longer_than_the_file(what: str, number: int, tmp_path: Path) -> None:
    tensors = [T("x", [4]), T("w", [4], data=np.ones(4)), T("y", [4])]
    data = bytearray(model(tensors, [Op("ADD", ["x", "w"], ["y"])], ["x"], ["y"]))
    struct.pack_into("<I", data, lengths()[what], number)
    start = time.process_time()
    with pytest.raises(ModelError, match="damaged") as refused:
        load(save(tmp_path, bytes(data)))
    assert time.process_time() - start < 1
    if what not in ("inputs", "outputs", "a buffer's data"):
        assert f"a list of {number:,} entries" in refused.value.details[0]


@pytest.mark.parametrize("shape", [[2**31 - 1], [2**20, 2**20], [65536, 65536, 65536]])
def test_an_input_over_two_gibibytes(shape: list[int], tmp_path: Path) -> None:
    data = model([T("x", shape), T("y", shape)], [RELU], ["x"], ["y"])
    with pytest.raises(ModelError, match="damaged") as refused:
        load(save(tmp_path, data))
    assert "'x' has the invalid shape" in refused.value.details[0]
    data = model([T("x", [2**29 - 1]), T("y", [2**29 - 1])], [RELU], ["x"], ["y"])
    assert load(save(tmp_path, data)).types["x"].bytes == 2**31 - 4


def many_of_one(count: int, elements: int, *, quantized: bool) -> bytes:
    """Return a model of many tensors, which all are one and the same table of the file."""
    b = flatbuffers.Builder(1024)
    buffers = []
    for size in (0, elements):
        raw = b.CreateNumpyVector(np.ones(size, np.uint8)) if size else 0
        tflite.BufferStart(b)
        if size:
            tflite.BufferAddData(b, raw)
        buffers.append(tflite.BufferEnd(b))
    shape, name, quant = b.CreateNumpyVector(np.array([elements], np.int32)), b.CreateString("w"), 0
    if quantized:
        scales = b.CreateNumpyVector(np.ones(elements, np.float32))
        tflite.QuantizationParametersStart(b)
        tflite.QuantizationParametersAddScale(b, scales)
        quant = tflite.QuantizationParametersEnd(b)
    tflite.TensorStart(b)
    tflite.TensorAddShape(b, shape)
    tflite.TensorAddName(b, name)
    tflite.TensorAddType(b, tflite.TensorType.INT8)
    tflite.TensorAddBuffer(b, 1)
    if quant:
        tflite.TensorAddQuantization(b, quant)
    tensor = tflite.TensorEnd(b)

    def vector(start: Any, items: list[int]) -> Any:
        start(b, len(items))
        for item in items:
            b.PrependUOffsetTRelative(item)
        return b.EndVector()

    tensors = vector(tflite.SubGraphStartTensorsVector, [tensor] * count)
    outputs = b.CreateNumpyVector(np.array([0], np.int32))
    tflite.SubGraphStart(b)
    tflite.SubGraphAddTensors(b, tensors)
    tflite.SubGraphAddOutputs(b, outputs)
    graph = tflite.SubGraphEnd(b)
    graphs = vector(tflite.ModelStartSubgraphsVector, [graph])
    held = vector(tflite.ModelStartBuffersVector, buffers[::-1])
    tflite.ModelStart(b)
    tflite.ModelAddVersion(b, 3)
    tflite.ModelAddSubgraphs(b, graphs)
    tflite.ModelAddBuffers(b, held)
    b.Finish(tflite.ModelEnd(b), b"TFL3")
    return bytes(b.Output())


def test_many_tensors_that_share_their_bytes(tmp_path: Path) -> None:
    """They are views of the file, of which only what is read is copied."""
    path = save(tmp_path, many_of_one(300, 1_000_000, quantized=False))
    assert len(read(path).tensors) == 300
    assert list(load(path).outputs) == ["w"]


def test_many_tensors_with_many_scales(tmp_path: Path) -> None:
    start = time.process_time()
    with pytest.raises(ModelError, match="limit 'work'"):
        load(save(tmp_path, many_of_one(2000, 1_000_000, quantized=True)))
    assert time.process_time() - start < 10


def test_more_tensors_than_are_read_in_a_moment(tmp_path: Path) -> None:
    path = save(tmp_path, many_of_one(3000, 4, quantized=False))
    assert len(read(path).tensors) == 3000
    with pytest.raises(ModelError, match="limit 'work'") as refused:
        load(path, ModelOptions(limits={"work": 1_000_000}))
    assert "'w'" in refused.value.details[0]


@pytest.mark.parametrize("pads", [[[0, 2**31 - 2]], [[2**29, 0]]])
def test_a_mirror_as_large_as_it_says(pads: list[list[int]], tmp_path: Path) -> None:
    size = [2**29 - 1]
    tensors = [T("x", size), T("p", [1, 2], np.int32, data=np.array(pads)), T("y", size)]
    data = model(tensors, [Op("MIRROR_PAD", ["x", "p"], ["y"], "MirrorPadOptions", {"Mode": 1})], ["x"], ["y"])
    with pytest.raises(ModelError):
        load(save(tmp_path, data))


def test_a_mirror_that_is_too_large_to_write_down(tmp_path: Path) -> None:
    tensors = [T("x", [2**27]), T("p", [1, 2], np.int32, data=np.array([[1, 0]])), T("y", [2**27 + 1])]
    data = model(tensors, [Op("MIRROR_PAD", ["x", "p"], ["y"], "MirrorPadOptions", {"Mode": 1})], ["x"], ["y"])
    with pytest.raises(ModelError, match="limit 'constants'") as refused:
        load(save(tmp_path, data))
    assert "MIRROR_PAD" in refused.value.details[0]


def test_what_python_raises_becomes_the_operators_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mtool.compiler.frontend.tflite.builtins import BUILTINS, Builtin

    def fail(*_: Any) -> None:
        raise IndexError("list index out of range")

    monkeypatch.setitem(BUILTINS, "RELU", Builtin(fail))
    with pytest.raises(ModelError) as refused:
        load(save(tmp_path, model([T("x", [4]), T("y", [4])], [RELU], ["x"], ["y"])))
    assert "y (RELU 0)" in refused.value.details[0]
    assert "do not match (IndexError" in refused.value.details[0]


def test_constants_that_nothing_reads_do_not_count(tmp_path: Path) -> None:
    unread = T("w", [1000], data=np.ones(1000))
    data = model([T("x", [4]), unread, T("y", [4])], [RELU], ["x"], ["y"])
    assert "w" not in load(save(tmp_path, data), ModelOptions(limits={"constants": 100})).constants
