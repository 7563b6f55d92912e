"""Measure models on this computer, beside onnxruntime and over many samples; write docs/host.md.

    scripts/bench_host.py [--models DIR]

The least of many repetitions: the machine's load shows little in them, its speed does. DIR has the MLPerf Tiny models
(default: ../shared/models). Needs onnxruntime, and QEMU for Arm.
"""

import argparse
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from mtool import commands
from mtool.device import session
from mtool.stages.deployment import infer_all
from mtool.stages.samples import Sample, seeded

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "host.md"
KINDS = ("int8_qdq", "float32")
SAMPLES = 10_000
CALLS = 3000
FORMS: dict[str, dict[str, Any]] = {
    "mtool": {},
    "four floats": {"template_options": {"definitions": "MT_SIMD_NARROW"}},
    "--portable": {"portable": True},
}
HEAD = """# This computer as a board

`--board host`, the default, builds a model as a program for this computer. Use it to check results and accuracy without
a board.

    mtool verify model.onnx
    mtool run model.onnx --board host --portable

Outputs of integer models are the same bytes as on every other board. Convolutions use vectors of floats: eight with
AVX, which the program detects when it starts, otherwise four (SSE, NEON), summed in the same order. These schedules
([`simd_columns` and `simd_taps`](schedules.md)) need GCC or Clang. Layers that would save less than 50,000 instructions
stay plain loops.

To read, debug or port plain C, use `--portable` (`Options(portable=True)`). `mtool compile` and its packages always
generate this form.

`make bench-host` wrote the following figures on: {machine}.
Each is the minimum of many repetitions.

## Time of an inference

Microseconds per inference. onnxruntime {ort} uses one thread and all optimizations; its figure is the CPU time,
including the call from Python. mtool's figures are from the program's own timer; *four floats* is without AVX,
*--portable* uses plain C loops.

| model | onnxruntime | mtool | times onnxruntime | four floats | --portable |
|---|--:|--:|--:|--:|--:|
"""
CALLS_HEAD = """
## Time of a call

`device.run` on a model of one addition takes **{least:.0f} µs**, from Python to the program and back.

## Many samples

If many samples would take more than two seconds, mtool starts one process or emulator per processor, except for models
with states, which pass from sample to sample. CPU time of all processes, for `kws_int8_qdq`:

| what | ms a sample | {samples:,} samples, CPU seconds |
|---|--:|--:|
"""


def inputs_of(path: Path) -> dict[str, Any]:
    """Return one sample for onnxruntime."""
    random = np.random.default_rng(0)
    found: dict[str, Any] = {}
    for value in onnx.load(str(path)).graph.input:
        shape = [dimension.dim_value or 1 for dimension in value.type.tensor_type.shape.dim]
        is_float = value.type.tensor_type.elem_type == TensorProto.FLOAT
        found[value.name] = (
            random.standard_normal(shape).astype(np.float32)
            if is_float
            else random.integers(-128, 127, shape, endpoint=True).astype(np.int8)
        )
    return found


def onnxruntime_us(path: Path) -> float:
    """Return the CPU time of an inference with one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    runs = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    feeds, least = inputs_of(path), float("inf")
    for _ in range(100):
        start = time.process_time()
        for _ in range(5):
            runs.run(None, feeds)
        least = min(least, time.process_time() - start)
    return least / 5 * 1e6


def built(path: Path, board: str, folder: Path, **options: Any) -> commands.BuiltProject:
    """Build a model's project in a folder and return it."""
    model = commands.compile(path, board=board, options=commands.Options(**options))
    return commands.build_model(model, folder)


def mtool_us(project: commands.BuiltProject) -> float:
    """Return the time of an inference by the program's timer."""
    with session.open(project.folder) as device:
        sample = seeded(device.manifest.inputs, count=1, seed=0)[0]
        return min(device.time(number=1, repeat=300, inputs=sample).runs) / 1e3


def call_us(project: commands.BuiltProject) -> float:
    """Return the time of a call."""
    with session.open(project.folder) as device:
        sample = seeded(device.manifest.inputs, count=1, seed=0)[0]
        times = []
        for _ in range(CALLS):
            start = time.perf_counter()
            device.run(sample)
            times.append(time.perf_counter() - start)
    return min(times) * 1e6


def cpu_seconds() -> float:
    """Return the CPU time of this process, and of those that it has started and that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def batch_seconds(project: commands.BuiltProject, count: int) -> float:
    """Return the CPU seconds of `count` samples."""
    before = cpu_seconds()
    deployment = commands.Deployment(project.folder)
    with deployment.open(project) as device:
        samples: list[Sample] = seeded(device.manifest.inputs, count=count, seed=0)
        infer_all(device, project, samples, deployment)
    return cpu_seconds() - before


def verify_seconds(path: Path, project: Path) -> float:
    """Return the CPU seconds of `mtool verify` over all samples."""
    argv = [sys.executable, "-m", "mtool", "-q", "verify", str(path), "--samples", str(SAMPLES), "-d", str(project)]
    before = cpu_seconds()
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": str(ROOT)})
    return cpu_seconds() - before


def addition(path: Path) -> Path:
    """Write a model of one addition."""
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 8]) for name in ("x", "y")]
    one = numpy_helper.from_array(np.ones(8, np.float32), "one")
    graph = helper.make_graph([helper.make_node("Add", ["x", "one"], ["y"])], "addition", values[:1], values[1:], [one])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    return path


def machine() -> str:
    """Return the processor and the compiler."""
    known = Path("/proc/cpuinfo")
    lines = known.read_text().splitlines() if known.exists() else []
    name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
    compiler = subprocess.run(["cc", "--version"], check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[0]
    return f"{name}, {compiler}, -O2"


def main() -> None:
    """Measure all and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, default=ROOT.parent / "shared" / "models")
    models: Path = parser.parse_args().models
    page = HEAD.format(machine=machine(), ort=onnxruntime.__version__)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for kind in KINDS:
            for model in ("kws", "vww", "ic", "ad"):
                path = models / model / f"{model}_{kind}.onnx"
                theirs = onnxruntime_us(path)
                own = [
                    mtool_us(built(path, "host", folder / f"{path.stem}{number}", **options))
                    for number, options in enumerate(FORMS.values())
                ]
                figures = (f"{theirs:.0f}", f"{own[0]:.0f}", f"{own[0] / theirs:.2f}", f"{own[1]:.0f}", f"{own[2]:.0f}")
                row = f"| {path.stem} | {' | '.join(figures)} |"
                sys.stderr.write(f"{row}\n")
                page += f"{row}\n"
        least = call_us(built(addition(folder / "addition.onnx"), "host", folder / "addition"))
        page += CALLS_HEAD.format(least=least, samples=SAMPLES)
        path = models / "kws" / "kws_int8_qdq.onnx"
        for board, count in (("host", SAMPLES), ("mps2_an386", SAMPLES // 10)):
            each = batch_seconds(built(path, board, folder / board), count) / count
            page += f"| `run` on {board} | {each * 1e3:.2f} | {each * SAMPLES:.1f} |\n"
        seconds = verify_seconds(path, folder / "host")
        page += f"| `verify` on host | {seconds / SAMPLES * 1e3:.2f} | {seconds:.1f} |\n"
    PAGE.write_text(page)
    sys.stdout.write(f"{PAGE}\n")


if __name__ == "__main__":
    main()
