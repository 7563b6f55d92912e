"""Any bytes as a model (.onnx, .tflite) or a module (.mtm) end in a graph or in one of mtool's errors.

With atheris this is a fuzz target, as OSS-Fuzz builds it; without, it replays its arguments: files or folders.
"""

import contextlib
import importlib.util
import sys
import tempfile
from pathlib import Path

ATHERIS = importlib.util.find_spec("atheris")
if ATHERIS is not None:
    import atheris

with atheris.instrument_imports(include=["mtool"]) if ATHERIS is not None else contextlib.nullcontext():
    from mtool.compiler.frontend import load
    from mtool.errors import MtoolError
    from mtool.manifest.modules.format import MAGIC, unpack


def take(data: bytes) -> None:
    """Read bytes as what they begin like."""
    with tempfile.TemporaryDirectory(prefix="mtool-fuzz-") as folder, contextlib.suppress(MtoolError):
        path = Path(folder) / ("model.tflite" if data[4:8] == b"TFL3" else "model.onnx")
        if data.startswith(MAGIC):
            unpack(data)
        else:
            path.write_bytes(data)
            load(path)


def main() -> None:
    """Fuzz, or replay files."""
    if ATHERIS is not None:
        atheris.Setup(sys.argv, take)
        atheris.Fuzz()
    for given in map(Path, sys.argv[1:]):
        for file in sorted(given.rglob("*")) if given.is_dir() else [given]:
            take(file.read_bytes())


if __name__ == "__main__":
    main()
