"""examples/notebook.ipynb runs, and its outputs are those in the file: the same words, numbers within 10%.

MTOOL_UPDATE_GOLDEN=1 writes the outputs into the file.
"""

import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "examples" / "notebook.ipynb"
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")


def texts(notebook: Any) -> list[str]:
    """Return the printed text of each cell, without runs of spaces, which follow the numbers' widths."""
    printed = ["".join(one.get("text", "") for one in cell.get("outputs", ())) for cell in notebook.cells]
    return [re.sub(" +", " ", text) for text in printed]


def numbers(text: str) -> list[float]:
    return [float(number.replace(",", "")) for number in NUMBER.findall(text)]


@pytest.mark.slow
def test_the_notebook_runs_and_shows_what_it_did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat = pytest.importorskip("nbformat", reason="nbclient is not installed: mtool-mcu[slow]")
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed: mtool-mcu[slow]")
    for needed in ("ipykernel", "matplotlib", "onnxruntime", "skl2onnx", "unicorn", "ziglang"):
        pytest.importorskip(needed)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    shutil.copytree(ROOT / "examples" / "digits", tmp_path / "digits")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    before = texts(notebook)
    where = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=300, resources=where, record_timing=False).execute()
    errors = [one for cell in notebook.cells for one in cell.get("outputs", ()) if one.get("name") == "stderr"]
    assert errors == []
    if "MTOOL_UPDATE_GOLDEN" in os.environ:
        notebook.metadata.pop("language_info")  # the version of Python
        nbformat.write(notebook, NOTEBOOK)
        return
    for old, new in zip(before, texts(notebook), strict=True):
        assert NUMBER.sub("N", new) == NUMBER.sub("N", old)
        assert numbers(new) == pytest.approx(numbers(old), rel=0.1, abs=1)
