"""The generated C of a small model, under review: `make golden` writes it anew, the diff is read by a person."""

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from graphs import HOST, NO_FPU, compiled, model
from onnx import helper

from mtool import codegen

GOLDEN = Path(__file__).parents[1] / "golden"


def small_model() -> object:
    """A quantised convolution with a residual add, a pool, a dense layer and a softmax."""
    rng = np.random.default_rng(3)

    def q(name: str, scale: float, zero: int) -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.generic]]]:
        return {f"{name}_s": np.asarray(scale, np.float32), f"{name}_z": np.asarray(zero, np.int8)}

    constants = {
        **q("x", 0.05, -3), **q("c", 0.1, -128), **q("d", 0.12, 5), **q("r", 0.15, -128), **q("g", 0.15, -128),
        **q("h", 0.2, 4), **q("y", 1 / 256, -128),
        "w1": rng.integers(-127, 128, (4, 2, 3, 3)).astype(np.int8),
        "w1_s": np.linspace(0.01, 0.02, 4).astype(np.float32),
        "w2": rng.integers(-127, 128, (4, 1, 3, 3)).astype(np.int8),
        "w2_s": np.linspace(0.02, 0.03, 4).astype(np.float32),
        "w3": rng.integers(-127, 128, (4, 3)).astype(np.int8), "w3_s": np.asarray(0.02, np.float32),
        "z4": np.zeros(4, np.int8), "z0": np.int8(0), "flat": np.array([1, 4], np.int64),
    }  # fmt: skip

    def dq(value: str, scale: str, zero: str, out: str, **attrs: int) -> object:
        return helper.make_node("DequantizeLinear", [value, scale, zero], [out], **attrs)

    def quant(value: str, name: str, out: str) -> list[object]:
        return [
            helper.make_node("QuantizeLinear", [value, f"{name}_s", f"{name}_z"], [f"{out}_q"]),
            dq(f"{out}_q", f"{name}_s", f"{name}_z", out),
        ]

    nodes = [
        dq("x", "x_s", "x_z", "xf"),
        dq("w1", "w1_s", "z4", "w1f", axis=0),
        dq("w2", "w2_s", "z4", "w2f", axis=0),
        dq("w3", "w3_s", "z0", "w3f"),
        helper.make_node("Conv", ["xf", "w1f"], ["conv"], pads=[1, 1, 1, 1], name="stem/conv"),
        helper.make_node("Relu", ["conv"], ["relu"], name="stem/relu"),
        *quant("relu", "c", "cf"),
        helper.make_node("Conv", ["cf", "w2f"], ["dw"], pads=[1, 1, 1, 1], group=4, name="block/depthwise"),
        *quant("dw", "d", "df"),
        helper.make_node("Add", ["cf", "df"], ["sum"], name="block/add"),
        helper.make_node("Relu", ["sum"], ["sumr"], name="block/relu"),
        *quant("sumr", "r", "rf"),
        helper.make_node("GlobalAveragePool", ["rf"], ["pool"], name="head/pool"),
        *quant("pool", "g", "gf"),
        helper.make_node("Reshape", ["gf", "flat"], ["vec"], name="head/flatten"),
        helper.make_node("MatMul", ["vec", "w3f"], ["logits"], name="head/dense"),
        *quant("logits", "h", "hf"),
        helper.make_node("Softmax", ["hf"], ["probs"], name="head/softmax"),
        helper.make_node("QuantizeLinear", ["probs", "y_s", "y_z"], ["y"]),
    ]
    return model(nodes, {"x": (np.int8, (1, 2, 6, 6))}, ["y"], constants)  # type: ignore[arg-type]


@pytest.mark.parametrize(("target", "folder"), [(HOST, "small"), (NO_FPU, "small_no_fpu")])
def test_generated_c_is_what_was_reviewed(target: object, folder: str) -> None:
    files, _ = codegen.generate(compiled(small_model(), target, "small"), "small.onnx", "ab" * 32)  # type: ignore[arg-type]
    place = GOLDEN / folder
    if os.environ.get("MTOOL_UPDATE_GOLDEN"):
        place.mkdir(parents=True, exist_ok=True)
        for name in files:
            (place / name).write_bytes(files[name])
    for name in files:
        assert files.text(name) == (place / name).read_text(), f"{name} has changed: read the diff, then `make golden`"


@pytest.mark.parametrize(
    ("chosen", "folder"),
    [
        (codegen.conventions("packed", "packed"), "small_packed"),
        (codegen.conventions("c", "values"), "small_values"),
        (codegen.conventions("step", "pointers"), "small_step"),
        (codegen.conventions(executor="graph"), "small_graph"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_other_conventions_change_is_what_was_reviewed(chosen: codegen.Conventions, folder: str) -> None:
    plan = compiled(small_model(), HOST, "small")  # type: ignore[arg-type]
    plain, _ = codegen.generate(plan, "small.onnx", "ab" * 32)
    files, _ = codegen.generate(plan, "small.onnx", "ab" * 32, chosen)
    changed = {name: files.text(name) for name in files if name not in plain.files or plain[name] != files[name]}
    place = GOLDEN / folder
    if os.environ.get("MTOOL_UPDATE_GOLDEN"):
        place.mkdir(parents=True, exist_ok=True)
        for name, text in changed.items():
            (place / name).write_text(text)
    assert sorted(path.name for path in place.iterdir()) == sorted(changed)
    for name, text in changed.items():
        assert text == (place / name).read_text(), f"{name} has changed: read the diff, then `make golden`"


def test_the_same_model_gives_the_same_bytes_in_another_process() -> None:
    script = (
        "import sys; sys.path[:0] = ['tests', 'tests/codegen']\n"
        "from test_golden_c import *\n"
        "print(codegen.generate(compiled(small_model(), HOST, 'small'), 'small.onnx', '')[0].digest())"
    )
    root = Path(__file__).parents[2]
    import sys

    digests = {
        subprocess.run(
            [sys.executable, "-c", script],
            cwd=root,
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            stdout=subprocess.PIPE,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1
