"""Sounds whose features are recorded in features.npz."""

import numpy as np

SAMPLES = 2560


def _voice(rng: np.random.Generator) -> np.ndarray:
    """A gliding tone with harmonics, whose loudness comes and goes, in noise."""
    t = np.arange(4800) / 16000
    pitch = np.cumsum(120 + 60 * np.sin(2 * np.pi * 3 * t)) / 16000
    tones = sum(np.sin(2 * np.pi * n * pitch) / n for n in range(1, 30))
    return 9000 * np.sin(2 * np.pi * 2 * t) ** 2 * tones + rng.normal(0, 30, t.size)


_RNG = np.random.default_rng(1)
_SOUNDS = {
    "voice": _voice(_RNG),
    "noise": _RNG.integers(-32768, 32768, 2400),
    "clipped": np.clip(_RNG.normal(0, 60000, 2400), -32768, 32767),
    "spikes": np.where(_RNG.random(2400) < 0.003, -32768, 0),
    "quiet": _RNG.integers(-2, 3, 2400),
}
PCM = {name: np.rint(sound).astype(np.int16) for name, sound in _SOUNDS.items()}
