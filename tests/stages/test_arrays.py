"""Malformed array files, and special files: refused before they are read or waited for."""

import os
import resource
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.lib import format as npy

from mtool.base.errors import UsageError
from mtool.manifest import Tensor
from mtool.quantization import dataset
from mtool.stages import arrays, samples

SMALL = Tensor(name="x", c_name="x", dtype="float32", shape=(1, 4), bytes=16, arena_offset=0)


@pytest.fixture
def peak() -> Iterator[None]:
    """Bound the address space, so that what is read before it is looked at fails as it would on a small machine."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * os.sysconf("SC_PAGE_SIZE") + (64 << 20), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def header(shape: tuple[int, ...], dtype: str = "<f4") -> bytes:
    """Return a .npy file without its data."""
    from io import BytesIO

    made = BytesIO()
    npy.write_array_header_1_0(made, {"descr": dtype, "fortran_order": False, "shape": shape})
    return made.getvalue()


def archive(path: Path, members: dict[str, tuple[tuple[int, ...], int]]) -> Path:
    """Write a compressed .npz of zeros: of each member its shape, and how many bytes there are."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
        for name, (shape, count) in members.items():
            with file.open(f"{name}.npy", "w", force_zip64=True) as member:
                member.write(header(shape))
                while count:
                    count -= member.write(bytes(min(count, 1 << 24)))
    return path


@pytest.mark.usefixtures("peak")
@pytest.mark.parametrize("name", ["x", "other"])
def test_a_header_that_claims_more_than_there_is(name: str, tmp_path: Path) -> None:
    path = archive(tmp_path / "x.npz", {name: ((1 << 30, 1, 4), 64)})
    with pytest.raises(UsageError, match="damaged, or not a NumPy file of plain arrays"):
        samples.inputs_of(path, [SMALL])
    path = tmp_path / "x.npy"
    path.write_bytes(header((1 << 30, 1, 4)) + bytes(64))
    with pytest.raises(UsageError, match="damaged, or not a NumPy file of plain arrays"):
        samples.inputs_of(path, [SMALL])


@pytest.mark.usefixtures("peak")
def test_a_shape_is_looked_at_before_the_data_are_unpacked(tmp_path: Path) -> None:
    path = archive(tmp_path / "x.npz", {"x": ((3, 1 << 23), 3 << 25)})
    with pytest.raises(UsageError, match="has the wrong shape"):
        samples.inputs_of(path, [SMALL])
    with pytest.raises(UsageError, match="has no array"):
        samples.golden_of(path, [SMALL], [SMALL])


@pytest.mark.usefixtures("peak")
def test_samples_that_unpack_to_far_more_than_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "UNPACKED_BYTES", 1 << 26)
    path = archive(tmp_path / "x.npz", {"x": ((3 << 21, 1, 4), 3 << 25)})
    for read in (lambda: samples.inputs_of(path, [SMALL]), lambda: samples.read(path)):
        with pytest.raises(UsageError, match=r"'x' unpacks from [0-9]{3},[0-9]{3} to 100,663,296 bytes\n"):
            read()


def test_unneeded_data_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, x=np.ones((2, 4), np.float32), labels=np.arange(1 << 16))
    data = bytearray(path.read_bytes())
    data[data.index(np.arange(9, 99).tobytes())] ^= 1  # its checksum is wrong then
    path.write_bytes(data)
    assert len(samples.inputs_of(path, [SMALL])) == 2
    with pytest.raises(UsageError, match="damaged, or not a NumPy file"):
        arrays.stored(path)["labels"].load()


def test_a_golden_file_may_hold_one_sample(tmp_path: Path) -> None:
    """As an array of the tensor's own shape, or some samples along a first axis."""
    one = np.arange(4, dtype=np.float32).reshape(SMALL.shape)
    for array, count in ((one, 1), (np.stack([one] * 3), 3)):
        np.savez(tmp_path / "g.npz", x0=array, y0=array)
        given, wanted = samples.golden_of(tmp_path / "g.npz", [SMALL], [SMALL])
        assert len(given) == len(wanted) == count and all((sample["x"] == one).all() for sample in given)


def special(kind: str, folder: Path) -> Path:
    if kind == "pipe":
        os.mkfifo(folder / "pipe.npy")
        return folder / "pipe.npy"
    return {"folder": folder, "device": Path("/dev/zero")}[kind]


@pytest.mark.timeout(20)
@pytest.mark.parametrize(("kind", "said"), [("pipe", "a pipe"), ("folder", "a folder"), ("device", "a device")])
def test_what_has_no_end_is_not_opened(kind: str, said: str, tmp_path: Path) -> None:
    path = special(kind, tmp_path)
    reads: list[Any] = [
        lambda: samples.inputs_of(path, [SMALL]),
        lambda: samples.golden_of(path, [SMALL], [SMALL]),
        lambda: dataset.labels_of(path),
    ]
    for read in reads:
        with pytest.raises(UsageError, match=f"is {said}, not a file"):
            read()


@pytest.mark.timeout(20)
def test_a_pipe_among_the_data_is_left_out(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.npy")
    os.mkfifo(tmp_path / "b.png")
    np.save(tmp_path / "c.npy", np.ones((1, 4), np.float32))
    assert len(dataset.read(tmp_path, [SMALL]).samples) == 1


def test_a_text_of_labels_has_a_size(tmp_path: Path) -> None:
    path = tmp_path / "labels.txt"
    path.write_text("1, 2\n3")
    assert dataset.labels_of(path).tolist() == [1, 2, 3]
    with path.open("wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(UsageError, match="is larger than 64 MB"):
        dataset.labels_of(path)
