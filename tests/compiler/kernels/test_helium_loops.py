"""Loops with Helium against portable C: every function of mt_mve_loop.h, and divisions by a scale.

On the host the scalar expressions stand for the vectors, under the sanitizers; in QEMU the vectors run.
"""

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from graphs import lowered, model
from one_firmware import Case, failures
from onnx import helper

from mtool.base import resources
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels import registry
from mtool.compiler.kernels.mve.loops import factors_of
from mtool.compiler.kernels.target import Target
from mtool.compiler.plan import Plan, make_plan

F, I8 = np.float32, np.int8
MVE = Target("cortex-m55", frozenset({"fpu", "dsp", "mve"}))
PAIRS = tuple(np.ascontiguousarray(one.ravel()) for one in np.meshgrid(*[np.arange(-128, 128).astype(I8)] * 2))
SCALES = {"calibrated": (0.0213, 0.0347, 0.0451), "ties": (0.02, 0.03, 0.04), "powers": (0.25, 0.5, 0.125)}
SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-30, -1e-30, 3.4e38, -3.4e38, 1.0, -1.0]
COMPARED = {"words", "bilinear_floats"}  # as floats: no NaN
Feeds = Mapping[str, Array]


def _binary(op: str, scales: Sequence[float], shape: Sequence[int] = (256, 256), dtype: type = I8) -> tuple[Any, Feeds]:
    """Return an operator of two tensors of 8 bits, and all their pairs."""
    constants: dict[str, Any] = {f"s{n}": F(scale) for n, scale in enumerate(scales)}
    constants |= {f"z{n}": dtype(zero) for n, zero in enumerate((3, -7 if dtype is I8 else 117, 5))}
    nodes = [helper.make_node("DequantizeLinear", [f"x{n}", f"s{n}", f"z{n}"], [f"f{n}"]) for n in (0, 1)]
    nodes += [
        helper.make_node(op, ["f0", "f1"], ["m"]),
        helper.make_node("QuantizeLinear", ["m", "s2", "z2"], ["y"]),
    ]
    feeds = {f"x{n}": data[: np.prod(shape)].reshape(shape).view(dtype) for n, data in enumerate(PAIRS)}
    return model(nodes, dict.fromkeys(feeds, (dtype, shape)), ["y"], constants), feeds


def _floats(rng: np.random.Generator, shape: Sequence[int], scale: float = 0.0338) -> Array:
    """Return floats near halves of a scale, and special ones."""
    near = ((rng.integers(-140, 140, shape) + 0.5) * scale).astype(F)
    near = np.where(rng.random(shape) < 0.5, near, np.nextafter(near, F(np.inf)))
    near[..., : len(SPECIAL)] = np.array(SPECIAL, F)[: near.shape[-1]]
    return near.astype(F)


def _one(op: str, shape: Sequence[int], dtype: type = I8, opset: int = 17, **attributes: Any) -> Any:
    """Return a model of one node, whose further inputs are constants: attributes named c0, c1, …"""
    constants = {name: value for name, value in attributes.items() if re.fullmatch(r"c\d", name)}
    attributes = {name: value for name, value in attributes.items() if name not in constants}
    names = ["x", *("" if np.size(value) == 0 else name for name, value in constants.items())]
    constants = {name: value for name, value in constants.items() if np.size(value)}
    return model([helper.make_node(op, names, ["y"], **attributes)], {"x": (dtype, shape)}, ["y"], constants, opset)


def _quantized(
    nodes: Sequence[Any], inputs: Mapping[str, tuple[type, Sequence[int]]], *, opset: int = 17, **constants: Any
) -> Any:
    """Return a model whose float `m` is quantized."""
    constants = {"s": F(0.0338), "z": I8(-11), **constants}
    last = helper.make_node("QuantizeLinear", ["m", "s", "z"], ["y"])
    return model([*nodes, last], inputs, ["y"], constants, opset)


