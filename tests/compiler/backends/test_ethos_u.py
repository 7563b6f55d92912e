"""Regions for Ethos-U: unchanged as TFLite, accepted by Vela, and passed to the driver.

No emulator here has the NPU: a stand-in for its driver checks the addresses and sizes of the command stream, and
computes the region by mtool's own C.
"""

import importlib.util
import shutil
from dataclasses import replace
from pathlib import Path

import amount
import models
import numpy as np
import packages
import pytest
import tflite

import mtool
from mtool.base.errors import UsageError
from mtool.compiler import frontend
from mtool.compiler.backends import BackendError, BackendSpec, Context, Product, Region
from mtool.compiler.backends.chosen import Chosen, choose
from mtool.compiler.backends.ethos_u import EthosU, Model, tflite_of, vela
from mtool.compiler.backends.partition import partition
from mtool.compiler.ir import DType
from mtool.compiler.ir.types import Quant
from mtool.compiler.kernels.target import Target
from mtool.compiler.request import Request
from mtool.stages.options import Options
from mtool.verification.oracles import litert

HOST = Target("host", frozenset())
DRIVER = Path(__file__).parent / "ethos_u_driver"
CONFIG = "ethos-u55-128"
installed = pytest.mark.skipif(importlib.util.find_spec("ethosu") is None, reason="Vela is not installed")
BOARDS = {"host": ("cc", "ethos-u65-256"), "mps3_an547": ("qemu-system-arm", CONFIG)}


def regions_of(path: Path, rounding: str = "tflite") -> list[Region]:
    """Return the regions of a model that are for the NPU, without compiling them."""
    found: list[Region] = []

    class Recorder(EthosU):
        def compile(self, region: Region, folder: Path) -> Product:
            found.append(region)
            return Product("    ;")

    view = frontend.load(path, Request())
    graph = view if rounding == "onnx" else frontend.load(path, Request(rounding="tflite"))
    partition(view, graph, [Chosen(Recorder({"config": CONFIG}))], Context(HOST, rounding="tflite"))
    return found


def model(name: str) -> Path:
    return models.FOLDER / f"{name}/{name}_int8.tflite"


@models.needed
@pytest.mark.parametrize("name", ["kws", "ic", "ad"])
def test_a_region_is_written_as_it_was(name: str) -> None:
    (region,) = regions_of(model(name))
    (operand,) = region.inputs
    rng = np.random.default_rng(1)
    samples = [{operand.tensor: rng.integers(-128, 128, operand.shape).astype(np.int8)} for _ in range(3)]
    expected = litert.outputs(str(model(name)), samples, title=name, exact=True)
    for wanted, got in zip(
        expected, litert.outputs(tflite_of(region), samples, title="region", exact=True), strict=True
    ):
        assert wanted.keys() == got.keys(), "the user's names"
        for key, value in wanted.items():
            np.testing.assert_array_equal(got[key], value)


def standin(folder: Path, name: str, board: str, config: str) -> Path:
    """Write the stand-in driver for a model on a board, and return its folder."""
    (region,) = regions_of(model(name))
    path = folder / "standin.tflite"
    path.write_bytes(tflite_of(region))
    made = vela.compiled(path, [f"--accelerator-config={config}"], [])
    driver = folder / "driver"
    own = mtool.compile(path, board=board, options=Options(rounding="tflite", weights="text"))
    packages.write(own, driver)
    for file in DRIVER.iterdir():
        shutil.copy(file, driver)
    numbers = {
        "COMMANDS": made.commands.size,
        "SIZES": f"{{{', '.join(map(str, made.bases))}}}",
        "OPERATIONS": sum(one.kind in ("Conv", "Gemm") for one in region.operations),
        "MEMORY": made.inputs[0].base,
        "INPUT": made.inputs[0].offset,
        "OUTPUT": made.outputs[0].offset,
        "MACS": config.rsplit("-", 1)[1],
    }
    (driver / "expected.h").write_text("".join(f"#define EXPECTED_{key} {value}\n" for key, value in numbers.items()))
    return driver


@pytest.mark.product(2)
@installed
@models.needed
@pytest.mark.parametrize(
    ("name", "board"),
    [
        ("kws", "host"),
        ("kws", "mps3_an547"),
        *([("vww", "host"), ("ic", "host"), ("ad", "host")] if amount.IS_ALL else []),
    ],
)
def test_the_driver_gets_what_it_needs(name: str, board: str, tmp_path: Path) -> None:
    program, config = BOARDS[board]
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    driver = standin(tmp_path, name, board, config)
    spec = BackendSpec("ethos_u", options={"config": config, "driver": str(driver)})
    project, options = mtool.Deployment(tmp_path / "project"), Options(rounding="tflite", backends=(spec,))
    report = mtool.verify(model(name), board=board, options=options, deployment=project, samples=2)
    assert report.ok


@installed
def test_what_vela_leaves_to_the_cpu_is_reported(tmp_path: Path) -> None:
    grid = Quant((0.1,), (0,))
    made = Model()
    image = made.tensor("image", (1, 300, 300, 4), DType.INT8, grid)
    mine = made.tensor("mine", (1, 1, 1, 4), DType.INT8, grid)
    window = {"StrideH": 1, "StrideW": 1, "Padding": tflite.Padding.VALID, "FilterHeight": 300, "FilterWidth": 300}
    path = tmp_path / "region.tflite"
    made.operator("MAX_POOL_2D", 2, [image], [mine], "Pool2DOptions", window)
    path.write_bytes(made.finish("region", [image], [mine]))
    with pytest.raises(BackendError, match="to the CPU") as failed:
        vela.compiled(path, [f"--accelerator-config={CONFIG}"], ["Pool pool_7"])
    reason, region = failed.value.details
    assert reason.startswith("MAX_POOL_2D of mine: kernel height: 300 out of range")
    assert "Traceback" not in reason and "Pool pool_7" in region


@models.needed
def test_its_rounding_must_be_requested() -> None:
    (region,) = regions_of(model("ad"))
    backend, first = EthosU({"config": CONFIG}), region.operations[0]
    context = replace(region.context, rounding="onnx")
    assert "--rounding tflite" in backend.refusal(first, context)
    assert not backend.refusal(first, replace(context, tolerance=1))
    assert "config= must name" in EthosU({}).refusal(first, region.context)


@pytest.mark.parametrize(
    "options", [{"config": "ethos-u99"}, {"config": CONFIG, "optimise": "all"}, {"config": CONFIG, "ini": "none"}]
)
def test_options_that_make_no_sense(options: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        choose([BackendSpec("ethos_u", options=options)])
