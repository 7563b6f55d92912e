"""Reading .tflite files: types, quantization and buffers, and contradictory fields."""

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tflite
from tflite_models import Op, T, model

from mtool.base.errors import ModelError
from mtool.compiler.frontend import load
from mtool.compiler.frontend.tflite.schema import Model, Tensor, read

# Slots of the schema's tables, as its generated code has them.
SHAPE, TYPE, BUFFER, QUANTIZATION = 4, 6, 8, 12
SCALE, ZERO_POINT = 8, 10


def saved(data: bytes, folder: Path) -> Path:
    path = folder / "m.tflite"
    path.write_bytes(data)
    return path


def of(weights: T) -> bytes:
    tensors = [T("x", [4]), weights, T("y", [4])]
    return model(tensors, [Op("ADD", ["x", weights.name], ["y"], "AddOptions")], ["x"], ["y"])


def changed(data: bytes, place: Callable[[Any], int], layout: str, value: int) -> bytes:
    """Return a file with the field of its second tensor at `place` changed."""
    new = bytearray(data)
    struct.pack_into(layout, new, place(tflite.Model.GetRootAs(data, 0).Subgraphs(0).Tensors(1)), value)
    return bytes(new)


def field(slot: int) -> Callable[[Any], int]:
    return lambda table: int(table._tab.Pos + table._tab.Offset(slot))


def length(slot: int) -> Callable[[Any], int]:
    """Return where the length of a vector of a tensor's quantization stands."""

    def place(tensor: Any) -> int:
        table = tensor.Quantization()
        return int(table._tab.Vector(table._tab.Offset(slot)) - 4)

    return place


def second(data: bytes, folder: Path) -> Tensor:
    return read(saved(data, folder)).tensors[1]


def damage(data: bytes, folder: Path) -> str:
    with pytest.raises(ModelError, match="is damaged or truncated") as caught:
        read(saved(data, folder))
    return str(caught.value.details[0])


@pytest.mark.parametrize(("count", "numbers"), [(3, [1, 2, -1]), (4, [1, 2, -1, -8])])
def test_four_bits_lie_two_in_a_byte_the_first_in_the_low_half(count: int, numbers: list[int], tmp_path: Path) -> None:
    packed = T("w", [count], np.int8, 0.1, data=np.array([0x21, 0x8F]).astype(np.int8))
    tensor = second(changed(of(packed), field(TYPE), "<b", tflite.TensorType.INT4), tmp_path)
    assert tensor.data is not None and tensor.data.tolist() == numbers and tensor.data.dtype == np.int8


def test_four_bits_that_are_too_few(tmp_path: Path) -> None:
    packed = T("w", [5], np.int8, 0.1, data=np.array([0x21, 0x8F]).astype(np.int8))
    data = changed(of(packed), field(TYPE), "<b", tflite.TensorType.INT4)
    assert damage(data, tmp_path) == "tensor 1 'w' has 2 bytes of data; expected 3"


def test_a_type_without_arrays(tmp_path: Path) -> None:
    data = changed(of(T("w", [4], np.float16)), field(TYPE), "<b", tflite.TensorType.COMPLEX64)
    tensor = second(data, tmp_path)
    assert tensor.problem == "elements of type COMPLEX64" and tensor.data is None


def test_an_operator_of_such_a_type_is_refused(tmp_path: Path) -> None:
    tensors = [T("x", [4]), T("w", [4], np.float16), T("y", [4])]
    data = model(tensors, [Op("EXP", ["x"], ["w"]), Op("EXP", ["w"], ["y"])], ["x"], ["y"])
    with pytest.raises(ModelError) as caught:
        load(saved(changed(data, field(TYPE), "<b", tflite.TensorType.COMPLEX64), tmp_path))
    reported = "\n".join(caught.value.details)
    assert "its output 'w' has elements of type COMPLEX64" in reported
    assert "its input 'w' has elements of type COMPLEX64" in reported


def test_bytes_that_are_not_the_shapes(tmp_path: Path) -> None:
    for count in (3, 5):
        data = of(T("w", [4], np.float32, data=np.ones(count)))
        assert damage(data, tmp_path) == f"tensor 1 'w' has {4 * count} bytes of data; expected 16"


def test_a_shape_below_zero(tmp_path: Path) -> None:
    assert damage(of(T("w", [2, -2])), tmp_path) == "tensor 1 'w' has the invalid shape [2, -2]"
    assert second(of(T("w", [2**31 - 1], np.int8)), tmp_path).shape == (2**31 - 1,)  # the largest
    assert damage(of(T("w", [0, -2])), tmp_path) == "tensor 1 'w' has the invalid shape [0, -2]"