def _slice(shape: Sequence[int], first: int, last: int, step: int, dtype: type = I8) -> Any:
    """Return a slice along the second axis."""
    c0, c1, c2, c3 = (np.array([number]) for number in (first, last, 1, step))
    return _one("Slice", shape, dtype, c0=c0, c1=c1, c2=c2, c3=c3)


def _resize(shape: Sequence[int], scales: Sequence[float], dtype: type = I8, **attributes: Any) -> Any:
    return _one("Resize", shape, dtype, opset=19, c0=np.empty(0, F), c1=np.array(scales, F), **attributes)


def _bilinear(shape: Sequence[int], scales: Sequence[float]) -> Any:
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["f"]),
        helper.make_node("Resize", ["f", "", "scales"], ["m"], mode="linear"),
    ]
    return _quantized(nodes, {"x": (I8, shape)}, scales=np.array(scales, F))


def _table(shape: Sequence[int]) -> Any:
    nodes = [helper.make_node("DequantizeLinear", ["x", "s", "z"], ["f"]), helper.make_node("Sigmoid", ["f"], ["m"])]
    return _quantized(nodes, {"x": (I8, shape)}, s=F(0.01))


def _float_chain(shape: Sequence[int]) -> Any:
    nodes = [
        helper.make_node("Mul", ["x", "w"], ["a"]),
        helper.make_node("Less", ["a", "b"], ["c0"]),
        helper.make_node("GreaterOrEqual", ["x", "a"], ["c1"]),
        helper.make_node("Equal", ["x", "b"], ["c2"]),
        helper.make_node("Or", ["c0", "c2"], ["c3"]),
        helper.make_node("Not", ["c1"], ["c4"]),
        helper.make_node("And", ["c3", "c4"], ["c"]),
        helper.make_node("Max", ["a", "b"], ["d"]),
        helper.make_node("Min", ["a", "x"], ["e"]),
        helper.make_node("Where", ["c", "d", "e"], ["f"]),
        helper.make_node("Where", ["c", "b", "f"], ["f2"]),  # a condition that is read twice
        helper.make_node("Neg", ["f2"], ["g"]),
        helper.make_node("Sub", ["g", "b"], ["h"]),
        helper.make_node("Add", ["h", "x"], ["i"]),
        helper.make_node("Add", ["i", "w"], ["m"]),
    ]
    rng = np.random.default_rng(3)
    w, b = (rng.uniform(-1, 1, (shape[1], 1, 1)).astype(F) for _ in range(2))
    return _quantized(nodes, {"x": (F, shape)}, w=w, b=b)


def _integers(shape: Sequence[int], dtype: type) -> Any:
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["a"]),
        helper.make_node("Add", ["a", "b"], ["c"]),
        helper.make_node("Sub", ["c", "x"], ["d"]),
        helper.make_node("Greater", ["d", "b"], ["e"]),
        helper.make_node("Add", ["d", "a"], ["g"]),
        helper.make_node("Where", ["e", "g", "d"], ["f"]),
        helper.make_node("Max", ["f", "x"], ["h"]),
        helper.make_node("Min", ["h", "b"], ["i"]),
        helper.make_node("Cast", ["i"], ["y"], to=1),
    ]
    return model(nodes, {"x": (dtype, shape)}, ["y"], {"b": np.array(77, dtype)})


