"""3x3 convolutions with fewer products: NumPy's integers, refused if a sum may exceed 32 bits."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from graphs import compiled, lowered, model, run_c
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import helper

from mtool.compiler.kernels.conv2d.winograd import DspWinograd, IntWinograd, by_columns, fits, transformed
from mtool.compiler.kernels.exact_scaling import MOST_MOVED
from mtool.compiler.kernels.target import Target
from mtool.compiler.plan import make_plan

F = np.float32
DSP = Target("cortex-m4", frozenset({"fpu", "dsp"}))
B = np.array([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]])
A = np.array([[1, 1, 1, 0], [0, 1, -1, -1]])
Numbers = NDArray[np.int64]


def convolved(x: Numbers, weights: Numbers) -> Numbers:
    """The sums of a 3x3 convolution with stride 1: x[C, H, W], weights[N, C, 3, 3]."""
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(1, 2))
    sums: Numbers = np.einsum("chwyz,ncyz->nhw", windows, weights, optimize=True)
    return sums


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32 - 1), extreme=st.booleans(), least=st.sampled_from([-128, -255]))
def test_four_of_nine_products_give_four_times_the_sums(seed: int, extreme: bool, least: int) -> None:
    """Weights of int8, and of 9 bits as those of uint8 have with their zero point."""
    rng = np.random.default_rng(seed)
    most = -least - 1
    weights = rng.choice([least, most], (2, 5, 3, 3)) if extreme else rng.integers(least, most + 1, (2, 5, 3, 3))
    x = rng.choice([-128, 127], (5, 4, 4)) if extreme else rng.integers(-128, 128, (5, 4, 4))
    elements = np.einsum("ai,cij,bj->abc", B, x, B)
    wide = transformed(weights.transpose(0, 2, 3, 1)).astype(np.int64)
    assert abs(elements).max() < 2**15 and abs(wide).max() < 2**15 - 1
    products = (wide * elements).sum(axis=3)
    assert (np.einsum("ai,nij,bj->nab", A, products, A) == 4 * convolved(x, weights)).all()


def test_the_order_of_elements_turns_the_sign_of_the_last() -> None:
    """As the loop wants them: what is subtracted last is added."""
    rng = np.random.default_rng(1)
    elements = rng.integers(-1000, 1000, (1, 4, 4, 1)).astype(np.int16)
    columns = by_columns(elements)[0, ..., 0].astype(np.int64)
    sums = [[c[0] + c[1] + c[2], c[0] - c[1] + c[3]] for c in columns]
    rows = np.array(sums).T
    found = np.stack([rows[:, 0] + rows[:, 1] + rows[:, 2], rows[:, 0] - rows[:, 1] + rows[:, 3]], axis=1)
    assert (found == A @ elements[0, ..., 0].astype(np.int64) @ A.T).all()


class Convolution:
    """A quantized convolution of random numbers, and what NumPy says that it gives."""

    def __init__(
        self, rng: np.random.Generator, shape: tuple[int, ...], outputs: int, pads: list[int], bits: int = 8
    ) -> None:
        channels = shape[1]
        self.pads, self.x = pads, rng.integers(-128, 128, shape).astype(np.int8)
        most = 1 << bits - 1
        self.weights = rng.integers(1 - most, most, (outputs, channels, 3, 3)).astype(np.int8)
        self.bias = rng.integers(-2000, 2000, outputs).astype(np.int32)
        self.x_zero, self.zero, self.low = (int(n) for n in rng.integers(-128, 128, 3))
        self.low = min(self.low, self.zero)
        self.scale = np.exp2(rng.uniform(-1, 1, outputs)).astype(F) / F(80 * 9 * channels**0.5 * most / 128)

    def nodes(self, number: int) -> tuple[list[onnx.NodeProto], dict[str, Any]]:
        """The nodes from x<number> to y<number>, and their constants; with a clip at `low`."""
        own = {
            "xz": np.int8(self.x_zero), "w": self.weights, "ws": self.scale, "wz": np.zeros(len(self.scale), np.int8),
            "b": self.bias, "bz": np.zeros(len(self.scale), np.int32), "yz": np.int8(self.zero),
            "lo": F(self.low - self.zero),
        }  # fmt: skip
        names = {name: f"{name}{number}" for name in (*own, *("x", "xf", "wf", "bf", "c", "a", "y"))}
        made = [
            ("DequantizeLinear", ["x", "one", "xz"], ["xf"], {}),
            ("DequantizeLinear", ["w", "ws", "wz"], ["wf"], {"axis": 0}),
            ("DequantizeLinear", ["b", "ws", "bz"], ["bf"], {"axis": 0}),
            ("Conv", ["xf", "wf", "bf"], ["c"], {"pads": self.pads}),
            ("Clip", ["c", "lo"], ["a"], {}),
            ("QuantizeLinear", ["a", "one", "yz"], ["y"], {}),
        ]
        nodes = [
            helper.make_node(op, *([names.get(one, one) for one in part] for part in (inputs, outputs)), **attrs)
            for op, inputs, outputs, attrs in made
        ]
        return nodes, {names[name]: data for name, data in own.items()}

    def expected(self) -> Numbers:
        """The results, [1, N, H, W], rounded as ONNX says."""
        top, left, bottom, right = self.pads
        x = np.pad(self.x[0].astype(np.int64) - self.x_zero, ((0, 0), (top, bottom), (left, right)))
        sums = convolved(x, self.weights.astype(np.int64)) + self.bias[:, None, None]
        scaled = np.rint(sums.astype(F) * self.scale[:, None, None]).astype(np.int64) + self.zero
        return np.clip(scaled, self.low, 127)[None]


SHAPES = [  # channels, rows, columns, outputs, pads: top, left, bottom, right
    (16, 6, 12, 8, [1, 1, 1, 1]),
    (8, 4, 6, 4, [0, 0, 0, 0]),  # one block, and no border
    (12, 7, 9, 6, [1, 1, 1, 1]),  # odd sizes
    (5, 5, 4, 3, [0, 1, 1, 0]),  # channels that do not fill words
    (20, 3, 3, 1, [0, 0, 0, 0]),  # one pixel
    (33, 2, 5, 7, [1, 0, 1, 2]),  # lower than a patch
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "bits", "work"),
    [
        *((kind, 8, work) for kind in (DspWinograd, IntWinograd) for work in (0, 50, 20, 1)),
        *((DspWinograd, bits, work) for bits in (4, 2) for work in (50, 20, 1)),
    ],
)
def test_random_convolutions_are_those_of_numpy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[DspWinograd | IntWinograd], bits: int, work: int
) -> None:
    """With transformed weights, and with weights transformed at run time: at once, in groups, for several blocks.

    Those of few bits are unpacked before.
    """
    schedule: DspWinograd | IntWinograd = DspWinograd(work=work, bits=bits) if bits < 8 else kind(work=work)
    monkeypatch.setattr(kind, "cost", lambda *_: 0.0)
    rng = np.random.default_rng(3)
    all_of_them = [Convolution(rng, (1, c, h, w), n, pads, bits) for c, h, w, n, pads in SHAPES]
    parts = [one.nodes(number) for number, one in enumerate(all_of_them)]
    inputs = {f"x{number}": (np.int8, one.x.shape) for number, one in enumerate(all_of_them)}
    constants = {name: data for _, own in parts for name, data in own.items()}
    outputs = [f"y{number}" for number in range(len(parts))]
    proto = model([n for nodes, _ in parts for n in nodes], inputs, outputs, constants | {"one": F(1)})
    graph = lowered(proto, DSP)
    plan = make_plan(graph, DSP, grown={node.title: schedule for node in graph.nodes if node.op == "conv2d"})
    assert sum(step.schedule == schedule for step in plan.steps) == len(SHAPES)
    found = run_c(plan, {f"x{number}": one.x for number, one in enumerate(all_of_them)}, tmp_path)
    for one, mine in zip(all_of_them, found, strict=True):
        assert (mine == one.expected()).all(), one.x.shape


@pytest.mark.parametrize("sign", [1, -1])
def test_sums_of_30_bits_are_refused(sign: int) -> None:
    weights = np.full((2, 3, 3, 4), 3, np.int8)
    reach = (127 if sign > 0 else 128) * int(weights[0].sum())
    limit = 2**29 - 1 - MOST_MOVED - reach
    assert fits(weights, np.array([0, sign * limit], np.int32))
    assert not fits(weights, np.array([0, sign * (limit + 1)], np.int32))


def test_a_layer_whose_sums_may_wrap_has_another_schedule(tmp_path: Path) -> None:
    one = Convolution(np.random.default_rng(5), (1, 16, 4, 4), 8, [1, 1, 1, 1])
    one.bias[3] = 2**29
    nodes, constants = one.nodes(0)
    plan = compiled(model(nodes, {"x0": (np.int8, one.x.shape)}, ["y0"], constants | {"one": F(1)}), DSP)
    assert "dsp_patch" in {step.schedule.name for step in plan.steps}
    (mine,) = run_c(plan, {"x0": one.x}, tmp_path)
    assert (mine == one.expected()).all()
