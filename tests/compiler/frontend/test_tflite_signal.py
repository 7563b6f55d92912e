"""TensorFlow Lite Micro's Signal library: goldens of its own tests (signal/micro/kernels/*_test.cc, Apache-2.0), and
KISS FFT's arithmetic, reimplemented."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flatbuffers import flexbuffers
from tflite_models import Array, Op, T, model

import mtool
from mtool import boards
from mtool.base.errors import ModelError
from mtool.compiler.compilation import compile_for
from mtool.compiler.frontend import load
from mtool.compiler.operators.signal import radices_of

I16, I32, U32, U64, F32 = np.int16, np.int32, np.uint32, np.uint64, np.float32
KINDS = {I16: 7, I32: 2, F32: 0}  # TensorType, as the operators write it
R = np.random.default_rng(11)


def signal(kind: str, inputs: Sequence[str], outputs: Sequence[str], **options: Any) -> Op:
    custom = flexbuffers.Dumps(options) if options else b""
    return Op(f"CUSTOM Signal{kind}", inputs, outputs, custom=custom)


class Chain:
    """Operators side by side in one model; each has one input `x`, and outputs with what is expected of them."""

    def __init__(self) -> None:
        self.tensors: list[T] = []
        self.ops: list[Op] = []
        self.feeds: dict[str, Array] = {}
        self.golden: dict[str, Array] = {}

    def add(
        self, kind: str, x: Array, golden: Sequence[Array], *others: Array, samples: bool = False, **options: Any
    ) -> None:
        """Add an operator; with `samples`, the first dimension of `x` and of the outputs is that of the calls."""
        name = f"{kind}{len(self.ops)}"
        drop = int(samples)
        made = [T(f"{name}.y{n}", data.shape[drop:], data.dtype) for n, data in enumerate(golden)]
        constants = [T(f"{name}.c{n}", data.shape, data.dtype, data=data) for n, data in enumerate(others)]
        put = T(f"{name}.x", x.shape[drop:], x.dtype)
        self.tensors += [put, *made, *constants]
        self.ops.append(signal(kind, [t.name for t in (put, *constants)], [t.name for t in made], **options))
        self.feeds[put.name] = x
        self.golden |= {t.name: data for t, data in zip(made, golden, strict=True)}

    def check(self, folder: Path, calls: int = 0, board: str = "host") -> None:
        """Run the model on a board, `calls` times one after the other, and compare."""
        path = folder / "m.tflite"
        path.write_bytes(model(self.tensors, self.ops, [*self.feeds], [*self.golden]))
        samples = [{name: data[n] if calls else data for name, data in self.feeds.items()} for n in range(calls or 1)]
        ran = mtool.run(path, board=board, inputs=samples, deployment=mtool.Deployment(folder / "project"))
        for name, golden in self.golden.items():
            found = np.stack([sample[name] for sample in ran.outputs])
            np.testing.assert_array_equal(found.reshape(golden.shape), golden, name)


@pytest.mark.slow
def test_the_goldens_of_tflm(tmp_path: Path) -> None:
    c = Chain()
    ramp = np.arange(16, dtype=I16) * I16(256)
    falling = np.ascontiguousarray(ramp[::-1])
    window = np.array([0, 224, 416, 576, 704, 800, 864, 896, 896, 864, 800, 704, 576, 416, 224, 0], I16)
    c.add("Window", ramp, [window], falling, shift=12)
    c.add("Window", np.tile(ramp, (2, 2, 1)), [np.tile(window, (2, 2, 1))], falling, shift=12)
    for start, end, energies in ((2, 4, [0, 0, 61, 113, 0, 0, 0, 0]), (4, 8, [0, 0, 0, 0, 181, 265, 365, 481])):
        c.add("Energy", np.arange(1, 17, dtype=I16), [np.array(energies, U32)], start_index=start, end_index=end)
    squares = [13051415151, 14932650877, 18954728418, 8730126017, 6529665275, 12952546517, 10314975609, 8919697835]
    roots = [3570, 3818, 4302, 2919, 2525, 3556, 3173, 2951]
    c.add("FilterBankSquareRoot", np.array(squares, U64), [np.array(roots, U32)], np.array(5, I32))
    logs = [
        32767,
        15121,
        13440,
        21095,
        32767,
        32767,
        19701,
        28407,
        29482,
        32767,
        32767,
        16720,
        32767,
        3434,
        11669,
        24955,
    ]
    powers = [48, 20, 19, 24, 35, 47, 23, 30, 31, 10, 48, 21, 46, 14, 18, 27]
    c.add("FilterBankLog", np.array(powers, U32), [np.array(logs, I16)], output_scale=32768, input_correction_bits=5)
    powers, logs = [29, 21, 40, 19, 5, 4, 6, 2], [8715, 8198, 9229, 8038, 5902, 5545, 6194, 4436]
    c.add("FilterBankLog", np.array(powers, U32), [np.array(logs, I16)], output_scale=1600, input_correction_bits=3)
    noisy = [393, 213, 408, 1, 361, 385, 386, 326, 170, 368, 368, 305, 152, 322, 213, 319]
    clean = [378, 205, 392, 1, 347, 370, 371, 313, 164, 354, 354, 293, 146, 310, 205, 307]
    noise = [15, 8, 16, 0, 14, 15, 15, 13, 6, 14, 14, 12, 6, 12, 8, 12]
    c.add(
        "FilterBankSpectralSubtraction", np.array(noisy, U32), [np.array(clean, U32), np.array(noise, U32)],
        alternate_one_minus_smoothing=15729, alternate_smoothing=655, clamping=0, min_signal_remaining=819,
        num_channels=16, one_minus_smoothing=15729, smoothing=655, smoothing_bits=0, spectral_subtraction_bits=14,
    )  # fmt: skip
    impulse, flat = np.zeros(64), np.zeros((33, 2))
    impulse[0], flat[:, 0] = 16384, 256
    c.add("Rfft", impulse.astype(F32), [(flat * 64).reshape(-1).astype(F32)], T=KINDS[F32], fft_length=64)
    for dtype in (I16, I32):
        c.add("Rfft", impulse.astype(dtype), [flat.reshape(-1).astype(dtype)], T=KINDS[dtype], fft_length=64)
    impulse[0] = 256
    c.add("Irfft", flat.reshape(-1).astype(F32), [impulse.astype(F32)], T=KINDS[F32], fft_length=64)
    c.check(tmp_path)


def test_the_goldens_of_a_filter_bank_and_of_gains(tmp_path: Path) -> None:
    c = Chain()
    widths = np.array([1, 1, 2, 2, 1, 2, 2, 2, 2], I16)
    offsets, starts = np.array([0, 1, 2, 4, 6, 7, 9, 11, 13], I16), np.array([5, 6, 7, 9, 11, 12, 14, 16, 18], I16)
    weights = [-2210, 1711, 3237, 1247, 2507, 61, 1019, 899, 206, 146, 2849, 2756, 1260, 1280, 1951]
    unweights = [408, 3574, 1880, 2561, 2011, 3394, 1019, 445, 3901, 343, 1874, 3846, 3566, 1830, 327]
    energies = [645050, 4644, 3653, 24262, 56660, 43260, 50584, 57902, 31702, 5401, 45555, 34852, 8518, 43556, 13358]
    energies += [19350, 40221, 18017, 27284, 64491]
    golden = [104199304, 407748384, 206363744, 200989269, 52144406, 230780884, 174394190, 379684049]
    tables = (np.array(weights, I16), np.array(unweights, I16), starts, offsets, widths)
    c.add("FilterBank", np.array(energies, U32), [np.array(golden, U64)], *tables, num_channels=8)
    gains = np.zeros(125, I16)  # of the test's table, those for noise of 13 to 15 bits
    gains[46:58] = [23707, -6265, 1230, -21589, 18672, -7458, 1952, -21589, 13166, -7030, 2212, -21589]
    noise, loud = np.array([7310, 18308, 7796, 17878], U32), np.array([286, 298, 305, 291], U32)
    c.add("PCAN", loud, [np.array([1301, 836, 1354, 827], U32)], noise, gains, snr_shift=6)
    c.check(tmp_path)


def test_what_is_kept_from_call_to_call(tmp_path: Path) -> None:
    """Goldens of framer_test.cc, delay_test.cc, overlap_add_test.cc, stacker_test.cc."""
    c = Chain()
    samples = np.array([0, 0, 0x1234, 0x5678, 0x4321, 0x7777], I16)
    frames = np.stack([samples[n : n + 3] for n in range(4)])
    valid = np.array([False, False, True, True])
    c.add(
        "Framer", samples[2:, None], [frames[:, None], valid], samples=True, frame_size=3, frame_step=1, prefill=False
    )
    c.add(
        "Framer", samples[2:, None], [frames[:, None], np.ones(4, bool)],
        samples=True, frame_size=3, frame_step=1, prefill=True,
    )  # fmt: skip
    delayed = np.zeros(16, I16)
    delayed[3:11] = np.arange(1, 9)
    given = np.r_[np.arange(1, 9), np.zeros(8)].astype(I16)
    c.add("Delay", given.reshape(4, 4), [delayed.reshape(4, 4)], samples=True, delay_length=3)
    rows = np.stack([given, -given]).reshape(2, 4, 4).transpose(1, 0, 2)
    later = np.stack([delayed, -delayed]).reshape(2, 4, 4).transpose(1, 0, 2)
    c.add("Delay", rows, [later], samples=True, delay_length=3)
    parts = np.array([125, -12, -895, 1000, 65, -212, 63, 71, 52, 1, -17, 32], I16).reshape(4, 1, 3)
    sums = np.array([125, 988, -767, -140], I16).reshape(4, 1)
    c.add("OverlapAdd", parts, [sums], samples=True, T=KINDS[I16], frame_step=1)
    loud = np.full((4, 1, 3), 30000, I16)
    most = np.array([[30000], [32767], [32767], [32767]], I16)
    c.add("OverlapAdd", loud, [most], samples=True, T=KINDS[I16], frame_step=1)
    c.add("OverlapAdd", parts.astype(F32), [sums.astype(F32)], samples=True, T=KINDS[F32], frame_step=1)
    channels = np.arange(12, dtype=I16).reshape(4, 3)
    before = np.vstack([channels[:1], channels[:-1]])
    for step, ready in ((1, [1, 1, 1, 1]), (2, [1, 0, 1, 0])):
        c.add(
            "Stacker", channels, [np.hstack([before, channels]), np.array(ready, bool)], samples=True,
            num_channels=3, stacker_left_context=1, stacker_right_context=0, stacker_step=step,
        )  # fmt: skip
    c.check(tmp_path, calls=4)


def test_the_scale_of_a_frame_by_its_largest_sample(tmp_path: Path) -> None:
    c = Chain()
    for largest, places in ((1, 14), (-300, 6), (16384, 0), (32767, 0), (0, 0)):
        x = np.array([0, largest, 0, -1 if largest else 0], I16)
        c.add("FftAutoScale", x, [(x.astype(I32) << places).astype(I16), np.array(places, I32)])
    c.check(tmp_path)


class Fixed:
    """KISS FFT in exact integers, by its definition: a DFT by DFTs of its parts, with a rounding for each product."""

    def __init__(self, bits: int, inverse: bool) -> None:
        self.places, self.most, self.sign = bits - 1, 2 ** (bits - 1) - 1, 1 if inverse else -1

    def wrapped(self, x: int) -> int:
        return (x + self.most + 1) % (2 * self.most + 2) - self.most - 1

    def rounded(self, x: int) -> int:
        return self.wrapped((x + (1 << (self.places - 1))) >> self.places)

    def point(self, turn: float) -> tuple[int, int]:
        phase = self.sign * turn
        return math.floor(0.5 + self.most * math.cos(phase)), math.floor(0.5 + self.most * math.sin(phase))

    def times(self, a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
        return self.rounded(a[0] * b[0] - a[1] * b[1]), self.rounded(a[0] * b[1] + a[1] * b[0])

    def shared(self, a: tuple[int, int], parts: int) -> tuple[int, int]:
        return self.rounded(a[0] * (self.most // parts)), self.rounded(a[1] * (self.most // parts))

    def sum(self, *terms: tuple[int, int]) -> tuple[int, int]:
        return self.wrapped(sum(t[0] for t in terms)), self.wrapped(sum(t[1] for t in terms))

    def transform(self, x: list[tuple[int, int]], radices: Sequence[int], whole: int) -> list[tuple[int, int]]:
        """Return the transform of complex numbers by stages of 2 and 4, whose sums need no further products."""
        if not radices:
            return x
        p, m = radices[0], len(x) // radices[0]
        parts = [self.transform(x[n::p], radices[1:], whole) for n in range(p)]
        made = [(0, 0)] * len(x)
        for k in range(m):
            one = self.shared(parts[0][k], p)
            turned = [
                self.times(self.shared(parts[n][k], p), self.point(2 * math.pi * n * k / len(x))) for n in range(1, p)
            ]
            for q in range(p):
                terms = [one]
                for n, (r, i) in enumerate(turned, 1):
                    quarter = (n * q * (4 // p)) % 4
                    if self.sign > 0:
                        quarter = -quarter % 4
                    terms.append([(r, i), (i, -r), (-r, -i), (-i, r)][quarter])
                made[k + q * m] = self.sum(*terms)
        return made

    def real(self, x: Sequence[int]) -> list[int]:
        """Return the spectrum of real numbers."""
        half = len(x) // 2
        z = self.transform([(x[2 * n], x[2 * n + 1]) for n in range(half)], radices_of(half), half)
        r, i = self.shared(z[0], 2)
        made = [(0, 0)] * (half + 1)
        made[0], made[half] = (self.wrapped(r + i), 0), (self.wrapped(r - i), 0)
        for k in range(1, half // 2 + 1):
            one, two = self.shared(z[k], 2), self.shared((z[half - k][0], self.wrapped(-z[half - k][1])), 2)
            total, less = self.sum(one, two), self.sum(one, (-two[0], -two[1]))
            t = self.times(less, self.point(math.pi * (k / half + 0.5)))
            made[k] = (total[0] + t[0]) >> 1, (total[1] + t[1]) >> 1
            made[half - k] = (total[0] - t[0]) >> 1, (t[1] - total[1]) >> 1
        return [self.wrapped(number) for pair in made for number in pair]


@pytest.mark.parametrize(("dtype", "bits"), [(I16, 16), (I32, 32)])
def test_a_transform_is_kiss_fft_s_to_the_bit(dtype: Any, bits: int, tmp_path: Path) -> None:
    c = Chain()
    for length, given in ((8, 8), (64, 50), (256, 256), (1024, 1000), (2048, 2048)):
        most = np.iinfo(dtype).max
        x = R.integers(-most - 1, most, given, endpoint=True).astype(dtype)
        padded = [int(number) for number in x] + [0] * (length - given)
        c.add("Rfft", x, [np.array(Fixed(bits, False).real(padded), dtype)], T=KINDS[dtype], fft_length=length)
    c.check(tmp_path)


@pytest.mark.parametrize(("core", "board"), [("M4", "mps2_an386"), ("M55", "mps3_an547"), ("RV32IMC", "qemu_riscv32")])
def test_the_estimate_of_a_transform_is_near_its_count(core: str, board: str, tmp_path: Path) -> None:
    counted = json.loads((Path(__file__).parents[3] / "docs" / "layers.json").read_text())
    for length in (256, 512, 1024, 2048):
        tensors = [T("x", [length], I16), T("y", [length + 2], I16)]
        path = tmp_path / "m.tflite"
        path.write_bytes(model(tensors, [signal("Rfft", ["x"], ["y"], T=7, fft_length=length)], ["x"], ["y"]))
        ((_, emitted),) = compile_for(path, [boards.get(board)], mtool.Options())
        assert emitted.cost == pytest.approx(counted[f"real FFT of {length:,}, int16, {core}"]["now"], rel=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("board", ["mps2_an386", "mps3_an547", "qemu_riscv32"])
def test_transforms_on_boards_have_the_same_bits(board: str, tmp_path: Path) -> None:
    c, chance = Chain(), np.random.default_rng(3)
    for length in (32, 64, 128, 256, 512, 1024, 2048):
        loud = np.where(chance.integers(0, 2, length), 32767, -32768).astype(I16)
        beats = np.where(np.arange(length) // 2 % 2, 32767, -32768).astype(I16)
        for x in (chance.integers(-32768, 32768, length).astype(I16), loud, beats, np.full(length, -32768, I16)):
            golden = np.array(Fixed(16, False).real([int(number) for number in x]), I16)
            c.add("Rfft", x, [golden], T=KINDS[I16], fft_length=length)
    c.check(tmp_path, board=board)


@pytest.mark.slow
@pytest.mark.parametrize("board", ["host", "mps3_an547"])
def test_transforms_of_floats_are_numpy_s(board: str, tmp_path: Path) -> None:
    lengths = (4, 12, 30, 32, 40, 64, 90, 256, 480, 512)
    tensors, ops, feeds = [], [], {}
    for n in lengths:
        tensors += [T(f"x{n}", [n]), T(f"y{n}", [n + 2]), T(f"z{n}", [n])]
        ops += [
            signal("Rfft", [f"x{n}"], [f"y{n}"], T=0, fft_length=n),
            signal("Irfft", [f"y{n}"], [f"z{n}"], T=0, fft_length=n),
        ]
        feeds[f"x{n}"] = R.standard_normal(n).astype(F32)
    path = tmp_path / "m.tflite"
    path.write_bytes(model(tensors, ops, [*feeds], [f"{s}{n}" for n in lengths for s in "yz"]))
    (found,) = mtool.run(path, board=board, inputs=[feeds], deployment=mtool.Deployment(tmp_path / "p")).outputs
    for n in lengths:
        spectrum = np.fft.rfft(feeds[f"x{n}"].astype(float))
        np.testing.assert_allclose(found[f"y{n}"][0::2] + 1j * found[f"y{n}"][1::2], spectrum, atol=1e-5 * n)
        np.testing.assert_allclose(found[f"z{n}"], feeds[f"x{n}"], atol=1e-5)


def windowed(custom: bytes, length: int = 4) -> bytes:
    tensors = [T("x", [4], I16), T("w", [length], I16, data=np.ones(length, I16)), T("y", [4], I16)]
    return model(tensors, [Op("CUSTOM SignalWindow", ["x", "w"], ["y"], custom=custom)], ["x"], ["y"])


@pytest.mark.parametrize("seed", range(4))
def test_damaged_options_are_reported(seed: int, tmp_path: Path) -> None:
    good = flexbuffers.Dumps({"shift": 12})
    chance = np.random.default_rng(seed)
    path = tmp_path / "m.tflite"
    for n in range(40):
        bad = bytearray(good if n % 2 else chance.bytes(int(chance.integers(1, 40))))
        bad[int(chance.integers(len(bad)))] = int(chance.integers(256))
        path.write_bytes(windowed(bytes(bad)))
        try:
            load(path)
        except ModelError as found:
            assert "damaged" in str(found) or "shift" in str(found)


@pytest.mark.parametrize(
    ("data", "reported"),
    [
        (windowed(flexbuffers.Dumps({"shift": 40})), "its option 'shift' is 40; expected 0 to 31"),
        (windowed(b""), "its option 'shift' is not given"),
        (windowed(flexbuffers.Dumps([1, 2])), "expected a flexbuffer map"),
        (windowed(flexbuffers.Dumps({"shift": 12}), 3), "its window [3] does not fit its input [4]"),
    ],
)
def test_what_does_not_fit_is_refused(data: bytes, reported: str, tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    path.write_bytes(data)
    with pytest.raises(ModelError) as found:
        load(path)
    assert reported in str(found.value)


@pytest.mark.parametrize("length", [2, 7, 14, 22])
def test_a_transform_of_another_length_is_refused(length: int, tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    tensors = [T("x", [length], I16), T("y", [length + 2], I16)]
    path.write_bytes(model(tensors, [signal("Rfft", ["x"], ["y"], T=7, fft_length=length)], ["x"], ["y"]))
    with pytest.raises(ModelError, match=r"fft_length|its transform has"):
        load(path)


FRAME, STEP, CHANNELS, WORDS = 64, 32, 4, 3


def spotter(network: bool) -> bytes:
    """Return features of sound, frame by frame, and with `network` the words that a dense layer makes of them."""
    bins = FRAME // 2 + 1
    window = (np.hanning(FRAME) * 4095).astype(I16)
    whole = {
        "w": window, "weights": np.full(20, 2048, I16), "unweights": np.full(20, 2048, I16),
        "starts": np.arange(2, 22, 4, I16), "offsets": np.arange(0, 20, 4, I16), "widths": np.full(5, 4, I16),
        "shape": np.array([FRAME], I32),
    }  # fmt: skip
    tables = ["weights", "unweights", "starts", "offsets", "widths"]
    tensors = [T(name, data.shape, data.dtype, data=data) for name, data in whole.items()]
    tensors += [T("x", [STEP], I16), T("framed", [1, FRAME], I16), T("valid", [], np.bool_), T("flat", [FRAME], I16)]
    tensors += [T("windowed", [FRAME], I16), T("scaled", [FRAME], I16), T("bits", [], I32)]
    tensors += [T("spectrum", [2 * bins], I16), T("energy", [bins], U32), T("bank", [CHANNELS], U64)]
    tensors += [T(name, [CHANNELS], U32) for name in ("root", "clean", "noise")] + [T("logs", [CHANNELS], I16)]
    ops = [
        signal("Framer", ["x"], ["framed", "valid"], frame_size=FRAME, frame_step=STEP, prefill=True),
        Op("RESHAPE", ["framed", "shape"], ["flat"], "ReshapeOptions"),
        signal("Window", ["flat", "w"], ["windowed"], shift=12),
        signal("FftAutoScale", ["windowed"], ["scaled", "bits"]),
        signal("Rfft", ["scaled"], ["spectrum"], T=7, fft_length=FRAME),
        signal("Energy", ["spectrum"], ["energy"], start_index=1, end_index=bins),
        signal("FilterBank", ["energy", *tables], ["bank"], num_channels=CHANNELS),
        signal("FilterBankSquareRoot", ["bank", "bits"], ["root"]),
        signal(
            "FilterBankSpectralSubtraction", ["root"], ["clean", "noise"], alternate_one_minus_smoothing=15401,
            alternate_smoothing=983, clamping=False, min_signal_remaining=819, num_channels=CHANNELS,
            one_minus_smoothing=15975, smoothing=409, smoothing_bits=10, spectral_subtraction_bits=14,
        ),
        signal("FilterBankLog", ["clean"], ["logs"], input_correction_bits=3, output_scale=64),
    ]  # fmt: skip
    if network:
        dense = np.linspace(-1, 1, WORDS * CHANNELS).astype(F32).reshape(WORDS, CHANNELS)
        tensors += [
            T("real", [CHANNELS]),
            T("dense", dense.shape, data=dense),
            T("row", [2], I32, data=np.array([1, 4])),
        ]
        tensors += [T("batch", [1, CHANNELS]), T("word", [1, WORDS])]
        ops += [
            Op("CAST", ["logs"], ["real"], "CastOptions"),
            Op("RESHAPE", ["real", "row"], ["batch"], "ReshapeOptions"),
        ]
        ops.append(Op("FULLY_CONNECTED", ["batch", "dense", ""], ["word"], "FullyConnectedOptions"))
    return model(tensors, ops, ["x"], ["word" if network else "logs"])


@pytest.mark.slow
def test_a_word_of_samples_in_one_model(tmp_path: Path) -> None:
    sound = (R.standard_normal(6 * STEP) * 3000 * np.sin(np.arange(6 * STEP) / 40)).astype(I16).reshape(6, STEP)
    found = {}
    for network, name in ((False, "logs"), (True, "word")):
        path = tmp_path / f"{name}.tflite"
        path.write_bytes(spotter(network))
        deployment = mtool.Deployment(tmp_path / name)
        ran = mtool.run(path, board="host", inputs=[{"x": x} for x in sound], deployment=deployment)
        found[name] = np.stack([sample[name].reshape(-1) for sample in ran.outputs])
    dense = np.linspace(-1, 1, WORDS * CHANNELS).reshape(WORDS, CHANNELS)
    np.testing.assert_allclose(found["word"], found["logs"] @ dense.T, rtol=1e-5, atol=1e-3)
    assert len(np.unique(found["logs"])) > 10  # the features follow the sound
