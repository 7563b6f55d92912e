"""LSTM, RNN and SVDF of TFLite models over several calls, with their variables as states."""

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from one_firmware import Case, failures
from tflite_cases import Case as Layer
from tflite_cases import compute_sequence, drawn, one_model
from tflite_models import Op, T, litert_sequence

from mtool.base.errors import ModelError
from mtool.compiler import passes
from mtool.compiler.frontend import ModelOptions, load
from mtool.compiler.frontend.tflite.fixed_point import rescaled
from mtool.compiler.ir import DType
from mtool.compiler.ir.expr import call, const
from mtool.compiler.ir.scalar import FIXED16, FUNCTIONS
from mtool.compiler.kernels import registry
from mtool.compiler.kernels.target import Target
from mtool.compiler.plan import make_plan

pytest.importorskip("ai_edge_litert")

HOST = Target("host", frozenset({"fpu"}))
R = np.random.default_rng(3)
CALLS = 6
SIZE, CELLS = 5, 7
LSTM, BOTH = "UNIDIRECTIONAL_SEQUENCE_LSTM", "BIDIRECTIONAL_SEQUENCE_LSTM"


def weights(name: str, *shape: int, scale: float | None = None) -> T:
    if scale is None:
        return T(name, shape, data=R.standard_normal(shape).astype(np.float32) * np.float32(0.5))
    return T(name, shape, np.int8, scale, data=R.integers(-127, 128, shape))


def variable(name: str, *shape: int, dtype: Any = np.float32, scale: float | None = None, zero: int = 0) -> T:
    return T(name, shape, dtype, scale, zero, variable=True)


def direction(
    prefix: str, width: int, *, cifg: bool, peepholes: bool, projected: bool, scale: float | None = None
) -> dict[int, T]:
    """Return the weights of one direction by their places in the LSTM of one."""
    gates = [gate for gate in range(4) if gate or not cifg]
    found = {1 + gate: weights(f"{prefix}w{gate}", CELLS, SIZE, scale=scale) for gate in gates}
    found |= {5 + gate: weights(f"{prefix}r{gate}", CELLS, width, scale=scale) for gate in gates}
    for gate in gates:
        data = R.integers(-900, 900, CELLS) if scale else R.standard_normal(CELLS)
        found[12 + gate] = T(f"{prefix}b{gate}", [CELLS], np.int32 if scale else np.float32, data=data)
    if peepholes:
        found |= {9 + n: weights(f"{prefix}p{n}", CELLS) for n, gate in enumerate((0, 1, 3)) if gate in gates}
    if projected:
        found[16] = weights(f"{prefix}p", width, CELLS, scale=scale)
        data = R.integers(-900, 900, width) if scale else R.standard_normal(width)
        found[17] = T(f"{prefix}pb", [width], np.int32 if scale else np.float32, data=data)
    return found


def listed(found: dict[int, T]) -> list[str]:
    return [found[place].name if place in found else "" for place in range(max(found) + 1)]


def real_lstm(
    tag: str,
    shape: list[int],
    *,
    major: bool = False,
    norms: bool = False,
    clip: float = 0.0,
    code: int = 4,
    **how: bool,
) -> Layer:
    chosen = {"cifg": False, "peepholes": False, "projected": False} | how
    width = 4 if chosen["projected"] else CELLS
    images = shape[1] if major else shape[0]
    found = {0: T("x", shape)} | direction("", width, **chosen)
    found |= {18: variable("h", images, width), 19: variable("c", images, CELLS)}
    if norms:
        found |= {20 + n: weights(f"n{n}", CELLS) for n in range(1 if chosen["cifg"] else 0, 4)}
    values = {"TimeMajor": major, "CellClip": clip, "ProjClip": clip, "FusedActivationFunction": code}
    op = Op(LSTM, listed(found), ["y"], "UnidirectionalSequenceLSTMOptions", values)
    return Layer(tag, op, [*found.values(), T("y", [*shape[:-1], width])])


