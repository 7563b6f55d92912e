"""Samples: how a file's arrays match tensors, and errors."""

import zipfile
from pathlib import Path

import numpy as np
import pytest

from mtool.base.errors import UsageError
from mtool.manifest import SizeRange, Tensor
from mtool.stages import samples


def tensor(name: str, dtype: str, *shape: int, scale: float | None = None, zero_point: int = 0) -> Tensor:
    return Tensor(
        name=name,
        c_name=name.replace(":", "_"),
        dtype=dtype,
        shape=shape,
        bytes=np.dtype(dtype).itemsize * int(np.prod(shape)),
        arena_offset=0,
        scale=None if scale is None else (scale,),
        zero_point=None if scale is None else (zero_point,),
    )


IMAGE = tensor("image:0", "int8", 1, 3, 2)
MASK = tensor("mask", "bool", 4)


def save(folder: Path, **arrays: object) -> Path:
    path = folder / "x.npz"
    np.savez(path, **{name: np.asarray(array) for name, array in arrays.items()})  # type: ignore[arg-type]
    return path


@pytest.mark.parametrize("shape", [(1, 3, 2), (3, 2), (5, 1, 3, 2), (5, 3, 2)])
def test_one_or_more_samples_with_or_without_the_batch(tmp_path: Path, shape: tuple[int, ...]) -> None:
    data = np.arange(np.prod(shape), dtype=np.int8).reshape(shape)
    for key in ("x", "x0", "image_0"):
        read = samples.inputs_of(save(tmp_path, **{key: data, "other": [1.0]}), [IMAGE])
        assert [sample["image:0"].shape for sample in read] == [(1, 3, 2)] * (data.size // 6)
        np.testing.assert_array_equal(np.stack([sample["image:0"] for sample in read]).reshape(-1), data.reshape(-1))


def test_a_npy_file_is_the_first_input(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.ones((1, 3, 2), np.int8))
    assert len(samples.inputs_of(path, [IMAGE])) == 1


def test_a_golden_file_with_arrays_beyond_the_models(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    one = np.zeros((1, 3, 2), np.int8)
    known = {"x0": one, "y0": one, "y0_tflite_ref": one, "pre_softmax": one}
    samples.golden_of(save(tmp_path, **known), [IMAGE], [IMAGE])
    assert not caplog.records
    samples.golden_of(save(tmp_path, **known, x1=one, y3=one), [IMAGE], [IMAGE])
    (reported,) = [record.getMessage() for record in caplog.records]
    assert "unused arrays: x1, y3; the model has 1 input and 1 output" in reported


def test_a_golden_file_has_an_axis_of_samples(tmp_path: Path) -> None:
    path = save(
        tmp_path, x0=np.zeros((2, 1, 3, 2), np.int8), x1=np.zeros((2, 4), bool), y0=np.ones((2, 1, 3, 2), np.int8)
    )
    inputs, outputs = samples.golden_of(path, [IMAGE, MASK], [IMAGE])
    assert [set(sample) for sample in inputs] == [{"image:0", "mask"}] * 2
    assert outputs[1]["image:0"].shape == (1, 3, 2)
    one, _ = samples.golden_of(save(tmp_path, x0=np.zeros((3, 2), np.int8)), [IMAGE], [])
    assert [sample["image:0"].shape for sample in one] == [(1, 3, 2)]
    with pytest.raises(UsageError, match="has the wrong shape"):
        samples.golden_of(save(tmp_path, x0=np.zeros((2, 3), np.int8)), [IMAGE], [])


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x0": np.zeros((1, 3, 2), np.float32)}, "has the wrong type"),
        ({"x0": np.zeros((1, 2, 3), np.int8)}, "has the wrong shape"),
        ({"y": np.zeros((1, 3, 2), np.int8)}, "has no array 'image:0'"),
        ({"x0": np.zeros((0, 1, 3, 2), np.int8)}, "same number of samples"),
    ],
)
def test_a_wrong_array_is_reported(tmp_path: Path, arrays: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        samples.inputs_of(save(tmp_path, **arrays), [IMAGE])


@pytest.mark.parametrize("name", ["x0", "x0.npy", "notes.txt"])
def test_an_archive_of_something_else_is_reported(tmp_path: Path, name: str) -> None:
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, "no array")
    with pytest.raises(UsageError, match="damaged, or not a NumPy file of plain arrays"):
        samples.read(path)


def test_inputs_of_different_lengths_are_reported(tmp_path: Path) -> None:
    path = save(tmp_path, x0=np.zeros((2, 3, 2), np.int8), x1=np.zeros((3, 4), bool))
    with pytest.raises(UsageError, match="same number of samples"):
        samples.inputs_of(path, [IMAGE, MASK])


@pytest.mark.parametrize("content", [b"", b"text", b"PK\x03\x04 cut off", b"\x93NUMPY\x01\x00"])
def test_a_file_that_is_not_numpy_is_reported(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.npz"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="damaged, or not a NumPy file"):
        samples.read(path)


def test_objects_are_never_unpickled(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(UsageError, match="damaged, or not a NumPy file"):
        samples.read(path)


def test_drawn_samples_are_the_same_each_time_and_cover_the_range() -> None:
    tensors = [
        tensor("q", "int8", 4000),
        tensor("u", "uint8", 4000, scale=0.1, zero_point=3),
        tensor("f", "float32", 4000, scale=0.5, zero_point=-28),
        tensor("g", "float32", 4000),
        tensor("i", "int64", 4000),
        tensor("b", "bool", 4000),
    ]
    drawn, again = (samples.seeded(tensors, count=1, seed=3)[0] for _ in range(2))
    for each in tensors:
        np.testing.assert_array_equal(drawn[each.name], again[each.name])
        assert drawn[each.name].dtype == each.dtype and drawn[each.name].shape == each.shape
    assert (drawn["q"].min(), drawn["q"].max()) == (-128, 127)
    assert (drawn["u"].min(), drawn["u"].max()) == (0, 255)
    assert -50 <= drawn["f"].min() < -49 and 77 < drawn["f"].max() <= 77.5
    assert set(drawn["i"].tolist()) == {0, 1}


def test_drawn_indices_are_inside_of_the_smallest_size() -> None:
    """An index of 1 is none of a dimension that has one row."""
    size = tensor("n", "int32").model_copy(update={"range": SizeRange(symbol="size_n", dimension="n", least=1, most=4)})
    first, least = samples.seeded([tensor("i", "int64", 400), size], count=2, seed=3)
    assert set(first["i"].tolist()) == {0, 1} and set(least["i"].tolist()) == {0}


def test_varied_samples_have_zeros_and_both_limits_but_no_wild_index() -> None:
    tensors = [tensor("a", "int8", 4), tensor("f", "float32", 4), tensor("i", "int32", 4), tensor("b", "bool", 4)]
    found = samples.varied(tensors, count=5)
    assert len(found) == 5
    for name, values in (("a", (0, -128, 127)), ("f", (0, -1000, 1000)), ("b", (False, False, True))):
        assert [sample[name][0] for sample in found[:3]] == [*values]
    assert all(sample["i"].min() >= 0 and sample["i"].max() < 4 for sample in found)
    assert len({sample["f"].tobytes() for sample in found}) == 5
    quantized = tensor("q", "float32", 4, scale=0.5, zero_point=-128)
    assert [sample["q"][0] for sample in samples.varied([quantized], count=3)] == [0, 0, 127.5]
