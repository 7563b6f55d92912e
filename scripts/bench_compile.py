"""Measure what mtool itself takes, start-up and compiles, and write docs/compile-time.md.

    scripts/bench_compile.py [--models DIR] [--repeat N]

CPU seconds (user and system) of a process of its own, the least of N, and its peak memory: the machine's load shows
little in them, its speed does. DIR has the MLPerf Tiny models (default: ../shared/models, if it is there); the other
models are made here.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "compile-time.md"
BOARD = "mps2_an386"

Weights = dict[str, np.ndarray]
HEAD = """# What a compile takes

`make bench-compile` writes this page: CPU seconds (user and system) of one process, Python's start included, and its
peak memory. They depend on the machine; compare the rows. The compiles are `mtool compile --board {board}`; the models
below MLPerf Tiny's are made by `scripts/bench_compile.py`.

| what | CPU seconds | peak memory | model |
|---|---:|---:|---:|
"""


@dataclass(frozen=True, slots=True)
class Cost:
    """What a process took: CPU seconds, and bytes of memory at its peak."""

    seconds: float
    peak_bytes: int


def measured(argv: Sequence[str], folder: Path, repeat: int) -> Cost:
    """Return the least that a command took."""
    found = []
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
    for _ in range(repeat):
        child = subprocess.Popen([sys.executable, "-m", "mtool", *argv], cwd=folder, env=environment,
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            raise SystemExit(f"mtool {' '.join(argv)} ended with {child.returncode}")
        found.append(Cost(used.ru_utime + used.ru_stime, used.ru_maxrss * 1024))
    return min(found, key=lambda cost: cost.seconds)


def chain(count: int) -> onnx.ModelProto:
    """Return convolutions in a row."""
    rng = np.random.default_rng(0)
    weights = {f"w{n}": (rng.normal(size=(4, 4, 3, 3)) / 6).astype(np.float32) for n in range(count)}
    nodes = [helper.make_node("Conv", [f"v{n}", f"w{n}"], [f"v{n + 1}"], pads=[1] * 4) for n in range(count)]
    return model(nodes, "v0", (1, 4, 8, 8), f"v{count}", weights)


def branches(count: int) -> onnx.ModelProto:
    """Return convolutions and activations side by side, which one operator joins."""
    rng = np.random.default_rng(0)
    weights = {f"w{n}": (rng.normal(size=(4, 4, 3, 3)) / 6).astype(np.float32) for n in range(count)}
    nodes = []
    for n in range(count):
        nodes.append(helper.make_node("Conv", ["x", f"w{n}"], [f"v{n}"], pads=[1] * 4))
        nodes.append(helper.make_node("Relu", [f"v{n}"], [f"r{n}"]))
    nodes.append(helper.make_node("Concat", [f"r{n}" for n in range(count)], ["y"], axis=1))
    return model(nodes, "x", (1, 4, 8, 8), "y", weights)


def pairs(count: int) -> onnx.ModelProto:
    """Return convolutions and activations in a row."""
    rng = np.random.default_rng(0)
    weights = {f"w{n}": (rng.normal(size=(4, 4, 1, 1)) / 2).astype(np.float32) for n in range(count // 2)}
    nodes = []
    for n in range(count // 2):
        nodes.append(helper.make_node("Conv", [f"r{n}", f"w{n}"], [f"v{n}"]))
        nodes.append(helper.make_node("Relu", [f"v{n}"], [f"r{n + 1}"]))
    return model(nodes, "r0", (1, 4, 4, 4), f"r{count // 2}", weights)


def products(megabytes: int) -> onnx.ModelProto:
    """Return eight products whose weights have so many megabytes together."""
    rng = np.random.default_rng(0)
    width = int((megabytes * 1_000_000 / 4 / 8) ** 0.5)
    weights = {f"w{n}": rng.normal(size=(width, width)).astype(np.float32) / width for n in range(8)}
    nodes = [helper.make_node("MatMul", [f"v{n}", f"w{n}"], [f"v{n + 1}"]) for n in range(8)]
    return model(nodes, "v0", (1, width), "v8", weights)


def model(
    nodes: list[onnx.NodeProto], given: str, shape: tuple[int, ...], result: str, weights: Weights
) -> onnx.ModelProto:
    """Return a float model of one input and one output."""
    graph = helper.make_graph(
        nodes,
        "made",
        [helper.make_tensor_value_info(given, TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(result, TensorProto.FLOAT, None)],
        [numpy_helper.from_array(data, name) for name, data in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


MADE: dict[str, Callable[[], onnx.ModelProto]] = {
    "1,000 convolutions in a row": lambda: chain(1000),
    "200 branches": lambda: branches(200),
    "10,000 operators in a row": lambda: pairs(10_000),
    "100 MB of weights": lambda: products(100),
}


def main() -> None:
    """Measure all and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, default=ROOT.parent / "shared" / "models")
    parser.add_argument("--repeat", type=int, default=3)
    chosen = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def add(what: str, argv: Sequence[str], path: Path | None = None) -> None:
            cost = measured(argv, folder, chosen.repeat)
            size = "" if path is None else f"{path.stat().st_size / 1e6:.1f} MB"
            rows.append(f"| {what} | {cost.seconds:.2f} | {cost.peak_bytes / 1e6:.0f} MB | {size} |")
            sys.stderr.write(f"{rows[-1]}\n")

        for arguments in ("--version", "--help", "boards"):
            add(f"`mtool {arguments}`", [arguments])
        paths = {key.upper(): chosen.models / key / f"{key}_int8_qdq.onnx" for key in ("kws", "vww", "ic")}
        for what, make in MADE.items():
            paths[what] = folder / f"{len(paths)}.onnx"
            paths[what].write_bytes(make().SerializeToString())
        for what, path in paths.items():
            if path.is_file():
                add(what, ["compile", str(path), "--board", BOARD, "--output-dir", f"c-{path.stem}"], path)
    PAGE.write_text(HEAD.format(board=BOARD) + "\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