def integer_lstm(
    tag: str, shape: list[int], *, major: bool = False, clip: float = 0.0, power: int = -11, **how: bool
) -> Layer:
    chosen = {"cifg": False, "projected": False} | how
    width = 4 if chosen["projected"] else CELLS
    images = shape[1] if major else shape[0]
    found = {0: T("x", shape, np.int8, 0.02, -3)} | direction("", width, peepholes=False, scale=0.011, **chosen)
    state = {"dtype": np.int8, "scale": 0.0078, "zero": 2}
    found |= {18: variable("h", images, width, **state)}
    found |= {19: variable("c", images, CELLS, dtype=np.int16, scale=2.0**power)}
    between = [T(f"i{n}", [0], np.int16, 0.01, 0) for n in range(4)]
    between.append(T("i4", [0], np.int8, 0.0071 if chosen["projected"] else 0.0078, 3 if chosen["projected"] else 2))
    values = {"TimeMajor": major, "CellClip": clip, "ProjClip": clip / 4, "FusedActivationFunction": 4}
    names = [tensor.name for tensor in between]
    op = Op(LSTM, listed(found), ["y"], "UnidirectionalSequenceLSTMOptions", values, names)
    made = T("y", [*shape[:-1], width], np.int8, 0.0078, 2)
    return Layer(tag, op, [*found.values(), *between, made])


def both_lstm(tag: str, shape: list[int], *, merged: bool) -> Layer:
    there = direction("f", CELLS, cifg=False, peepholes=True, projected=False)
    back = direction("b", CELLS, cifg=False, peepholes=True, projected=False)
    found = {0: T("x", shape)} | there | {place + 17: tensor for place, tensor in back.items()}
    found |= {35 + n: variable(f"s{n}", shape[0], CELLS) for n in range(4)}
    found |= {47: T("", [])}
    names = [*listed(found)[:47], ""]
    del found[47]
    values = {"MergeOutputs": merged, "CellClip": 0.5, "FusedActivationFunction": 4, "TimeMajor": False}
    outputs = [T("y", [*shape[:-1], 2 * CELLS])] if merged else [T(name, [*shape[:-1], CELLS]) for name in ("y", "z")]
    op = Op(BOTH, names, [t.name for t in outputs], "BidirectionalSequenceLSTMOptions", values)
    return Layer(tag, op, [*found.values(), *outputs])


def rnn(tag: str, shape: list[int], *, major: bool) -> Layer:
    images = shape[1] if major else shape[0]
    found = [T("x", shape), weights("w", CELLS, SIZE), weights("r", CELLS, CELLS), weights("b", CELLS)]
    found.append(variable("h", images, CELLS))
    op = Op("UNIDIRECTIONAL_SEQUENCE_RNN", [t.name for t in found], ["y"], "SequenceRNNOptions", {
        "TimeMajor": major, "FusedActivationFunction": 4,
    })  # fmt: skip
    return Layer(tag, op, [*found, T("y", [*shape[:-1], CELLS])])


