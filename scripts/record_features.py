"""Record what other libraries compute, as the oracle of `mtool preprocess`: tests/preprocessing/features.npz.

Needs pymicro-features, tensorflow, torch, torchaudio and librosa, which mtool itself does not need:

    python scripts/record_features.py

The sounds come from tests/sounds.py.
"""

import importlib.util
from pathlib import Path

import librosa
import numpy as np
import tensorflow as tf
import torch
import torchaudio
from pymicro_features import MicroFrontend

FOLDER = Path(__file__).parents[1] / "tests" / "preprocessing"
RATE, WINDOW, HOP, MELS, COEFFICIENTS = 16000, 256, 128, 20, 8


def main() -> None:
    """Write the file."""
    spec = importlib.util.spec_from_file_location("sounds", FOLDER.parent / "sounds.py")
    sounds = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sounds)
    found = {f"micro_speech/{name}": _micro(pcm) for name, pcm in sounds.PCM.items()}
    x = sounds.PCM["voice"][: sounds.SAMPLES].astype(np.float32) / 32768
    found |= _tensorflow(x) | _of_torchaudio(x) | _of_librosa(x) | _mlperf(x)
    np.savez_compressed(FOLDER / "features.npz", **found)


def _micro(pcm):
    """Return the features, as integers, of 10 ms steps; the first windows begin with silence."""
    front, data, place, rows = MicroFrontend(), np.pad(pcm, (320, 0)).tobytes(), 0, []
    while place + 320 <= len(data):
        made = front.process_samples(data[place : place + 320])
        place += 2 * made.samples_read
        if made.features:
            rows.append(made.features)
    return np.rint(np.asarray(rows) * 25.6).astype(np.uint16)


def _tensorflow(x):
    spectrum = tf.abs(tf.signal.stft(x, WINDOW - 32, HOP))
    weights = tf.signal.linear_to_mel_weight_matrix(MELS, WINDOW // 2 + 1, RATE, 80.0, 7600.0)
    log_mel = tf.math.log(spectrum @ weights + 1e-6)
    mfcc = tf.signal.mfccs_from_log_mel_spectrograms(log_mel)[..., :COEFFICIENTS]
    return _named("tensorflow", spectrum, log_mel, mfcc)


def _of_torchaudio(x):
    make, own = torchaudio.transforms, torch.from_numpy(x)
    spectral = {"n_fft": WINDOW, "hop_length": HOP}
    spectrum = make.Spectrogram(**spectral)(own)
    log_mel = make.AmplitudeToDB("power", 80)(make.MelSpectrogram(RATE, n_mels=MELS, **spectral)(own))
    mfcc = make.MFCC(RATE, COEFFICIENTS, melkwargs={"n_mels": MELS, **spectral})(own)
    return _named("torchaudio", spectrum, log_mel, mfcc)


def _of_librosa(x):
    spectral = {"n_fft": WINDOW, "hop_length": HOP}
    spectrum = np.abs(librosa.stft(x, **spectral)) ** 2
    log_mel = librosa.power_to_db(librosa.feature.melspectrogram(y=x, sr=RATE, n_mels=MELS, **spectral))
    mfcc = librosa.feature.mfcc(y=x, sr=RATE, n_mfcc=COEFFICIENTS, n_mels=MELS, **spectral)
    return _named("librosa", spectrum, log_mel, mfcc)


def _mlperf(x):
    """As get_lfbe_func in benchmark/training/streaming_wakeword/get_dataset.py of mlcommons/tiny."""
    x = tf.pad(x, [[1, 0]])
    x = x[1:] - (1 - 2**-5) * x[:-1]
    window = lambda size, dtype: tf.signal.hamming_window(size, periodic=False, dtype=dtype)  # noqa: E731
    magnitudes = tf.abs(tf.signal.stft(x, 1024, 512, window_fn=window))
    power = tf.maximum(tf.square(magnitudes) / 1024, 1e-30)
    mel = power @ tf.signal.linear_to_mel_weight_matrix(40, 513, RATE, 0.0, RATE / 2)
    log_mel = tf.clip_by_value((10 * tf.math.log(mel) / tf.math.log(10.0) + 52) / 64, 0, 1)
    return {"mlperf/log_mel": np.asarray(log_mel, np.float32)}


def _named(library, *values):
    return {
        f"{library}/{kind}": np.asarray(value, np.float32)
        for kind, value in zip(("spectrogram", "log_mel", "mfcc"), values, strict=True)
    }


if __name__ == "__main__":
    main()
