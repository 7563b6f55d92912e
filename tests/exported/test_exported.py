"""Models exported by scikit-learn and PyTorch give onnxruntime's results, on the host and an emulated Cortex-M4."""

import shutil
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import amount
import numpy as np
import onnx
import pytest
import sanitized

from mtool import boards
from mtool.base.errors import ModelError
from mtool.compiler.compilation import target_of
from mtool.plugins.onnx_backend import batch, firmware

onnxruntime = pytest.importorskip("onnxruntime")

# Other people's deprecation warnings, in fitting and exporting.
pytestmark = [pytest.mark.long, pytest.mark.timeout(600), pytest.mark.filterwarnings("ignore")]

BOARD = boards.get("mps2_an386")
SAMPLES = 6
TOLERANCE = 1e-5  # of floats: relative to the larger of 1 and the value

Array = np.ndarray[Any, Any]
Named = dict[str, onnx.ModelProto]


@pytest.fixture(scope="module")
def sklearn_models() -> Named:
    """Return the models of sklearn_models.py, by name."""
    pytest.importorskip("skl2onnx", reason="needs skl2onnx and scikit-learn: pip install 'mtool-mcu[dev]'")
    from exported import sklearn_models

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {function.__name__: function() for function in sklearn_models.MODELS}


@pytest.fixture(scope="module")
def torch_models() -> Named:
    """Return the models of torch_models.py as they were exported, or with MTOOL_TESTS=all as they are now; by name."""
    if not amount.IS_ALL:
        return {path.stem: onnx.load(path) for path in sorted(Path(__file__).with_name("pytorch").iterdir())}
    pytest.importorskip("torch", reason="needs torch and onnxscript: pip install 'mtool-mcu[exported]'")
    from exported import torch_models

    return {function.__name__: torch_models.made(function) for function in torch_models.MODELS}


def inputs_of(model: onnx.ModelProto, seed: int) -> list[Array]:
    random = np.random.default_rng(seed)
    initialised = {tensor.name for tensor in model.graph.initializer}
    shapes = [
        [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in model.graph.input
        if value.name not in initialised
    ]
    return [random.standard_normal(shape).astype(np.float32) for shape in shapes]


def differences(models: Named, run: Callable[[int, Sequence[Array]], Sequence[Array]]) -> list[str]:
    """Run each model on drawn inputs; return what is not as onnxruntime has it, a line each."""
    found = []
    for number, (name, model) in enumerate(models.items()):
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        names = [value.name for value in session.get_inputs()]
        for seed in range(SAMPLES):
            inputs = inputs_of(model, seed)
            for place, (mine, theirs) in enumerate(
                zip(run(number, inputs), session.run(None, dict(zip(names, inputs, strict=True))), strict=True)
            ):
                wrong = compare(mine, theirs)
                found += [f"{name}, sample {seed}, output {place}: {wrong}"] * bool(wrong)
    return found


def compare(mine: Array, theirs: Array) -> str:
    if (mine.shape, mine.dtype) != (theirs.shape, theirs.dtype):
        return f"{mine.dtype}{mine.shape} for {theirs.dtype}{theirs.shape}"
    if mine.dtype.kind != "f":
        return "" if np.array_equal(mine, theirs) else f"{mine} for {theirs}"
    distance = np.abs(mine - theirs) / np.maximum(1, np.abs(theirs))
    return "" if distance.max() <= TOLERANCE else f"by {distance.max():.3g}"


def check_on_the_host(models: Named, folder: Path) -> None:
    compiled = [batch.to_c(model, name) for name, model in models.items()]
    with batch.build(compiled, folder, compiler=sanitized.COMPILER, flags=sanitized.FLAGS) as program:
        assert program.refused == {}
        assert differences(models, program.run) == []


def check_on_the_board(models: Named, folder: Path) -> None:
    assert BOARD.emulator is not None
    for program in (BOARD.toolchain, BOARD.emulator.program, "cmake", "ninja"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    compiled = [batch.to_c(model, name, target=target_of(BOARD)) for name, model in models.items()]
    with firmware.build(compiled, folder / "project", BOARD) as device:
        assert differences(models, device.run) == []


@pytest.mark.slow
def test_scikit_learn_on_the_host(sklearn_models: Named, tmp_path: Path) -> None:
    assert len(sklearn_models) >= 12
    check_on_the_host(sklearn_models, tmp_path)


def test_pytorch_on_the_host(torch_models: Named, tmp_path: Path) -> None:
    assert len(torch_models) >= 12
    check_on_the_host(torch_models, tmp_path)


@pytest.mark.slow
def test_scikit_learn_on_a_board(sklearn_models: Named, tmp_path: Path) -> None:
    check_on_the_board(sklearn_models, tmp_path)


@pytest.mark.slow
def test_pytorch_on_a_board(torch_models: Named, tmp_path: Path) -> None:
    check_on_the_board(torch_models, tmp_path)


@pytest.mark.slow
def test_classes_of_text_are_refused_by_name() -> None:
    pytest.importorskip("skl2onnx", reason="needs skl2onnx and scikit-learn: pip install 'mtool-mcu[dev]'")
    from exported import sklearn_models

    with pytest.raises(ModelError, match="can't be compiled") as caught:
        batch.to_c(sklearn_models.with_text_classes(), "text")
    assert "string" in str(caught.value)
