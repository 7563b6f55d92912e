"""Constants as C: the text of numbers, and models with millions of them."""

import re
from pathlib import Path

import graphs
import numpy as np
import onnx
import pytest
from onnx import helper

import mtool
from mtool.compiler.codegen.weights import weights_source
from mtool.compiler.ir import DType
from mtool.compiler.ir.scalar import literal

ODD = [0.0, -0.0, 1.0, -1.5, 1e15, 1e16, 123456792.0, 1e-4, 1e-5, 1e-42, 3.4e38, 1 / 3]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("also", [[], [np.nan, np.inf, -np.inf]])
def test_floats_are_written_as_literals_are(dtype: type, also: list[float]) -> None:
    bits = np.random.default_rng(0).integers(0, 2**16, 2000, dtype=np.uint16)
    drawn = bits.view(np.float16).astype(dtype)  # of every magnitude
    data = np.concatenate([drawn[np.isfinite(drawn)], np.array(ODD + also, dtype)])
    text = "\n".join(weights_source("", "m", {"w": data}))
    written = re.sub(r"\s", "", text.partition("{")[2].partition("}")[0]).strip(",").split(",")
    assert written == [literal(number, DType.of(data.dtype)).c for number in data.tolist()]


def test_a_model_of_ten_megabytes(tmp_path: Path) -> None:
    """Layers of 512 x 512 floats; equal shapes share their C function, and every weight is in the file once."""
    random = np.random.default_rng(0)
    constants = {f"w{n}": (random.normal(size=(512, 512)) / 16).astype(np.float32) for n in range(10)}
    nodes = []
    for n in range(10):
        nodes += [helper.make_node("MatMul", [f"r{n}", f"w{n}"], [f"h{n}"])]
        nodes += [helper.make_node("Relu", [f"h{n}"], [f"r{n + 1}"])]
    path = tmp_path / "big.onnx"
    onnx.save(graphs.model(nodes, {"r0": (np.float32, (1, 512))}, ["r10"], constants), path)
    assert path.stat().st_size > 10e6
    compiled = mtool.compile(path, board="mps2_an386")
    assert compiled.manifest.parameters == 10 * 512 * 512  # no biases, though the kernel's rows have zeros for them
    assert compiled.manifest.constant_bytes == 4 * 10 * 512 * 513
    assert len({operator.function for operator in compiled.manifest.operators}) == 1
    assert len(compiled.files["big_weights.bin"]) == compiled.manifest.constant_bytes
