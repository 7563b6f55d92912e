"""A small generated model for other tests: weights, float arithmetic, and a state that starts as zeros.

`y = s = s + exp(x w + b)`: the state `s` shows whether the arena was cleared, the rest whether the weights are there.
"""

import functools
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from mtool import boards
from mtool.base.filetree import FileTree
from mtool.boards import Board
from mtool.compiler.compilation import compile_model, target_of
from mtool.compiler.kernels.target import Target
from mtool.compiler.request import Request
from mtool.manifest import Manifest

INPUT = np.array([[0.5, -1.0, 0.25, 2.0]], np.float32)
RAN_WELL = 42
GIVEN = Request(states=(("s", "before"),))


def model() -> onnx.ModelProto:
    rng = np.random.default_rng(5)
    graph = helper.make_graph(
        [
            helper.make_node("Gemm", ["x", "w", "b"], ["h"], "dense"),
            helper.make_node("Exp", ["h"], ["e"], "exponential"),
            helper.make_node("Add", ["before", "e"], ["s"], "sum"),
            helper.make_node("Neg", ["s"], ["y"], "result"),
        ],
        "toy",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in ("x", "before")],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in ("y", "s")],
        [
            numpy_helper.from_array(rng.uniform(-0.5, 0.5, (4, 4)).astype(np.float32), "w"),
            numpy_helper.from_array(rng.uniform(-0.5, 0.5, 4).astype(np.float32), "b"),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def write(path: Path) -> Path:
    onnx.save(model(), str(path))
    return path


def compiled(board: Board | None = None) -> tuple[FileTree, Manifest]:
    """Return the model's files and its manifest for a board; for this computer, if none is named."""
    return _compiled(target_of(board or boards.get("host")))


@functools.cache
def _compiled(target: Target) -> tuple[FileTree, Manifest]:
    board = boards.get("host").model_copy(update={"cpu": target.cpu, "features": target.features})
    with tempfile.TemporaryDirectory() as folder:
        made = compile_model(write(Path(folder) / "toy.onnx"), board, GIVEN)
    return made.files, made.manifest


def check_c() -> str:
    """Return a main that runs two steps and exits with RAN_WELL if .data, weights, arithmetic and state are right."""
    reference = ReferenceEvaluator(model())
    state, rows = np.zeros((1, 4), np.float32), []
    for _ in range(2):
        y, state = reference.run(None, {"x": INPUT, "before": state})
        rows.append(y)
    expected = ", ".join("{" + ", ".join(f"{value:.8f}f" for value in row.flat) + "}" for row in rows)
    values = ", ".join(f"{value}f" for value in INPUT.flat)
    return f"""#include <math.h>
#include "toy.h"

int main(void);
static volatile int32_t status = {RAN_WELL - 2}; /* in .data */

int main(void)
{{
    static const float input[4] = {{{values}}};
    static const float expected[2][4] = {{{expected}}};
    for (int32_t step = 0; step < 2; ++step) {{
        for (int32_t i = 0; i < 4; ++i) {{
            toy_arena_inputs.x[i] = input[i];
        }}
        if (toy_run(&toy_arena_inputs, &toy_arena_outputs) != 0) {{
            return 1;
        }}
        for (int32_t i = 0; i < 4; ++i) {{
            if (fabsf(toy_arena_outputs.y[i] - expected[step][i]) > 1e-4f) {{
                return 2;
            }}
        }}
        ++status;
    }}
    return (int)status;
}}
"""
