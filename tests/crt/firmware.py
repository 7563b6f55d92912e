"""The test firmware: the runtime, a handwritten model (crt/tests/mt_test_model.c) and a pipe as the port."""

import functools
import tempfile
from pathlib import Path

import numpy as np

from mtool.manifest import Manifest, Tensor
from tests import sanitized

CRT = Path(__file__).parents[2] / "crt"
SOURCES = sorted((CRT / "src").glob("*.c"))
MODULES = ("mt_test_main.c", "mt_test_model.c", "mt_test_modules.c")
"""The server and its model, and a loader of modules."""

STRICT = ["-std=c99", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wpedantic", "-Werror", f"-I{CRT / 'include'}"]

# What of the runtime a test program needs; those that are not here need all of it.
PARTS = {
    "mt_test_framing.c": ("mt_cobs", "mt_crc32", "mt_link"),
    "mt_test_graph.c": ("mt_graph", "mt_json"),
    "mt_test_packed.c": (),
    "mt_test_siphash.c": ("mt_siphash",),
}

MODEL_HASH = "00112233445566778899aabbccddeeff" * 2
BUILD_HASH = "feed" * 16
UNREADABLE = "TEST_UNREADABLE"
"""Instead of MT_MODULES_READABLE, as in usual firmware."""

HANG, LEAVE, GO_DEEP, LOG, FAIL = 123, 124, 125, 126, 127


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="mtool-test-")


@functools.cache
def build(*sources: str, defines: tuple[str, ...] = ()) -> Path:
    """Build the runtime with files of crt/tests, under the sanitizers; by default the server and its model."""
    names = sources or ("mt_test_main.c", "mt_test_model.c")
    target = Path(_folder().name) / f"firmware{abs(hash((names, defines)))}"
    parts = PARTS.get(names[0])
    runtime = [path for path in SOURCES if parts is None or path.stem in parts]
    if names == MODULES:
        runtime += [path for path in (CRT / "modules").glob("*.c") if path.stem != "mt_module_native"]
        defines = ("TEST_MODULES", *(() if UNREADABLE in defines else ("MT_MODULES_READABLE",)), *defines)
    files = [str(path) for path in [*runtime, *(CRT / "tests" / name for name in names)]]
    return sanitized.build(files, target, [*STRICT, *(f"-D{name}" for name in defines)])


def _tensor(name: str, dtype: str, *shape: int) -> Tensor:
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return Tensor(name=name, c_name=name, dtype=dtype, shape=shape, bytes=size, arena_offset=None)


MANIFEST = Manifest(
    mtool_version="0",
    model="test_model",
    model_file="test_model.onnx",
    model_hash=MODEL_HASH,
    io="arena",
    inputs=(_tensor("x0", "int8", 3, 100), _tensor("x1", "float32", 5), _tensor("x2", "uint8", 200, 200)),
    outputs=(
        _tensor("y0", "int32", 3, 100),
        _tensor("y1", "float32", 5),
        _tensor("y2", "uint32", 1),
        _tensor("y3", "uint8", 200, 200),
    ),
    macs=1000,
    parameters=0,
    arena_bytes=0,
    arena_bound_bytes=0,
    constant_bytes=0,
    constants=(),
    symbols={},
    operators=(),
)
