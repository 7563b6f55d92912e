"""examples/accelerator: an NPU computes the same bits as mtool's C, and C the rest; every node once."""

import json
import re
import shutil
import struct
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Literal

import models
import networks
import numpy as np
import onnx
import pytest

sys.path.insert(0, str(Path(__file__).parent))

import wren

import mtool
from mtool import commands
from mtool.compiler.backends import BackendError, BackendSpec
from mtool.manifest import Manifest
from mtool.stages.deployment import Deployment
from mtool.stages.options import Options
from mtool.verification.comparison import Tolerance

EMULATOR = "qemu-system-arm"
MODELS = [f"{name}/{name}_{kind}" for name in ("kws", "vww", "ic", "ad") for kind in ("int8_qdq", "float32")]
needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="cc is not installed")


@pytest.fixture(scope="module")
def detector(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("wren") / "detector.onnx"
    onnx.save(wren.detector(), path)
    return path


def check_once(manifest: Manifest) -> None:
    """Each operation is computed by one region or by C, and each region by one call."""
    names = Counter(claim.operator for claim in manifest.claims)
    assert max(names.values()) == 1
    regions = {claim.region for claim in manifest.claims if claim.region}
    calls = Counter(one.name for one in manifest.operators if one.schedule == "c99_call")
    assert calls == Counter(regions)
    macs = {one.name: one.macs for one in manifest.operators}
    assert sum(macs[name] for name in regions) <= manifest.macs


def equal(path: Path, board: str, spec: BackendSpec, folder: Path, tolerance: Tolerance | None = None) -> Manifest:
    options = Options(backends=(spec,))
    report = mtool.verify(
        path, board=board, deployment=Deployment(folder), options=options, samples=1, tolerance=tolerance
    )
    assert report.ok
    if tolerance is None:
        assert all(one.differing == 0 for one in report.outputs) and not report.ties
    manifest = mtool.compile(path, board=board, options=options).manifest
    check_once(manifest)
    return manifest


@pytest.mark.slow
@needs_cc
def test_a_detector_on_the_simulator(detector: Path, tmp_path: Path) -> None:
    manifest = equal(detector, "host", wren.simulated(), tmp_path / "p")
    taken = {claim.region for claim in manifest.claims if claim.region}
    assert len(taken) == 3, "HardSwish and Tanh are borders"
    assert {claim.kind for claim in manifest.claims if not claim.region} >= {"HardSwish", "Tanh", "Concat"}


@pytest.mark.product(2)
@pytest.mark.skipif(shutil.which(EMULATOR) is None, reason=f"{EMULATOR} is not installed")
@pytest.mark.parametrize("board", ["mps2_an386", pytest.param("mps3_an547", marks=pytest.mark.slow)])
def test_a_detector_by_the_driver(detector: Path, board: str, tmp_path: Path) -> None:
    equal(detector, board, wren.spec(), tmp_path / "p")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which(EMULATOR) is None, reason=f"{EMULATOR} is not installed")
@pytest.mark.parametrize(("board", "memory"), [("mps2_an386", "psram"), ("mps3_an547", "dtcm")])
def test_tensors_in_a_memory_by_name(detector: Path, board: str, memory: str, tmp_path: Path) -> None:
    manifest = equal(detector, board, wren.spec(memory=memory), tmp_path / "p")
    assert set(manifest.device_buffers) == {memory}
    onnx.save(wren.floats(), tmp_path / "net.onnx")
    near = Tolerance(atol=2**-9, rtol=2**-9)
    equal(tmp_path / "net.onnx", board, wren.spec(mode="float16", memory=memory), tmp_path / "q", near)


@pytest.mark.slow
@needs_cc
def test_float16(tmp_path: Path) -> None:
    """Sums are float32 there, results float16: each layer adds a step of 2^-11 of a number, here about five."""
    onnx.save(wren.floats(), tmp_path / "net.onnx")
    near = Tolerance(atol=2**-9, rtol=2**-9)
    manifest = equal(tmp_path / "net.onnx", "host", wren.spec(mode="float16"), tmp_path / "p", near)
    taken = {claim.kind for claim in manifest.claims if claim.backend}
    assert taken >= {"Conv", "Add", "Pool", "Gemm"}