def svdf(tag: str, *, rank: int, dtype: Any = np.float32, images: int = 2, bias: bool = True, code: int = 0) -> Layer:
    filters, memory = 6, 4
    values = {"Rank": rank, "FusedActivationFunction": code}
    if dtype is np.float32:
        found = [T("x", [images, SIZE]), weights("w", filters, SIZE), weights("t", filters, memory)]
        found += [weights("b", filters // rank)] if bias else []
        found += [variable("s", images, filters * memory), T("y", [images, filters // rank])]
    else:
        wide = dtype is np.int16
        limit, scale = (30000, 0.0003) if wide else (127, 0.02)
        time = T(
            "t", [filters, memory], dtype, 0.00004 if wide else 0.01, data=R.integers(-limit, limit, [filters, memory])
        )
        found = [T("x", [images, SIZE], np.int8, 0.05, 4), weights("w", filters, SIZE, scale=0.01), time]
        found += [T("b", [filters // rank], np.int32, data=R.integers(-900, 900, filters // rank))] if bias else []
        found += [variable("s", images, filters * memory, dtype=dtype, scale=scale, zero=0 if wide else -9)]
        found += [T("y", [images, filters // rank], np.int8, 0.03 if wide else 0.008, -7)]
    names = [t.name for t in found[:3]] + (["b"] if bias else [""]) + ["s"]
    return Layer(tag, Op("SVDF", names, ["y"], "SVDFOptions", values), found)


def cases() -> list[Layer]:
    return [
        real_lstm("plain", [2, 9, SIZE], clip=0.6),
        real_lstm("major", [9, 3, SIZE], major=True, peepholes=True),
        real_lstm("one_step", [2, 1, SIZE], cifg=True, peepholes=True, code=1),
        real_lstm("projected", [1, 8, SIZE], projected=True, clip=0.7),
        real_lstm("normalised", [1, 4, SIZE], norms=True, cifg=True),
        integer_lstm("i_plain", [1, 9, SIZE], clip=10.0),
        integer_lstm("i_images", [3, 4, SIZE], power=-12),
        integer_lstm("i_major", [6, 2, SIZE], major=True, cifg=True, power=-15),
        integer_lstm("i_projected", [1, 5, SIZE], projected=True, clip=2.0),
        integer_lstm("i_one_step", [2, 1, SIZE], power=-9),
        both_lstm("both", [2, 5, SIZE], merged=False),
        both_lstm("merged", [1, 4, SIZE], merged=True),
        rnn("rnn", [2, 6, SIZE], major=False),
        rnn("rnn_major", [6, 2, SIZE], major=True),
        svdf("svdf", rank=2, code=1),
        svdf("svdf_bare", rank=1, bias=False),
        svdf("i_svdf", rank=2, dtype=np.int16, code=1),
        svdf("i_svdf_bare", rank=1, dtype=np.int16, images=1, bias=False, code=1),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("rounding", ["onnx", "tflite"])
def test_a_sequence_is_litert_s(rounding: Any, tmp_path: Path) -> None:
    data, inputs, outputs = one_model(cases())
    sequence = [{tensor.name: drawn(tensor) for tensor in inputs} for _ in range(CALLS)]
    expected = litert_sequence(data, sequence, reference=rounding == "tflite")
    found = compute_sequence(data, sequence, tmp_path, rounding, HOST)
    for number, (made, wanted) in enumerate(zip(found, expected, strict=True)):
        for name, one, other in zip(outputs, made, wanted, strict=True):
            where = f"{name} in call {number}"
            if one.dtype == np.int8:
                np.testing.assert_array_equal(one, other, err_msg=where)
            else:
                np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5, err_msg=where)
    assert [name for name, *calls in zip(outputs, *found, strict=True) if not np.ptp(calls)] == []


@pytest.mark.parametrize(
    ("features", "lowest", "schedule"),
    [("dsp", -127, "dsp_row_sums"), ("dsp", -128, "int_rows"), ("dsp mve", -128, "mve_row_sums")],
)
def test_the_sums_of_gates_have_kernels_for_simd(
    features: str, lowest: int, schedule: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "SIZE", 29)
    monkeypatch.setitem(globals(), "CELLS", 15)
    case = integer_lstm("gates", [1, 8, 29])
    for tensor in case.tensors:
        if tensor.name[0] in "wr":
            tensor.data[:, 1] = lowest  # -128 next to a negative weight: the pair does not fit int16
    data, inputs, _ = one_model([case])
    sequence = [{tensor.name: drawn(tensor) for tensor in inputs} for _ in range(2)]
    target = Target("cortex-m", frozenset({"fpu", *features.split()}))
    found = compute_sequence(data, sequence, tmp_path, "tflite", target)
    np.testing.assert_array_equal(found, litert_sequence(data, sequence, reference=True))
    assert f"schedule {schedule}" in next(tmp_path.glob("**/model.c")).read_text()


@pytest.mark.slow
@pytest.mark.parametrize(("board", "features"), [("mps2_an386", "dsp"), ("mps3_an547", "dsp mve")])
def test_gates_in_the_emulator(board: str, features: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, made = Target("cortex-m", frozenset({"fpu", *features.split()})), []
    portable = {
        key: replace(kernel, schedules=tuple(s for s in kernel.schedules if s.name.startswith("c99")))
        for key, kernel in registry.KERNELS.items()
    }
    for size in (28, 29, 30, 31, 32):
        monkeypatch.setitem(globals(), "SIZE", size)
        monkeypatch.setitem(globals(), "CELLS", size - 8)
        data, inputs, _ = one_model([integer_lstm("gates", [1, 8, size])])
        (tmp_path / "m.tflite").write_bytes(data)
        graph = passes.run(load(tmp_path / "m.tflite", ModelOptions(rounding="tflite")), target)
        plan = make_plan(replace(graph, name=f"m{size}"), target)
        with mock.patch.dict(registry.KERNELS, portable):
            made.append(Case(plan, make_plan(replace(graph, name=f"c{size}"), target), {
                one.name: drawn(one) for one in inputs
            }))  # fmt: skip
    assert failures(made, tmp_path, board) == []


def test_a_filter_bank_with_states_of_8_bits_is_tflite_micro_s(tmp_path: Path) -> None:
    """LiteRT takes such states for those of 16 bits; svdf_common.cc has them, whose latest one may wrap around."""
    case = svdf("narrow", rank=2, dtype=np.int8)
    data, inputs, _ = one_model([case])
    sequence = [{tensor.name: drawn(tensor) for tensor in inputs} for _ in range(CALLS)]
    found = compute_sequence(data, sequence, tmp_path, "onnx", HOST)
    tensors = {tensor.name: tensor for tensor in case.tensors}
    w, time, bias = (np.asarray(tensors[name].data, np.int64) for name in "wtb")
    point = -9
    state = np.full((2, 6, 4), -9, np.int8)
    first, second = (
        float(np.float32(a) * np.float32(b) / np.float32(c)) for a, b, c in ((0.05, 0.01, 0.02), (0.02, 0.01, 0.008))
    )
    for feeds, (made,) in zip(sequence, found, strict=True):
        sums = (feeds["narrow.x"].astype(np.int64) - 4) @ w.T
        latest = np.clip(rescaled(sums, first), -128, 127) + point
        state = np.concatenate([state[:, :, 1:], latest[:, :, None].astype(np.int8)], axis=2)
        totals = ((state.astype(np.int64) - point) * time).reshape(2, 3, 8).sum(axis=2) + bias
        np.testing.assert_array_equal(made, np.clip(rescaled(totals, second) - 7, -128, 127))


def test_int8_weights_of_a_real_lstm_are_those_that_they_stand_for(tmp_path: Path) -> None:
    shape = [1, 6, SIZE]
    case = real_lstm("hybrid", shape, clip=5.0)
    tensors = []
    for tensor in case.tensors:
        if tensor.name[0] in "wr":
            steps = np.rint(tensor.data / 0.01).clip(-127, 127)
            tensors.append((replace(tensor, dtype=np.int8, scale=0.01, data=steps), replace(tensor, data=steps * 0.01)))
        else:
            tensors.append((tensor, tensor))
    narrow, wide = (one_model([replace(case, tensors=[*kind])]) for kind in zip(*tensors, strict=True))
    sequence = [{tensor.name: drawn(tensor) for tensor in narrow[1]} for _ in range(2)]
    found = compute_sequence(narrow[0], sequence, tmp_path, "onnx", HOST)
    for (made,), (wanted,) in zip(found, litert_sequence(wide[0], sequence), strict=True):
        np.testing.assert_allclose(made, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("whole", range(7))
def test_functions_of_16_bits_are_those_of_real_numbers(whole: int) -> None:
    steps = np.arange(-(2**15), 2**15)
    real = steps * 2.0 ** (whole - 15)
    tanh = FIXED16["tanh16"].meaning(call("tanh16", const(0, DType.INT32), dtype=DType.INT16, value=whole), steps)
    assert np.abs(tanh / 2**15 - np.tanh(real)).max() < 2**-11
    if whole == 3:
        expr = call("logistic16", const(0, DType.INT32), dtype=DType.INT16, value=whole)
        assert np.abs(FIXED16["logistic16"].meaning(expr, steps) / 2**15 - 1 / (1 + np.exp(-real))).max() < 2**-11


def test_their_c_has_the_meaning_that_passes_compute_with(tmp_path: Path) -> None:
    calls = [f"mt_fixed16_tanh((int32_t)x, {whole})" for whole in range(7)] + ["mt_fixed16_logistic((int32_t)x)"]
    means = [(x, count) for x in ("x", "x * 32767") for count in (1, 2, 1 << 15, 1 << 18)]
    calls += [f"mt_mean((int32_t){x}, {count})" for x, count in means]
    prints = "".join(f'printf("%d ", (int){one}); ' for one in calls)
    source = tmp_path / "all.c"
    source.write_text(
        '#include "mt_fixed16.h"\n#include "mt_math.h"\n#include <stdio.h>\n'
        f"int main(void) {{ for (int x = -32768; x < 32768; ++x) {{ {prints} }} return 0; }}\n"
    )
    program = tmp_path / "all"
    subprocess.run(["cc", "-O1", "-Icrt/include", str(source), "-o", str(program)], check=True, timeout=60)
    text = subprocess.run([str(program)], check=True, timeout=60, capture_output=True).stdout
    found = np.array(text.split(), np.int64).reshape(-1, len(calls))
    steps = np.arange(-(2**15), 2**15)
    for place, (function, whole) in enumerate([*(("tanh16", n) for n in range(7)), ("logistic16", 3)]):
        expr = call(function, const(0, DType.INT32), dtype=DType.INT16, value=whole)
        np.testing.assert_array_equal(found[:, place], FIXED16[function].meaning(expr, steps))
    for place, (x, count) in enumerate(means, 8):
        mean = FUNCTIONS["mean"].meaning(
            call("mean", const(0, DType.INT32), dtype=DType.INT32), steps * (32767 if "*" in x else 1), np.int64(count)
        )
        np.testing.assert_array_equal(found[:, place], mean)


def refused(case: Layer, folder: Path) -> str:
    path = folder / "m.tflite"
    path.write_bytes(one_model([case])[0])
    with pytest.raises(ModelError) as raised:
        load(path)
    return str(raised.value)


def changed(case: Layer, name: str, **fields: Any) -> Layer:
    return replace(case, tensors=[replace(t, **fields) if t.name == name else t for t in case.tensors])


def test_what_does_not_fit_together_is_reported(tmp_path: Path) -> None:
    real, whole = real_lstm("real", [1, 3, SIZE]), integer_lstm("whole", [1, 3, SIZE])
    assert "is not a variable" in refused(changed(real, "h", variable=False), tmp_path)
    assert "real.h" in refused(changed(real, "h", shape=[1, 3]), tmp_path)
    assert "forget gate" in refused(changed(real, "w1", shape=[3, SIZE], data=np.zeros((3, SIZE))), tmp_path)
    assert "power of 2" in refused(changed(whole, "c", scale=0.001), tmp_path)
    assert "int16" in refused(changed(whole, "c", dtype=np.int8), tmp_path)
    bank = svdf("bank", rank=2)
    assert "do not match" in refused(replace(bank, op=replace(bank.op, values={"Rank": 4})), tmp_path)
