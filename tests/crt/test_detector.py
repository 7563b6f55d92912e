"""Post-processing (crt/apps/mt_detector.c) on the host, against the same in Python."""

import ctypes
import subprocess
from collections import deque
from pathlib import Path

import numpy as np
import pytest

CRT = Path(__file__).parents[2] / "crt"
ONE = 32768
MOST = 64


class Settings(ctypes.Structure):
    _fields_ = [
        ("threshold", ctypes.c_uint16),
        ("release", ctypes.c_uint16),
        ("refractory", ctypes.c_uint16),
        ("smoothing", ctypes.c_uint8),
    ]


class Detector(ctypes.Structure):
    _fields_ = [("settings", Settings), ("private", ctypes.c_uint8 * (2 * MOST + 16))]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    path = tmp_path_factory.mktemp("detector") / "detector.so"
    flags = ["-std=c99", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror", "-shared", "-fPIC"]
    subprocess.run(["cc", *flags, f"-I{CRT / 'apps'}", CRT / "apps" / "mt_detector.c", "-o", path], check=True)
    return ctypes.CDLL(str(path))


def found(library: ctypes.CDLL, scores: list[int], *settings: int) -> list[int]:
    """Return the results at which something is detected."""
    detector = Detector(Settings(*settings))
    library.mt_detector_reset(ctypes.byref(detector))
    made = []
    for score in scores:
        made.append(library.mt_detector_next(ctypes.byref(detector), score))
    return [number for number, one in enumerate(made) if one]


def expected(scores: list[int], threshold: int, release: int, refractory: int, smoothing: int) -> list[int]:
    last, armed, before, made = deque([0] * smoothing, smoothing), True, -(10**9), []
    for number, score in enumerate(scores):
        last.append(min(max(score, 0), ONE))
        mean = sum(last) / smoothing
        armed = armed or mean < release
        if armed and mean >= threshold and number - before >= refractory:
            armed, before = False, number
            made.append(number)
    return made


@pytest.mark.parametrize(
    ("scores", "settings", "detections"),
    [
        ([0, ONE, ONE, 0, ONE], (ONE, ONE, 0, 1), [1, 4]),
        ([ONE, 20000, ONE, 9999, ONE], (30000, 10000, 0, 1), [0, 4]),  # hysteresis
        ([ONE, 0, ONE, 0, 0, ONE], (30000, 10000, 4, 1), [0, 5]),  # refractory time
        ([ONE, ONE, ONE, ONE], (ONE, 1, 0, 4), [3]),  # the scores before the first are 0
        ([10**6, -(10**6)], (ONE, 1, 0, 1), [0]),
    ],
)
def test_the_parts(library: ctypes.CDLL, scores: list[int], settings: tuple[int, ...], detections: list[int]) -> None:
    assert found(library, scores, *settings) == detections == expected(scores, *settings)


def test_random_scores(library: ctypes.CDLL) -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        scores = np.cumsum(rng.integers(-9000, 9000, 300)) % (ONE + 1000)
        threshold = int(rng.integers(1, ONE + 1))
        settings = (
            threshold,
            int(rng.integers(1, threshold + 1)),
            int(rng.integers(0, 30)),
            int(rng.integers(1, MOST + 1)),
        )
        assert found(library, scores.tolist(), *settings) == expected(scores.tolist(), *settings), settings
