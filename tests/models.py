"""The shared models and their golden data, which are beside a checkout and never copied into it."""

from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parents[2] / "shared" / "models"
_KINDS = {
    "kws": "float32 weightonly_int8 int8_qdq int8_qlinearconv int8_ortqdq int8_qop",
    "ic": "float32 float32_nchw int8_qdq int8_qdq_nchw int8_qlinearconv int8_ortqdq int8_qop",
    "vww": "float32 float32_nchw int8_qdq int8_qdq_nchw int8_ortqdq",
    "ad": "float32 int8_qdq int8_ortqdq int8_qop",
}
ALL = tuple(f"{model}/{model}_{kind}" for model, kinds in _KINDS.items() for kind in kinds.split())

needed = pytest.mark.skipif(
    not FOLDER.is_dir(), reason=f"the shared models are not at {FOLDER.name} beside the checkout"
)


def path(name: str) -> Path:
    """Return the path of a shared model ("kws/kws_int8_qdq")."""
    return FOLDER / f"{name}.onnx"


def golden(name: str) -> Path:
    """Return the path of its golden inputs and outputs."""
    return FOLDER / f"{name}.golden.npz"


def first_golden(name: str, samples: int, folder: Path) -> Path:
    """Write the first samples of a shared model's golden data into a folder; return the path."""
    with np.load(golden(name)) as data:
        path = folder / f"{samples}.golden.npz"
        np.savez(path, **{array: data[array][:samples] for array in data})
    return path