def test_a_buffer_that_is_not_there(tmp_path: Path) -> None:
    data = of(T("w", [4], data=np.ones(4)))
    assert second(changed(data, field(BUFFER), "<I", 0), tmp_path).data is None
    assert damage(changed(data, field(BUFFER), "<I", 2), tmp_path) == "tensor 1 'w' has buffer 2, but there are 2"


def behind(start: int, size: int) -> bytes:
    """Return a model of one constant whose data lie behind the flatbuffer, `start` bytes from where they should."""
    import flatbuffers

    def build(offset: int) -> bytes:
        b = flatbuffers.Builder(1024)
        tflite.BufferStart(b)
        nothing = tflite.BufferEnd(b)
        tflite.BufferStart(b)
        b.PrependUint64Slot(1, offset, 0)
        b.PrependUint64Slot(2, size, 0)
        held = tflite.BufferEnd(b)
        shape, name = b.CreateNumpyVector(np.array([4], np.int32)), b.CreateString("w")
        tflite.TensorStart(b)
        tflite.TensorAddShape(b, shape)
        tflite.TensorAddName(b, name)
        tflite.TensorAddType(b, tflite.TensorType.INT8)
        tflite.TensorAddBuffer(b, 1)
        tensor = tflite.TensorEnd(b)
        tflite.SubGraphStartTensorsVector(b, 1)
        b.PrependUOffsetTRelative(tensor)
        tensors = b.EndVector()
        outputs = b.CreateNumpyVector(np.array([0], np.int32))
        tflite.SubGraphStart(b)
        tflite.SubGraphAddTensors(b, tensors)
        tflite.SubGraphAddOutputs(b, outputs)
        graph = tflite.SubGraphEnd(b)
        tflite.ModelStartSubgraphsVector(b, 1)
        b.PrependUOffsetTRelative(graph)
        graphs = b.EndVector()
        tflite.ModelStartBuffersVector(b, 2)
        b.PrependUOffsetTRelative(held)
        b.PrependUOffsetTRelative(nothing)
        buffers = b.EndVector()
        tflite.ModelStart(b)
        tflite.ModelAddVersion(b, 3)
        tflite.ModelAddSubgraphs(b, graphs)
        tflite.ModelAddBuffers(b, buffers)
        b.Finish(tflite.ModelEnd(b), b"TFL3")
        return bytes(b.Output())

    whole = len(build(10_000))
    return build(whole + start) + bytes([7, 8, 9, 10])


def test_data_behind_the_flatbuffer(tmp_path: Path) -> None:
    (tensor,) = read(saved(behind(0, 4), tmp_path)).tensors
    assert tensor.data is not None and tensor.data.tolist() == [7, 8, 9, 10]
    for start, size in ((1, 4), (0, 5), (10_000, 4), (2**40, 4), (0, 2**40)):
        assert damage(behind(start, size), tmp_path) == "the data of tensor 0 'w' is outside the file"


def quantized(scale: Any, zero: int = 3, axis: int = 0) -> bytes:
    return of(T("w", [2, 4], np.int8, scale, zero, axis, np.ones([2, 4])))


def test_one_zero_point_is_for_all_scales(tmp_path: Path) -> None:
    tensor = second(changed(quantized([0.1, 0.2]), length(ZERO_POINT), "<I", 1), tmp_path)
    assert (tensor.zero_point.tolist(), tensor.axis, tensor.is_quantized) == ([3, 3], 0, True)
    tensor = second(changed(quantized([0.1, 0.2]), length(ZERO_POINT), "<I", 0), tmp_path)
    assert tensor.zero_point.tolist() == [0, 0]
    assert second(quantized([0.1] * 4, axis=1), tmp_path).axis == 1


def test_scales_that_quantize_nothing(tmp_path: Path) -> None:
    for data in (quantized(0.0), quantized([0.1, 0.0]), changed(quantized(0.1), length(SCALE), "<I", 0)):
        tensor = second(data, tmp_path)
        assert not tensor.is_quantized and tensor.scale.size == tensor.zero_point.size == 0
    assert not second(of(T("w", [4], np.float32, 0.1)), tmp_path).is_quantized


def test_the_axis_of_a_vector_is_its_only_one(tmp_path: Path) -> None:
    """Converters have written the axis of the weights into the bias; TFLite Micro does not look at it."""
    for axis in (3, 1, -1):
        tensor = second(of(T("w", [4], np.int32, [0.1, 0.2, 0.3, 0.4], 0, axis, np.ones(4))), tmp_path)
        assert tensor.is_quantized and tensor.axis == 0


