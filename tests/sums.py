"""The largest errors of long float sums against float64: mtool's and onnxruntime's (`python tests/sums.py`)."""

import argparse
import ctypes
import math
import subprocess
import tempfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from graphs import HOST, Array, compiled, model
from onnx import TensorProto, helper

from mtool.base import resources
from mtool.compiler import codegen
from mtool.compiler.kernels.target import Target

F, D = np.float32, np.float64
TARGETS = {
    "host": HOST,
    "simd": Target("host", frozenset({"fpu", "simd"})),
    "m4": Target("cortex-m4", frozenset({"dsp", "fpu"})),
    "m55": Target("cortex-m55", frozenset({"dsp", "fpu", "mve"})),
}
LENGTHS = (16, 40, 100, 255, 256, 1000, 5760, 20_000, 100_000)
DRAWS = 1000
ELEMENTS = 2_000_000
"""of an input at a time, about"""


def _random(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.standard_normal(shape).astype(F)


def _large_mean(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return (rng.standard_normal(shape) + 1000).astype(F)


def _cancelling(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """A half that is the other's opposite, mixed, and a thousandth of noise."""
    half = rng.standard_normal((*shape[:-1], (shape[-1] + 1) // 2)) * 100
    both = np.concatenate([half, -half], axis=-1)[..., : shape[-1]]
    return (rng.permuted(both, axis=-1) + rng.standard_normal(shape) / 10).astype(F)


def _huge(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Magnitudes from 1e-6 to 1e6."""
    return (rng.choice([-1.0, 1.0], shape) * 10 ** rng.uniform(-6, 6, shape)).astype(F)


DATA = {"random": _random, "large mean": _large_mean, "cancelling": _cancelling, "huge": _huge}


@dataclass(frozen=True)
class Case:
    """An operator: its model for rows of a length, and the result in float64.

    data: what it is tried with; rows: the most of a run; longest: what is tried; weights: the shapes of its constants.
    """

    build: Callable[[int, int, Mapping[str, Array]], onnx.ModelProto]
    exact: Callable[[Array, Mapping[str, Array]], Array]
    data: tuple[str, ...] = tuple(DATA)
    rows: int = 1000
    longest: int = 100_000
    weights: Callable[[int, np.random.Generator], dict[str, Array]] = field(default=lambda n, rng: {})


def _node(op: str, *inputs: str, domain: str = "", **attrs: Any) -> onnx.NodeProto:
    return helper.make_node(op, list(inputs), ["y"], domain=domain, **attrs)


def _built(
    *nodes: onnx.NodeProto, shape: Callable[[int, int], tuple[int, ...]] = lambda m, n: (m, n), opset: int = 18
) -> Callable[[int, int, Mapping[str, Array]], onnx.ModelProto]:
    def build(m: int, n: int, constants: Mapping[str, Array]) -> onnx.ModelProto:
        return model(list(nodes), {"x": (F, shape(m, n))}, ["y"], dict(constants), opset)

    return build


def _axes(n: int, rng: np.random.Generator) -> dict[str, Array]:
    return {"axes": np.array([1], np.int64)}


def _reduction(op: str, exact: Callable[[Array], Array], data: tuple[str, ...] = tuple(DATA)) -> Case:
    return Case(_built(_node(op, "x", "axes", keepdims=0)), lambda x, w: exact(x), data, weights=_axes)


def _log_sum_exp(x: Array) -> Array:
    top = x.max(-1, keepdims=True)
    return np.log(np.exp(x - top).sum(-1)) + top[..., 0]


def _normal(x: Array, epsilon: float = 1e-5) -> Array:
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon)


def _matrix(channels: int) -> Callable[[int, np.random.Generator], dict[str, Array]]:
    return lambda n, rng: {"w": _random(rng, (n, channels))}


def _conv_weights(n: int, rng: np.random.Generator) -> dict[str, Array]:
    return {"w": _random(rng, (16, n // 4, 4) if n % 4 == 0 else (16, n, 1))}


def _conv_exact(x: Array, w: Mapping[str, Array]) -> Array:
    seen = np.lib.stride_tricks.sliding_window_view(x, w["w"].shape[2], 2)  # [m, channels, pixels, taps]
    return np.einsum("mcpk,ock->mop", seen, w["w"])


def _ones(*shape: int) -> Array:
    return np.ones(shape, F)


def _conv_shape(m: int, n: int) -> tuple[int, ...]:
    return (m, n // 4, 12) if n % 4 == 0 else (m, n, 8)


def _svc_weights(n: int, rng: np.random.Generator) -> dict[str, Array]:
    """Support vectors of which each class has half; coefficients of a trained machine's size, of either sign."""
    return {
        "vectors": _random(rng, (n, 8)),
        "coefficients": (np.repeat([1, -1], [n // 2, n - n // 2]) * rng.uniform(0, 3300, n)).astype(F),
    }


def _svc(m: int, n: int, w: Mapping[str, Array]) -> onnx.ModelProto:
    node = helper.make_node(
        "SVMClassifier", ["x"], ["label", "y"], domain="ai.onnx.ml", kernel_type="RBF", kernel_params=[0.1, 0.0, 3.0],
        classlabels_ints=[0, 1], vectors_per_class=[n // 2, n - n // 2], rho=[0.25],
        support_vectors=w["vectors"].ravel().tolist(), coefficients=w["coefficients"].tolist(),
    )  # fmt: skip
    return _ml(node, m, 8, ("label", TensorProto.INT64, (m,)), ("y", TensorProto.FLOAT, (m, 2)))


def _svr(m: int, n: int, w: Mapping[str, Array]) -> onnx.ModelProto:
    node = helper.make_node(
        "SVMRegressor", ["x"], ["y"], domain="ai.onnx.ml", kernel_type="RBF", kernel_params=[0.1, 0.0, 3.0],
        n_supports=n, rho=[0.25],
        support_vectors=w["vectors"].ravel().tolist(), coefficients=w["coefficients"].tolist(),
    )  # fmt: skip
    return _ml(node, m, 8, ("y", TensorProto.FLOAT, (m, 1)))


def _ml(node: onnx.NodeProto, m: int, features: int, *outputs: tuple[str, int, Any]) -> onnx.ModelProto:
    made = [helper.make_tensor_value_info(*one) for one in outputs]
    source = helper.make_tensor_value_info("x", TensorProto.FLOAT, (m, features))
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(helper.make_graph([node], "g", [source], made), opset_imports=opsets, ir_version=9)


def _decision(x: Array, w: Mapping[str, Array]) -> Array:
    distance = ((x[:, None] - w["vectors"][None]) ** 2).sum(-1)
    return np.exp(np.float64(F(-0.1)) * distance) @ w["coefficients"] + 0.25


def _features(m: int, n: int) -> tuple[int, ...]:
    return (m, 8)


def _svc_exact(x: Array, w: Mapping[str, Array]) -> Array:
    decision = _decision(x, w)
    return np.stack([-decision, decision], 1)


CASES: dict[str, Case] = {
    "ReduceSum": _reduction("ReduceSum", lambda x: x.sum(-1)),
    "ReduceMean": _reduction("ReduceMean", lambda x: x.mean(-1)),
    "ReduceL1": _reduction("ReduceL1", lambda x: np.abs(x).sum(-1)),
    "ReduceL2": _reduction("ReduceL2", lambda x: np.sqrt((x * x).sum(-1))),
    "ReduceSumSquare": _reduction("ReduceSumSquare", lambda x: (x * x).sum(-1)),
    "ReduceLogSum": _reduction("ReduceLogSum", lambda x: np.log(x.sum(-1)), ("large mean",)),
    "ReduceLogSumExp": _reduction("ReduceLogSumExp", _log_sum_exp, ("random", "large mean")),
    "Softmax": Case(
        _built(_node("Softmax", "x", axis=1)), lambda x, w: np.exp(x - _log_sum_exp(x)[:, None]),
        ("random", "large mean"),
    ),
    "LogSoftmax": Case(
        _built(_node("LogSoftmax", "x", axis=1)), lambda x, w: x - _log_sum_exp(x)[:, None], ("random", "large mean")
    ),
    "LayerNormalization": Case(
        _built(_node("LayerNormalization", "x", "s", "b", axis=1)), lambda x, w: _normal(x),
        weights=lambda n, rng: {"s": _ones(n), "b": 0 * _ones(n)},
    ),
    "InstanceNormalization": Case(
        _built(_node("InstanceNormalization", "x", "s", "b"), shape=lambda m, n: (m, 1, n)), lambda x, w: _normal(x),
        weights=lambda n, rng: {"s": _ones(1), "b": 0 * _ones(1)},
    ),
    "GroupNormalization": Case(
        _built(_node("GroupNormalization", "x", "s", "b", num_groups=1), shape=lambda m, n: (m, 1, n), opset=21),
        lambda x, w: _normal(x), weights=lambda n, rng: {"s": _ones(1), "b": 0 * _ones(1)},
    ),
    "MeanVarianceNormalization": Case(
        _built(_node("MeanVarianceNormalization", "x", axes=[1])), lambda x, w: _normal(x, 1e-9)
    ),
    "RMSNormalization": Case(
        _built(_node("RMSNormalization", "x", "s", axis=1), opset=23),
        lambda x, w: x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5), weights=lambda n, rng: {"s": _ones(n)},
    ),
    "LpNormalization": Case(
        _built(_node("LpNormalization", "x", axis=1, p=2)),
        lambda x, w: x / np.sqrt((x * x).sum(-1, keepdims=True)),
    ),
    "Gemm": Case(
        _built(_node("Gemm", "x", "w")), lambda x, w: x @ w["w"], rows=1, longest=20_000, weights=_matrix(8)
    ),
    "MatMul of activations": Case(
        _built(
            helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0]), _node("MatMul", "x", "t"),
            shape=lambda m, n: (m, n)
        ),
        lambda x, w: x @ x.T, rows=32,
    ),
    "Einsum": Case(
        _built(_node("Einsum", "x", "x", equation="ij,kj->ik")), lambda x, w: x @ x.T, rows=32,
    ),
    "Conv": Case(
        _built(_node("Conv", "x", "w"), shape=_conv_shape), _conv_exact, rows=1,
        longest=20_000, weights=_conv_weights,
    ),
    "Conv of one channel": Case(
        _built(_node("Conv", "x", "w"), shape=lambda m, n: (m, 1, n)),
        lambda x, w: x.reshape(len(x), -1) @ w["w"].reshape(1, -1).T[:, :, None][:, :, 0], rows=1,
        weights=lambda n, rng: {"w": _random(rng, (1, 1, n))},
    ),
    "GlobalAveragePool": Case(
        _built(_node("GlobalAveragePool", "x"), shape=lambda m, n: (1, m, n, 1)), lambda x, w: x.mean(-2, keepdims=True)
    ),
    "CumSum": Case(
        _built(_node("CumSum", "x", "axis")), lambda x, w: x.cumsum(-1),
        weights=lambda n, rng: {"axis": np.array(1, np.int64)},
    ),
    "SVMClassifier": Case(_svc, _svc_exact, ("random",), 100, 20_000, _svc_weights),
    "SVMRegressor": Case(_svr, lambda x, w: _decision(x, w)[:, None], ("random",), 100, 20_000, _svc_weights),
}  # fmt: skip


def runner(proto: onnx.ModelProto, target: Target, folder: Path) -> Callable[[Array], Array]:
    """Compile a model's C, optimised and with no sanitizer; what is returned runs it."""
    files, manifest = codegen.generate(compiled(proto, target), "test.onnx", "0" * 64)
    for name in files:
        (folder / name).write_bytes(files[name])
    name = manifest.model
    include = f"-I{resources.path('crt') / 'include'}"
    sources = [folder / f"{name}.c", folder / f"{name}_weights.c"]
    flags = ["-std=c99", "-O2", "-ffp-contract=off", "-shared", "-fPIC", "-DMT_PORTABLE", include]
    subprocess.run(["gcc", *flags, *sources, "-o", folder / "model.so", "-lm"], check=True)
    code = ctypes.CDLL(str(folder / "model.so"))
    arena = (ctypes.c_uint8 * manifest.arena_bytes).in_dll(code, f"{name}_arena")
    places = [ctypes.c_void_p.in_dll(code, f"{name}_arena_{kind}") for kind in ("inputs", "outputs")]
    (tensor,), made = manifest.inputs, manifest.outputs[-1]
    run = getattr(code, f"{name}_run")
    raw = np.frombuffer(arena, np.uint8)

    def result(x: Array) -> Array:
        raw[tensor.arena_offset : tensor.arena_offset + tensor.bytes] = np.ascontiguousarray(x).view(np.uint8).ravel()
        assert run(*(ctypes.byref(place) for place in places)) == 0
        part = raw[made.arena_offset : made.arena_offset + made.bytes].copy()
        return part.view(made.dtype).reshape(made.shape)

    return result


def theirs(proto: onnx.ModelProto) -> Callable[[Array], Array]:
    """Return what runs a model by onnxruntime, in one thread."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, 1
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return lambda x: np.asarray(session.run(["y"], {"x": x})[0])


def largest_errors(
    name: str, kind: str, length: int, draws: int, targets: Mapping[str, Target], seed: int = 0
) -> dict[str, float]:
    """Return the largest error of each target, and of onnxruntime, as a share of the largest result."""
    case, rng = CASES[name], np.random.default_rng([zlib.crc32(f"{name} {kind}".encode()), length, seed])
    rows = max(1, min(case.rows, draws, ELEMENTS // length))
    constants = case.weights(length, rng)
    proto = case.build(rows, length, constants)
    worst: dict[str, float] = {}
    (source,) = proto.graph.input
    shape = tuple(dim.dim_value for dim in source.type.tensor_type.shape.dim)
    with tempfile.TemporaryDirectory() as folder:
        runs = {}
        for number, (target, chosen) in enumerate(targets.items()):
            (where := Path(folder) / str(number)).mkdir()
            runs[target] = runner(proto, chosen, where)
        runs["onnxruntime"] = theirs(proto)
        wide = {key: data.astype(D) if data.dtype == F else data for key, data in constants.items()}
        largest = 0.0
        for _ in range(math.ceil(draws / rows)):
            x = (
                DATA[kind](rng, (math.prod(shape) // length, length)).reshape(shape)
                if math.prod(shape) % length == 0
                else DATA[kind](rng, shape)
            )
            exact = case.exact(x.astype(D), wide)
            largest = max(largest, float(np.abs(exact).max()))
            for who, run in runs.items():
                y = run(x)
                error = float(np.abs(y.astype(D).reshape(-1) - exact.reshape(-1)).max())
                worst[who] = max(worst.get(who, 0.0), error if error == error else math.inf)
    return worst


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("operators", nargs="*", default=[*CASES])
    parser.add_argument("--lengths", type=lambda text: [int(part) for part in text.split(",")], default=LENGTHS)
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--targets", type=lambda text: text.split(","), default=["host"])
    parser.add_argument("--data", type=lambda text: text.split(","), default=[*DATA])
    args = parser.parse_args()
    for name in args.operators:
        for kind in CASES[name].data:
            for length in args.lengths:
                if length > CASES[name].longest or kind not in args.data:
                    continue
                worst = largest_errors(name, kind, length, args.draws, {one: TARGETS[one] for one in args.targets})
                theirs_ = worst.pop("onnxruntime")
                ours = "  ".join(
                    f"{who} {e:.2e} ({e / theirs_ if theirs_ else e:.2f}{'' if e <= theirs_ else ' !'})"
                    for who, e in worst.items()
                )
                print(f"{name:26} {kind:11} {length:7}  ort {theirs_:.2e}  {ours}", flush=True)


if __name__ == "__main__":
    main()