def _larger(shape: Sequence[int], dtype: type) -> Any:
    rng, limits = np.random.default_rng(6), np.iinfo(dtype)
    numbers = rng.integers(limits.min, limits.max, shape, endpoint=True).astype(dtype)
    nodes = [helper.make_node("Max", ["x", "c"], ["m"]), helper.make_node("Min", ["m", "d"], ["y"])]
    return model(nodes, {"x": (dtype, shape)}, ["y"], {"c": numbers, "d": numbers[:, :1] // 2})


def _looked_up(shape: Sequence[int], dtype: type) -> Any:
    """Return a model whose indices are computed."""
    nodes = [
        helper.make_node("Cast", ["x"], ["i"], to=6),
        helper.make_node("Gather", ["table", "i"], ["g"]),
        helper.make_node("Transpose", ["g"], ["y"], perm=[1, 0]),
    ]
    numbers = np.random.default_rng(7).integers(0, 100, (256, 3)[: 3 - len(shape)]).astype(dtype)
    return model(nodes, {"x": (I8, shape)}, ["y"], {"table": numbers})


def _from_int32(shape: Sequence[int]) -> Any:
    nodes = [helper.make_node("DequantizeLinear", ["x", "from"], ["m"])]
    return _quantized(nodes, {"x": (np.int32, shape)}, **{"from": F(1e-8)})


def _normal(shape: Sequence[int]) -> Any:
    rng = np.random.default_rng(8)
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["f"]),
        helper.make_node("LayerNormalization", ["f", "w", "b"], ["m"], axis=-1),
    ]
    scale, bias = (rng.uniform(0.5, 1.5, shape[-1]).astype(F) for _ in range(2))
    return _quantized(nodes, {"x": (I8, shape)}, w=scale, b=bias)


def _reduced(op: str, shape: Sequence[int], axes: Sequence[int], dtype: type = I8) -> Any:
    node = helper.make_node(op, ["f" if dtype is I8 else "x"], ["m"], axes=axes, keepdims=0)
    if dtype is not I8:
        return model([replace_output(node)], {"x": (dtype, shape)}, ["y"], opset=12)
    read = helper.make_node("DequantizeLinear", ["x", "s", "z"], ["f"])
    return _quantized([read, node], {"x": (I8, shape)}, opset=12)


def replace_output(node: Any) -> Any:
    """Return a node whose output is that of the model."""
    node.output[0] = "y"
    return node


def _divided(shape: Sequence[int]) -> Any:
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["a"]),
        helper.make_node("Sqrt", ["a"], ["b"]),
        helper.make_node("Div", ["w", "b"], ["m"]),
    ]
    return _quantized(nodes, {"x": (F, shape)}, w=np.linspace(-3, 3, shape[1]).astype(F))


def _own(op: str, dtype: type, shape: Sequence[int], *constants: Any, **attributes: Any) -> Any:
    """Return a model of an operator of mtool's own."""
    known = {f"c{n}": data for n, data in enumerate(constants)}
    node = helper.make_node(op, ["x", *known], ["y"], domain="mtool", **attributes)
    return model([node], {"x": (dtype, shape)}, ["y"], known)


def _rescaled(*, twice: bool, to: int) -> Any:
    rng, limits = np.random.default_rng(8), np.iinfo(helper.tensor_dtype_to_np_dtype(to))
    by, shift = rng.integers(2**30, 2**31, 37).astype(np.int32), rng.integers(1, 25, 37).astype(I8)
    bounds = {"zero_point": 0 if to == 6 else 5, "low": int(limits.min), "high": int(limits.max)}
    return _own("Rescale", np.int32, (3, 37), by, shift, axis=1, twice=int(twice), to=to, **bounds)


def _softmax(shape: Sequence[int], scale: float = 0.03) -> Any:
    nodes = [helper.make_node("DequantizeLinear", ["x", "from"], ["f"]), helper.make_node("Softmax", ["f"], ["m"])]
    return _quantized(nodes, {"x": (I8, shape)}, s=F(1 / 256), z=I8(-128), **{"from": F(scale)})