def test_scales_that_do_not_fit_the_shape(tmp_path: Path) -> None:
    wrong = "tensor 1 'w' [2, 4] has {} scales, {} zero points"
    assert damage(quantized([0.1] * 3), tmp_path) == wrong.format(3, 3)
    assert damage(quantized([0.1] * 2, axis=1), tmp_path) == wrong.format(2, 2)
    assert damage(quantized([0.1] * 2, axis=2), tmp_path) == wrong.format(2, 2)
    assert damage(quantized([0.1] * 4, axis=-1), tmp_path) == wrong.format(4, 4)
    assert damage(of(T("w", [4], np.int32, [0.1] * 3, 0, 3, np.ones(4))), tmp_path) == (
        "tensor 1 'w' [4] has 3 scales, 3 zero points"
    )
    fewer = changed(quantized([0.1] * 4, axis=1), length(ZERO_POINT), "<I", 3)
    assert damage(fewer, tmp_path) == wrong.format(4, 3)


def test_a_file_without_outputs_or_of_another_version(tmp_path: Path) -> None:
    tensors = [T("x", [4]), T("y", [4])]
    assert damage(model(tensors, [Op("EXP", ["x"], ["y"])], ["x"], []), tmp_path) == "its first subgraph has no outputs"
    with pytest.raises(ModelError, match=r"x \(EXP 0\)   it has no output"):
        load(saved(model(tensors, [Op("EXP", ["x"], [])], ["x"], ["x"]), tmp_path))
    data = bytearray(model(tensors, [Op("EXP", ["x"], ["y"])], ["x"], ["y"]))
    root = tflite.Model.GetRootAs(bytes(data), 0)
    struct.pack_into("<I", data, root._tab.Pos + root._tab.Offset(4), 2)
    assert damage(bytes(data), tmp_path) == "its schema version is 2; expected 3"


def test_numbers_of_tensors_and_codes_that_there_are_none_of(tmp_path: Path) -> None:
    tensors = [T("x", [4]), T("y", [4])]
    data = model(tensors, [Op("ADD", ["x", ""], ["y"], "AddOptions")], ["x"], ["y"])
    found: Model = read(saved(data, tmp_path))
    assert found.operators[0].inputs == (0, -1)
    graph = tflite.Model.GetRootAs(data, 0).Subgraphs(0)
    operator = graph.Operators(0)
    places = {
        "an input of operator 0 (ADD) is tensor": operator._tab.Vector(operator._tab.Offset(6)),
        "an output of operator 0 (ADD) is tensor": operator._tab.Vector(operator._tab.Offset(8)),
        "an input of the model is tensor": graph._tab.Vector(graph._tab.Offset(6)),
        "an output of the model is tensor": graph._tab.Vector(graph._tab.Offset(8)),
    }
    for words, place in places.items():
        for number in (2, -2, -1):
            new = bytearray(data)
            struct.pack_into("<i", new, place, number)
            if number == -1 and words.startswith("an input of operator"):
                assert read(saved(bytes(new), tmp_path)).operators[0].inputs == (-1, -1)
            else:
                assert damage(bytes(new), tmp_path) == f"{words} {number}, but there are 2"


@pytest.mark.parametrize("code", [2, 3, 255])
def test_codes_of_operators_that_there_are_none_of(code: int, tmp_path: Path) -> None:
    ops = [Op("ADD", ["x", "x"], ["y"], "AddOptions"), Op("RELU", ["y"], ["z"])]
    data = bytearray(model([T(name, [4]) for name in "xyz"], ops, ["x"], ["z"]))
    table = tflite.Model.GetRootAs(data, 0).Subgraphs(0).Operators(1)._tab
    struct.pack_into("<I", data, table.Pos + table.Offset(4), code)
    assert damage(bytes(data), tmp_path) == f"operator 1 has code {code}, but there are 2"


@pytest.mark.parametrize("old", [0, 127])
def test_the_larger_of_an_operators_two_numbers_counts(old: int, tmp_path: Path) -> None:
    """LiteRT takes it so; writers of files may leave the old number, a byte, at 0, which is ADD."""
    tensors = [T("a", [2]), T("b", [2]), T("y", [2])]
    data = bytearray(model(tensors, [Op("MAXIMUM", ["a", "b"], ["y"], "MaximumMinimumOptions", {})], ["a", "b"], ["y"]))
    code = tflite.Model.GetRootAs(data).OperatorCodes(0)
    number = tflite.BuiltinOperator.MAXIMUM
    assert (code._tab.Offset(4), code._tab.Offset(10)) > (0, 0)
    data[code._tab.Pos + code._tab.Offset(4)] = min(old, number)
    path = tmp_path / "m.tflite"
    path.write_bytes(bytes(data))
    assert [node.op for node in load(path).nodes] == ["Max"]
