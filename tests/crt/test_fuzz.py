"""The corpus of the fuzz targets (fuzz/), replayed under sanitizers; `make fuzz` continues from it."""

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests import sanitized

ROOT = Path(__file__).parents[2]
CORPUS = ROOT / "fuzz" / "corpus"
TARGETS = sorted(path.stem for path in (ROOT / "fuzz").glob("*.c"))


@pytest.mark.long
def test_no_input_of_the_corpus_harms(tmp_path: Path) -> None:
    if shutil.which("clang") is None:
        pytest.skip("clang is not installed")
    assert {*TARGETS, "models"} == {path.name for path in CORPUS.iterdir()}
    flags = "-O0 -fsanitize=address,undefined,fuzzer-no-link -fno-sanitize-recover=all"
    settings = {"CC": " ".join([*sanitized.CACHE, "clang"]), "CFLAGS": flags, "OUT": str(tmp_path)}
    subprocess.run([ROOT / "fuzz" / "build.sh"], cwd=ROOT, env={**os.environ, **settings}, check=True)
    for target in TARGETS:
        inputs = sorted((CORPUS / target).iterdir())
        done = subprocess.run([tmp_path / target, *inputs], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        assert done.stderr.count("Executed ") == len(inputs) > 1


@pytest.mark.parametrize("end", [None, -1, 40])
@pytest.mark.parametrize("path", sorted((CORPUS / "models").iterdir()), ids=lambda path: path.name)
def test_a_model_is_read_or_refused(path: Path, end: int | None) -> None:
    spec = importlib.util.spec_from_file_location("models", ROOT / "fuzz" / "models.py")
    assert spec is not None and spec.loader is not None
    models = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(models)
    models.take(path.read_bytes()[:end])