MODELS: dict[str, Any] = {
    "softmax": _softmax((9, 32)),
    "softmax_odd": _softmax((7, 21), 0.2),
    "softmax_short": _softmax((2, 3), 0.01),
    "normal": _normal((3, 7, 64)),
    "normal_odd": _normal((2, 9, 39)),
    "divided": _divided((5, 43)),
    "mean": _reduced("ReduceMean", (1, 9, 11, 5), (2, 3)),
    "mean_of_rows": _reduced("ReduceMean", (1, 41, 9, 5), (1,)),
    "highest": _reduced("ReduceMax", (13, 5, 17), (0, 2)),
    "lowest_int32": _reduced("ReduceMin", (13, 5, 17), (0,), np.int32),
    "sum_int32": _reduced("ReduceSum", (13, 5, 17), (0, 2), np.int32),
    "logistic16": _own("FixedLogistic", np.int16, (3, 37), whole=3, to=5),
    **{f"tanh16_{whole}": _own("FixedTanh", np.int16, (3, 37), whole=whole, to=5) for whole in (0, 2, 4, 5)},
    "rescaled_once": _rescaled(twice=False, to=5),
    "rescaled_twice": _rescaled(twice=True, to=5),
    "rescaled_whole": _rescaled(twice=True, to=6),
    "mean_of_64": _own("RoundedMean", np.int16, (3, 37), np.int32(64), low=-2000, high=2000, to=5),
    "larger": _larger((3, 37), I8),
    "larger_uint8": _larger((3, 37), np.uint8),
    "uint8": _integers((3, 21), np.uint8),
    "from_int32": _from_int32((3, 37)),
    "looked_up": _looked_up((30,), I8),
    "looked_up_uint8": _looked_up((5, 30), np.uint8),
    "looked_up_int16": _looked_up((5, 30), np.int16),
    "looked_up_int32": _looked_up((30,), np.int32),
    "half_of_halves": _slice((4, 33), 0, 33, 2, np.int16),
    "from_float": _quantized([helper.make_node("Identity", ["x"], ["m"])], {"x": (F, (3, 41))}),
    "floats": _float_chain((1, 5, 3, 14)),
    "table": _table((5, 51)),
    "signed": _integers((3, 21), I8),
    "int16": _integers((3, 21), np.int16),
    "int32": _integers((3, 21), np.int32),
    "rows": _one("Transpose", (1, 16, 6, 7), perm=[0, 2, 3, 1]),
    "columns": _one("Transpose", (1, 6, 37, 3), perm=[0, 3, 1, 2]),
    "pixels": _one("Transpose", (1, 3, 6, 37), perm=[0, 2, 3, 1]),
    "far": _one("Transpose", (20, 45, 2), perm=[1, 2, 0]),
    "halves": _one("Transpose", (1, 5, 6, 9), np.int16, perm=[0, 2, 3, 1]),
    "words": _one("Transpose", (1, 5, 6, 9), F, perm=[0, 2, 3, 1]),
    "reversed": _slice((4, 33), 40, -50, -1),
    "reversed_words": _slice((4, 33), 40, -50, -1, np.int32),
    "lower": _one("Trilu", (1, 5, 1, 9), np.int32, upper=0),
    "thirds": _slice((4, 100), 1, 99, 3),
    "repeated": _one("Expand", (4, 1, 9), c0=np.array([4, 21, 9])),
    "spread": _one("Expand", (4, 9, 1), c0=np.array([4, 9, 21])),
    "spread_halves": _one("Expand", (4, 2, 1), np.int16, c0=np.array([4, 2, 21])),
    "edges": _one("Pad", (2, 5, 9), c0=np.array([0, 1, 2, 0, 1, 0])),
    "chosen": _one("Gather", (3, 300), axis=1, c0=np.random.default_rng(1).integers(0, 300, 43)),
    "nearest": _resize(
        (1, 3, 5, 9), (1, 1, 2, 2.5), mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"
    ),
    "bilinear": _bilinear((1, 3, 5, 9), (1, 1, 2, 2.3)),
    "bilinear_twice": _bilinear((1, 6, 5, 9), (1, 1, 2, 2)),
    "bilinear_floats": _resize((1, 6, 5, 9), (1, 1, 2, 2), F, mode="linear"),
}  # fmt: skip


def _plan(proto: Any, name: str, *, portable: bool) -> Plan:
    plain = {
        key: replace(kernel, schedules=tuple(s for s in kernel.schedules if s.name.startswith("c99")))
        for key, kernel in registry.KERNELS.items()
    }
    with mock.patch.dict(registry.KERNELS, plain if portable else {}):
        return make_plan(replace(lowered(proto, MVE), name=name), MVE)