@pytest.mark.slow
@models.needed
@pytest.mark.parametrize("board", ["host", "mps2_an386", "mps3_an547"])
@pytest.mark.parametrize("name", MODELS)
def test_the_four_models(name: str, board: str, tmp_path: Path) -> None:
    if board != "host" and shutil.which(EMULATOR) is None:
        pytest.skip(f"{EMULATOR} is not installed")
    if name.endswith("int8_qdq"):
        manifest = equal(models.path(name), board, wren.spec(), tmp_path / "p")
    else:  # a step of float16 is 2^-10 of a number, and layers add theirs up
        near = Tolerance(atol=2**-6, rtol=2**-6)
        manifest = equal(models.path(name), board, wren.spec(mode="float16"), tmp_path / "p", near)
    taken = [claim for claim in manifest.claims if claim.backend]
    assert len(taken) >= len(manifest.claims) // 3


@pytest.mark.slow
@needs_cc
@models.needed
@pytest.mark.parametrize("board", ["host", "mps2_an386", "mps3_an547"])
@pytest.mark.parametrize("name", ["kws", "vww", "ic", "ad"])
def test_the_four_models_as_tflite_rounds(name: str, board: str, tmp_path: Path) -> None:
    """The Wren computes all of each, and LiteRT's bytes."""
    path = models.FOLDER / f"{name}/{name}_int8.tflite"
    options = Options(rounding="tflite", backends=(wren.spec(),))
    report = mtool.verify(path, board=board, deployment=Deployment(tmp_path / "p"), options=options, samples=2)
    assert report.ok and all(one.differing == 0 for one in report.outputs) and not report.ties
    manifest = mtool.compile(path, board=board, options=options).manifest
    check_once(manifest)
    assert {claim.backend for claim in manifest.claims} == {"wren"}


@pytest.mark.slow
@needs_cc
def test_branches_and_loops_of_tflite(tmp_path: Path) -> None:
    path = tmp_path / "net.tflite"
    path.write_bytes(wren.control_tflite())
    options = Options(rounding="tflite", backends=(wren.spec(),))
    report = mtool.verify(path, board="host", deployment=Deployment(tmp_path / "p"), options=options, samples=20)
    assert report.ok and all(one.differing == 0 for one in report.outputs)
    claims = mtool.compile(path, board="host", options=options).manifest.claims
    taken = ["/".join(claim.operator.split("/")[1:2]) for claim in claims if claim.region and "/" in claim.operator]
    assert sorted(taken) == ["body", "body", "else", "then"]


@needs_cc
@pytest.mark.parametrize("rounding", ["tflite", pytest.param("onnx", marks=pytest.mark.slow)])
def test_all_operators_of_int8(rounding: Literal["onnx", "tflite"], tmp_path: Path) -> None:
    """Convolutions, a sum, pools, a transposition, a dense layer and a softmax, as LiteRT and as ONNX round."""
    path = tmp_path / "net.tflite"
    path.write_bytes(wren.small_tflite())
    options = Options(rounding=rounding, backends=(wren.spec(),))
    report = mtool.verify(path, board="host", deployment=Deployment(tmp_path / "p"), options=options, samples=20)
    assert report.ok and (rounding == "onnx" or all(one.differing == 0 for one in report.outputs))
    claims = mtool.compile(path, board="host", options=options).manifest.claims
    left = {claim.kind for claim in claims if not claim.backend}
    assert left == (set() if rounding == "tflite" else {"Softmax"})


@pytest.mark.slow
@needs_cc
def test_a_dense_layer_with_decimal_scales(tmp_path: Path) -> None:
    """LiteRT multiplies its sums by a float64; by multipliers of 31 bits some would be off by one."""
    path = tmp_path / "net.tflite"
    path.write_bytes(wren.decimal_tflite())
    options = Options(rounding="tflite", backends=(wren.spec(),))
    report = mtool.verify(path, board="host", deployment=Deployment(tmp_path / "p"), options=options, samples=20)
    assert report.ok and all(one.differing == 0 for one in report.outputs)


@pytest.mark.slow
@needs_cc
@pytest.mark.parametrize("seed", range(12))
def test_random_networks(seed: int, tmp_path: Path) -> None:
    onnx.save(networks.integers(seed), tmp_path / "net.onnx")
    equal(tmp_path / "net.onnx", "host", wren.simulated(), tmp_path / "p")


