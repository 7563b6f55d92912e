"""Operators of older opsets, with attributes instead of today's inputs, against onnxruntime."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from graphs import Array, model, reference
from onnx import helper

from mtool.plugins.onnx_backend import batch

Form = tuple[str, int, tuple[int, ...], dict[str, object], dict[str, Array], int]
"""The operator, the opset, the shape of its input, its attributes, its further inputs (constants), its outputs."""

F = np.float32
INT64_MAX, INT64_MIN = 2**63 - 1, -(2**63)


def ints(*values: int) -> Array:
    return np.array(values, np.int64)


def slices() -> Iterator[Form]:
    for opset in (7, 9):
        for starts, ends in (([-40], [3]), ([1], [-1]), ([-3], [2**31 - 1]), ([3], [1]), ([0], [-(2**31)])):
            yield "Slice", opset, (5, 4), {"starts": starts, "ends": ends}, {}, 1
            yield "Slice", opset, (2, 5), {"starts": starts, "ends": ends, "axes": [1]}, {}, 1
    for step in (-1, 2, -100):
        where = {"s": ints(-40 if step > 0 else 40), "e": ints(INT64_MAX if step > 0 else INT64_MIN), "a": ints(-1)}
        yield "Slice", 10, (2, 5), {}, {**where, "t": ints(step)}, 1


def reductions() -> Iterator[Form]:
    for op in ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSum", "LogSumExp"):
        name, inputs_from = f"Reduce{op}", 13 if op == "Sum" else 18
        for keep in (0, 1):
            yield name, inputs_from - 1, (2, 3, 4), {"axes": [0, 2], "keepdims": keep}, {}, 1
            yield name, inputs_from, (2, 3, 4), {"keepdims": keep}, {"a": ints(-1, 0)}, 1
            for empty in (0, 1):
                yield name, inputs_from, (2, 3), {"keepdims": keep, "noop_with_empty_axes": empty}, {"a": ints()}, 1
                yield name, inputs_from, (2, 3), {"keepdims": keep, "noop_with_empty_axes": empty}, {}, 1


def others() -> Iterator[Form]:
    yield "Squeeze", 7, (1, 3, 1), {"axes": [0]}, {}, 1
    yield "Squeeze", 11, (1, 3, 1), {"axes": [-1]}, {}, 1
    yield "Squeeze", 13, (1, 3, 1), {}, {"a": ints(-1)}, 1
    yield "Unsqueeze", 7, (3,), {"axes": [0, 2]}, {}, 1
    yield "Unsqueeze", 11, (3,), {"axes": [-1, 0]}, {}, 1
    yield "Unsqueeze", 13, (3,), {}, {"a": ints(-1, 0)}, 1
    for mode in ("constant", "reflect", "edge"):
        yield "Pad", 7, (3, 4), {"mode": mode, "pads": [0, 1, 2, 1]}, {}, 1
        yield "Pad", 11, (3, 4), {"mode": mode}, {"p": ints(0, 1, 2, 1)}, 1
        yield "Pad", 18, (3, 4), {"mode": mode}, {"p": ints(1, 2), "": F(0), "a": ints(-1)}, 1
    yield "Pad", 7, (3, 4), {"pads": [0, -1, 2, 1], "value": 0.5}, {}, 1
    yield "Pad", 11, (3, 4), {}, {"p": ints(0, -1, 2, 1), "c": np.array(0.5, F)}, 1
    yield "Clip", 7, (3, 4), {"min": -0.5}, {}, 1
    yield "Clip", 11, (3, 4), {}, {"": F(0), "hi": np.array(0.5, F)}, 1
    for opset, outputs in ((7, 1), (10, 2), (11, 2), (12, 2), (13, 2)):
        yield "Dropout", opset, (3, 4), {}, {}, outputs
    for mode, shape in (("nearest", (2, 3)), ("linear", (1, 2, 3, 4))):
        scales = [1.0] * (len(shape) - 2) + [2.0, 1.5]
        yield "Upsample", 7, shape, {"mode": mode, "scales": scales}, {}, 1
        yield "Upsample", 9, shape, {"mode": mode}, {"s": np.array(scales, F)}, 1
        yield "Resize", 10, shape, {"mode": mode}, {"s": np.array(scales, F)}, 1
        yield "Resize", 10, (*shape[:-2], 5, 7), {"mode": mode}, {"s": np.array([*scales[:-2], 0.6, 0.4], F)}, 1
        yield "Resize", 13, shape, {"mode": mode}, {"": F(0), "s": np.array(scales, F)}, 1
    for opset in (7, 11, 13):
        for op in ("Softmax", "LogSoftmax", "Hardmax"):
            yield op, opset, (2, 3, 4), {}, {}, 1
            yield op, opset, (2, 3, 4), {"axis": 2 if opset < 11 else -2}, {}, 1
    moments = {name: np.linspace(0.5, 1.5, 3, dtype=F) for name in "sbmv"}
    for opset in (7, 9, 14, 15):
        yield "BatchNormalization", opset, (2, 3, 4), {"epsilon": 1e-3}, moments, 1
    yield "Split", 7, (5, 2), {"split": [2, 3]}, {}, 2
    yield "Split", 11, (4, 2), {"axis": -2}, {}, 2
    yield "Split", 13, (5, 2), {}, {"p": ints(2, 3)}, 2
    yield "Split", 18, (5, 2), {"num_outputs": 2}, {}, 2
    yield "TopK", 7, (3, 4), {"k": 2, "axis": 0}, {}, 2
    yield "TopK", 10, (3, 4), {"axis": 0}, {"k": ints(2)}, 2
    yield "TopK", 11, (3, 4), {"axis": -2, "largest": 0}, {"k": ints(2)}, 2
    for opset in (7, 9, 13, 19):
        yield "Cast", opset, (3, 4), {"to": onnx.TensorProto.INT32}, {}, 1


def sampling() -> Iterator[Form]:
    places = np.stack(np.meshgrid(np.linspace(-1.7, 1.9, 9), np.linspace(-1.4, 1.3, 7)), -1)[None].astype(F)
    for opset, modes in ((16, ("bilinear", "nearest", "bicubic")), (20, ("linear", "nearest", "cubic"))):
        for mode in modes:
            for padding in ("zeros", "border", "reflection"):
                for corners in (0, 1):
                    attributes = {"mode": mode, "padding_mode": padding, "align_corners": corners}
                    yield "GridSample", opset, (1, 2, 4, 5), attributes, {"g": places}, 1


def proto_of(form: Form) -> onnx.ModelProto:
    op, opset, shape, attributes, constants, count = form
    node = helper.make_node(op, ["x", *constants], [f"y{n}" for n in range(count)], **attributes)
    given = {name: data for name, data in constants.items() if name}
    return model([node], {"x": (F, shape)}, list(node.output), given, opset)


@pytest.mark.slow
@pytest.mark.parametrize("forms", [slices, reductions, others, sampling], ids=lambda forms: forms.__name__)
@pytest.mark.product(2)
def test_each_form_computes_what_onnxruntime_does(forms: object, tmp_path: Path) -> None:
    cases = list(forms())  # type: ignore[operator]
    protos = [proto_of(form) for form in cases]
    made = [batch.to_c(proto, f"m{number}") for number, proto in enumerate(protos)]
    rng = np.random.default_rng(3)
    with batch.build(made, tmp_path) as program:
        assert not program.refused
        for number, (form, proto) in enumerate(zip(cases, protos, strict=True)):
            x = (rng.random(form[2]) + 0.1).astype(F) * (
                1 if form[0] == "ReduceLogSum" else rng.choice([-1, 1], form[2])
            )
            x = x.astype(F)
            for found, expected in zip(program.run(number, [x]), reference(proto, {"x": x}), strict=True):
                assert found.dtype == expected.dtype and found.shape == expected.shape, form
                np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6, err_msg=str(form))