def _case(name: str, proto: Any, feeds: Feeds) -> Case:
    mine, other = (_plan(proto, f"{name}{suffix}", portable=bool(suffix)) for suffix in ("", "_c99"))
    assert any(step.schedule.name in ("mve_loop", "mve_rows") for step in mine.steps), name
    return Case(mine, other, dict(feeds))


@functools.cache  # for the host and for the emulator
def _cases() -> list[Case]:
    made, rng = [], np.random.default_rng(5)
    for name, proto in MODELS.items():
        kind = proto.graph.input[0].type.tensor_type
        shape = [d.dim_value for d in kind.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
        if dtype == F:
            x = _floats(rng, shape)
        else:
            limits = np.iinfo(dtype)
            x = rng.integers(limits.min, limits.max, shape, endpoint=True).astype(dtype)
        made.append(_case(name, proto, {"x": rng.random(shape).astype(F) if name in COMPARED else x}))
    for op in ("Add", "Sub", "Mul", "Max", "Min"):
        for kind, scales in SCALES.items():
            made.append(_case(f"{op}_{kind}".lower(), *_binary(op, scales)))
    made.append(_case("odd", *_binary("Add", SCALES["calibrated"], (5, 3))))
    made.append(_case("coarse", *_binary("Add", (1.93, 0.82, 0.0213), (16, 256))))
    made.append(_case("sum_uint8", *_binary("Add", SCALES["ties"], (16, 256), np.uint8)))
    made.append(_case("two_words", *_binary("Mul", (0.0213, 0.0347, 0.043), (64, 256))))
    made.append(_case("short", *_binary("Mul", SCALES["calibrated"], (1, 3))))
    return made


@pytest.mark.slow
def test_the_plain_c_of_every_function(tmp_path: Path) -> None:
    assert failures(_cases(), tmp_path, None) == []
    header = (resources.path("crt") / "include" / "mt_mve_loop.h").read_text()
    texts = [header, *(path.read_text() for path in tmp_path.glob("*.c"))]
    called = {name for text in texts for name in re.findall(r"\bmt_mve_(\w+)\(", text)}
    defined = set(re.findall(r"^MT_(?:LANES|LOAD|STORE|GATHER|SCATTER)\((\w+),", header, re.MULTILINE))
    assert defined <= called, defined - called


@pytest.mark.slow
def test_every_function_in_the_emulator(tmp_path: Path) -> None:
    assert failures(_cases(), tmp_path, "mps3_an547") == []


@pytest.mark.slow
def test_every_argument_of_gates_in_the_emulator(tmp_path: Path) -> None:
    x = {"x": np.arange(-(2**15), 2**15).astype(np.int16)}
    models = {f"tanh_{whole}": _own("FixedTanh", np.int16, (2**16,), whole=whole, to=5) for whole in (3, 6)}
    models["logistic"] = _own("FixedLogistic", np.int16, (2**16,), whole=3, to=5)
    assert failures([_case(name, proto, x) for name, proto in models.items()], tmp_path, "mps3_an547") == []


@pytest.mark.parametrize("scale", [0.0338, 0.04, 2.0**-7, 1e-3, 77.0])
def test_a_division_by_a_scale_is_two_products(scale: float) -> None:
    """For floats at and around each half, and others."""
    found = factors_of(float(F(scale)), -11, -128, 127)
    assert found is not None
    least, most, factor, rest = map(F, found)
    rng = np.random.default_rng(1)
    x = np.concatenate([_floats(rng, (300, 300), scale).ravel(), rng.uniform(-150, 150, 10**5).astype(F) * F(scale)])
    limited = np.fmin(np.fmax(x, least), most)
    with np.errstate(all="ignore"):
        wanted = np.clip(np.rint(np.fmax(x / F(scale), F(-117))), -117, 138)
    exact = limited.astype(np.longdouble) * np.longdouble(factor) + (limited * rest).astype(np.longdouble)
    assert np.array_equal(np.rint(exact.astype(F)), wanted)
