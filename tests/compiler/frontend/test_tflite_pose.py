"""PosenetDecoderOp against libcoral's algorithm in NumPy, after its posenet_decoder.cc (Apache-2.0).

`decoded` has given the same bits as that file, compiled by GCC, on some hundred of such maps.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flatbuffers import flexbuffers
from tflite_cases import compute
from tflite_models import Array, Op, T, model

from mtool.base.errors import ModelError
from mtool.compiler.frontend import load
from mtool.compiler.kernels.target import Target

HOST = Target("host", frozenset())
F = np.float32
EDGES = (
    (0, 1), (1, 3), (0, 2), (2, 4), (0, 5), (5, 7), (7, 9), (5, 11), (11, 13), (13, 15), (0, 6), (6, 8), (8, 10),
    (6, 12), (12, 14), (14, 16),
)  # fmt: skip
OPTIONS: dict[str, Any] = {"max_detections": 6, "score_threshold": 0.3, "stride": 16, "nms_radius": 20.0}
CHANNELS = (17, 34, 64, 34)
NAMES = ("heatmaps", "shorts", "mids", "longs")
GRIDS = ((0.09, 180), (0.7, 134), (1.5, 118), (0.9, 120))


class Queue:
    """GCC's std::priority_queue of keypoints, so that those of equal scores come in its order."""

    def __init__(self) -> None:
        self.heap: list[tuple[F, Any]] = []

    def _rise(self, hole: int, one: tuple[F, Any]) -> None:
        while hole > 0 and self.heap[(hole - 1) // 2][0] < one[0]:
            self.heap[hole] = self.heap[(hole - 1) // 2]
            hole = (hole - 1) // 2
        self.heap[hole] = one

    def push(self, score: F, what: Any) -> None:
        self.heap.append((score, what))
        self._rise(len(self.heap) - 1, (score, what))

    def pop(self) -> Any:
        top, one = self.heap[0][1], self.heap.pop()
        length, hole = len(self.heap), 0
        if not length:
            return top
        while 2 * hole + 1 < length:
            child = 2 * hole + 2
            if child == length or self.heap[child][0] < self.heap[child - 1][0]:
                child -= 1
            self.heap[hole] = self.heap[child]
            hole = child
        self._rise(hole, one)
        return top


def sampled(volume: Array, point: tuple[Any, Any], channels: list[int]) -> list[Any]:
    (y, x), one = point, F(1)
    top, left, below, beside = (one.astype(int) for one in (np.floor(y), np.floor(x), np.ceil(y), np.ceil(x)))
    down, right = y - top.astype(F), x - left.astype(F)
    return [
        (one - down) * ((one - right) * volume[top, left, c] + right * volume[top, beside, c])
        + down * ((one - right) * volume[below, left, c] + right * volume[below, beside, c])
        for c in channels
    ]


def moved(volume: Array, point: tuple[Any, Any], channels: list[int]) -> tuple[Any, Any]:
    by = sampled(volume, point, channels)
    height, width = volume.shape[:2]
    return np.clip(point[0] + by[0], F(0), F(height - 1)), np.clip(point[1] + by[1], F(0), F(width - 1))


def walked(heat: Array, shorts: Array, mids: Array, root: tuple[F, F], kind: int) -> tuple[dict[int, Any], list[F]]:
    """Find all keypoints from one, along the edges of the skeleton in both directions."""
    points, waiting = {kind: root}, [kind]
    while waiting:
        at = waiting.pop()
        for number, (a, b) in enumerate(EDGES):
            for begin, end, channel in ((a, b, number), (b, a, number + 32)):
                if begin == at and end not in points:
                    point = moved(mids, points[at], [channel, channel + 16])
                    for _ in range(5):
                        point = moved(shorts, point, [end, end + 17])
                    points[end] = point
                    waiting.append(end)
    odds = [sampled(heat, points[k], [k])[0] for k in range(17)]
    return points, [F(1) / (F(1) + np.exp(-one)) for one in odds]


def near(a: tuple[F, F], b: tuple[F, F], radius: F) -> bool:
    dy, dx = b[0] - a[0], b[1] - a[1]
    return bool(dy * dy + dx * dx <= radius * radius)


def mean(scores: list[F], counts: list[bool]) -> F:
    total = F(0)
    for k in sorted(range(17), key=lambda k: -scores[k]):
        total = total + (scores[k] if counts[k] else F(0))
    return F(total / F(17))


def decoded(maps: list[Array], options: dict[str, Any]) -> list[Array]:
    """Return keypoints, their scores, poses' scores, how many there are, and their masks if there is a fourth map."""
    heat, shorts, mids = (one[0] for one in maps[:3])
    height, width, _ = heat.shape
    threshold, stride = F(options["score_threshold"]), options["stride"]
    radius = F(options["nms_radius"]) / F(stride)
    least = F(-math.log(1 / (float(threshold) + 1e-6) - 1))
    queue = Queue()
    for y, x, k in np.ndindex(heat.shape):
        if heat[y, x, k] >= least and heat[y, x, k] >= heat[max(y - 1, 0) : y + 2, max(x - 1, 0) : x + 2, k].max():
            dy, dx = shorts[y, x, k], shorts[y, x, k + 17]
            point = np.clip(F(y) + dy, F(0), F(height - 1)), np.clip(F(x) + dx, F(0), F(width - 1))
            queue.push(heat[y, x, k], (point, k))
    poses: list[tuple[dict[int, Any], list[F], F]] = []
    while queue.heap and len(poses) < options["max_detections"]:
        root, kind = queue.pop()
        if not any(near(root, points[kind], radius) for points, _, _ in poses):
            points, scores = walked(heat, shorts, mids, root, kind)
            first = mean(scores, [True] * 17)
            poses += [(points, scores, first)] if first >= threshold else []
    poses.sort(key=lambda pose: -pose[2])
    final = []
    for rank, (points, scores, _) in enumerate(poses):
        free = [not any(near(points[k], other[0][k], radius) for other in poses[:rank]) for k in range(17)]
        final.append((points, scores, mean(scores, free)))
    kept = sorted((pose for pose in final if pose[2] >= threshold), key=lambda pose: -pose[2])
    most = options["max_detections"]
    made = [np.zeros(shape, F) for shape in ((1, most, 17, 2), (1, most, 17), (1, most), (1,), (1, most, 33, 33))]
    made[3][0] = len(kept)
    for n, (points, scores, score) in enumerate(kept):
        made[0][0, n] = [[c * F(stride) for c in points[k]] for k in range(17)]
        made[1][0, n], made[2][0, n] = scores, score
    if len(maps) < 4:
        return made[:4]
    apart = np.zeros((len(kept), 33, 33), F)
    for k in range(17):
        y, x = np.indices((33, 33)).astype(F)
        for _ in range(3):
            y, x = moved(maps[3][0], (y, x), [k, k + 17])
        for n in range(len(kept)):
            dy, dx = made[0][0, n, k, 0] - y * F(stride), made[0][0, n, k, 1] - x * F(stride)
            apart[n] += dy * dy + dx * dx
    made[4][0, : len(kept)] = np.argmin(apart, 0) == np.arange(len(kept))[:, None, None]
    return made


def network(height: int, width: int, count: int, quantized: bool, options: dict[str, Any]) -> bytes:
    sizes = [(height, width)] * 3 + [(33, 33)]
    tensors = [
        T(name, [1, *size, channels], np.uint8, scale, zero) if quantized else T(name, [1, *size, channels])
        for name, size, channels, (scale, zero) in zip(NAMES[:count], sizes, CHANNELS, GRIDS, strict=False)
    ]
    outputs = ["poses", "poses:1", "poses:2", "poses:3", "poses:4"][: count + 1]
    tensors += [T(name, []) for name in outputs]  # of no shape, as the converter writes them
    op = Op("CUSTOM PosenetDecoderOp", NAMES[:count], outputs, custom=flexbuffers.Dumps(options))
    return model(tensors, [op], NAMES[:count], outputs)


def drawn(height: int, width: int, count: int, quantized: bool, random: np.random.Generator) -> list[Array]:
    """Draw maps: scores about zero, with plateaus if they are quantized, and offsets of a few places."""
    sizes = [(height, width)] * 3 + [(33, 33)]
    spreads = (2.0, 10.0, 25.0, 20.0)
    maps = [
        random.normal(0, spread, (1, *size, channels)).astype(F)
        for size, channels, spread in zip(sizes[:count], CHANNELS, spreads, strict=False)
    ]
    if not quantized:
        return maps
    return [
        np.clip(np.round(one / scale) + zero, 0, 255).astype(np.uint8)
        for one, (scale, zero) in zip(maps, GRIDS, strict=False)
    ]


def real(maps: list[Array], stride: int) -> list[Array]:
    """Return maps as libcoral has them: offsets in places, not pixels."""
    found = []
    for n, one in enumerate(maps):
        unit = F(1) if n == 0 else F(1 / stride)
        scale, zero = GRIDS[n]
        found.append((one.astype(F) - F(zero)) * (F(scale) * unit) if one.dtype == np.uint8 else one * unit)
    return found


@pytest.mark.parametrize(
    ("count", "quantized", "change"),
    [
        (3, True, {}),
        (3, False, {"nms_radius": 0.0, "max_detections": 20}),
        (4, True, {"stride": 8, "score_threshold": 0.3, "nms_radius": 12.0}),
        (3, True, {"score_threshold": 0.99}),
    ],
    ids=["ties", "floats", "masks", "none"],
)
def test_poses_are_libcoral_s(count: int, quantized: bool, change: dict[str, Any], tmp_path: Path) -> None:
    options = OPTIONS | change
    maps = drawn(9, 7, count, quantized, np.random.default_rng(5))
    expected = decoded(real(maps, options["stride"]), options)
    data = network(9, 7, count, quantized, options)
    found = compute(data, dict(zip(NAMES, maps, strict=False)), tmp_path, "tflite", HOST)
    assert found[3] == expected[3] and bool(found[3] > 2) == (change.get("score_threshold") != 0.99)
    for mine, theirs, step in zip(found, expected, (0, 3e-7, 3e-7, 0, 0), strict=False):
        assert mine.shape == theirs.shape
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=step)  # NumPy's exp is not C's


def test_offsets_that_are_not_numbers_stay_in_the_map(tmp_path: Path) -> None:
    maps = drawn(5, 4, 3, False, np.random.default_rng(2))
    for one, value in zip(maps[1:], (np.nan, np.inf), strict=True):
        one[:, ::2] = value
    maps[0][0, 3, 1, 4] = np.nan
    found = compute(network(5, 4, 3, False, OPTIONS), dict(zip(NAMES, maps, strict=False)), tmp_path, "onnx", HOST)
    assert found[3] > 0 and np.isfinite(found[0]).all() and (found[0] >= 0).all() and (found[0] <= 64).all()


@pytest.mark.parametrize(
    ("change", "reported"),
    [
        ({"max_detections": 0}, "its option 'max_detections' is 0; expected 1 to 1024"),
        ({"stride": 2.0**40}, "its option 'stride'"),
        ({"score_threshold": -0.5}, "its option 'score_threshold' is -0.5; expected 0 to 1"),
        ({"score_threshold": 1.0}, "which no score reaches"),
        ({"nms_radius": math.nan}, "its option 'nms_radius' is nan"),
    ],
)
def test_options_that_make_no_sense_are_reported(change: dict[str, Any], reported: str, tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    path.write_bytes(network(4, 4, 3, True, OPTIONS | change))
    with pytest.raises(ModelError) as found:
        load(path)
    assert reported in str(found.value)
