"""A model's file: whether it is one, and its format."""

from pathlib import Path

from mtool.base.errors import UsageError

BLOCK_BYTES = 1 << 20
FLATBUFFER = b"TFL3"  # the file identifier of TFLite models, at byte 4


def check_is_file(path: Path) -> None:
    """Raise an error for a missing file and for anything but a file, such as a pipe, which would block."""
    if not path.is_file():
        kind = "a folder" if path.is_dir() else "a pipe" if path.is_fifo() else "a device or a socket"
        problem = f"{path} is {kind}, not a file" if path.exists() else f"there is no file {path}"
        raise UsageError(problem, hint="give the path of an .onnx or .tflite file")


def is_flatbuffer(path: Path) -> bool:
    """Whether a file begins like a TFLite model."""
    try:
        if not path.is_file():  # opening a pipe would block
            return False
        with path.open("rb") as file:
            return file.read(8)[4:] == FLATBUFFER
    except OSError:
        return False


def is_tflite(path: Path) -> bool:
    """Whether a file has a TFLite model's name or contents."""
    return path.suffix.lower() == ".tflite" or is_flatbuffer(path)


def names_locations(path: Path) -> bool:
    """Whether a file contains the word that every tensor with external data has."""
    word = b"location"
    end = b""  # of the block before
    with path.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            if word in end + block:
                return True
            end = block[-len(word) :]
    return False