def test_it_claims_nothing(detector: Path) -> None:
    options = Options(backends=(replace(wren.spec(skip="|".join(_nodes(detector))), optional=True),))
    left = mtool.compile(detector, board="host", options=options)
    plain = mtool.compile(detector, board="host")
    assert not any(claim.backend for claim in left.manifest.claims)
    assert [one.schedule for one in left.manifest.operators] == [one.schedule for one in plain.manifest.operators]


def _nodes(path: Path) -> list[str]:
    graph = onnx.load(path).graph
    return [name for node in graph.node for name in (node.name, *node.output) if name]


@pytest.mark.slow
def test_it_is_too_small(detector: Path, tmp_path: Path) -> None:
    """A smaller limit of memory leaves operators to C; none at all is an error of the compiler, in the user's names."""
    shutil.copytree(wren.FOLDER, tmp_path / "npu")
    device = tmp_path / "npu" / "wren.toml"
    small = device.read_text().replace("memory_bytes = 114688", "memory_bytes = 900")
    device.write_text(small)
    model = mtool.compile(detector, board="host", options=Options(backends=(wren.spec(device=str(device)),)))
    taken = [claim for claim in model.manifest.claims if claim.backend]
    assert 0 < len(taken) < len(model.manifest.claims) // 2
    compiler = tmp_path / "npu" / "wrencc.py"
    compiler.write_text(compiler.read_text().replace("MEMORY_BYTES = 131072", "MEMORY_BYTES = 1024"))
    command = wren.spec().options["compiler"].replace(str(wren.FOLDER), str(tmp_path / "npu"))
    spec = wren.spec(compiler=command)
    with pytest.raises(BackendError) as raised:
        mtool.compile(detector, board="host", options=Options(backends=(spec,)))
    assert raised.value.exit_code == 5
    assert re.search(r"wren_0_n\d \((Conv|Add) '[^']+'.* of the model\): \d+ bytes more do not fit", str(raised.value))
    model = mtool.compile(detector, board="host", options=Options(backends=(spec,), backend_fallback=True))
    assert not any(claim.backend for claim in model.manifest.claims)


@pytest.mark.slow
@needs_cc
def test_bad_binaries(detector: Path, tmp_path: Path) -> None:
    """The driver and the device check what they are given: an address outside is a status, not an access."""
    commands.partition(detector, options=Options(backends=(wren.spec(),)), folder=tmp_path / "parts")
    files = [str(tmp_path / "parts" / f"wren_0.{kind}.json") for kind in ("nodes", "constants")]
    subprocess.run([sys.executable, str(wren.FOLDER / "wrencc.py"), *files, "-o", str(tmp_path / "good")], check=True)
    nodes = json.loads(Path(files[0]).read_text())
    (tmp_path / "x").write_bytes(bytes(4 * 8 * 8))
    names = [str(tmp_path / f"y{number}") for number in range(len(nodes["outputs"]))]
    good = (tmp_path / "good").read_bytes()
    first = 24 + 8 * (1 + len(names))
    places = {"magic": 0, "address": first + 12, "bytes": first + 8, "offset": first + 4, "input": 24}
    huge = struct.pack("<I", 0x7FFFFFF0)
    for place in places.values():
        bad = good[:place] + huge + good[place + 4 :]
        (tmp_path / "bad").write_bytes(bad)
        argv = [str(wren.simulator()), str(tmp_path / "bad"), str(tmp_path / "x"), *names]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert done.returncode == 1 and "the device says" in done.stderr
    chance = np.random.default_rng(1)
    for _ in range(60):
        bad = bytearray(good)
        place = 4 * int(chance.integers(3, first // 4 + 60))
        if place == 20:
            continue
        bad[place : place + 4] = struct.pack("<i", int(chance.choice([-1, 0, 2**31 - 1, 65535, 7])))
        (tmp_path / "bad").write_bytes(bad)
        argv = [str(wren.simulator()), str(tmp_path / "bad"), str(tmp_path / "x"), *names]
        assert subprocess.run(argv, capture_output=True, check=False, timeout=20).returncode in (0, 1, 2)
