"""Failing devices, and the functions called around their work, for every calling convention."""

import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import mtool
from mtool import commands
from mtool.base.errors import DeviceError
from mtool.compiler import codegen
from mtool.compiler.backends import BackendSpec
from mtool.stages.compiling import CompiledModel
from mtool.stages.options import Options

SOURCE = """
#include "npu.h"
struct npu npu;
int32_t npu_activate(void) { ++npu.activated; return 0; }
int32_t npu_open(void) { ++npu.opened; return npu.open_fails; }
int32_t npu_close(void) { npu.closed = 10 * npu.closed + 1; return npu.open_fails; }
int32_t npu_deactivate(void) { npu.closed = 10 * npu.closed + 2; return 0; }
int32_t npu_before(void) { ++npu.before; npu.after_fails = 0; return 0; }
int32_t npu_after(void) { ++npu.after; return npu.after_fails; }
int32_t npu_run(const float *from, float *to)
{
    for (int32_t i = 0; i < 8; ++i)
        to[i] = -from[i];
    to[0] = (float)(1000 * npu.activated + 100 * npu.opened + 10 * npu.before + npu.after);
    if (from[1] > 98)
        npu.after_fails = -7;
    return from[1] > 90 && from[1] < 98 ? (int32_t)from[1] : 0;
}
"""
HEADER = """
#include <stdint.h>
struct npu { int32_t activated, opened, before, after, after_fails, open_fails, closed; };
extern struct npu npu;
int32_t npu_close(void);
int32_t npu_deactivate(void);
int32_t npu_activate(void);
int32_t npu_open(void);
int32_t npu_before(void);
int32_t npu_after(void);
int32_t npu_run(const float *from, float *to);
"""
BACKEND = f"""
from mtool.compiler.backends import Backend, Pattern, Product

class Npu(Backend):
    name = "npu"
    patterns = (Pattern("Neg"),)

    def compile(self, region, folder):
        return Product(
            body="    return npu_run(input0, output0);",
            headers=("npu.h",),
            files={{"npu.h": {HEADER.encode()!r}, "npu.c": {SOURCE.encode()!r}}},
            can_fail=True,
            hooks={{name: "npu_" + name for name in ("activate", "open", "before", "after", "close", "deactivate")}},
        )
"""
CONVENTIONS = {
    "c": codegen.conventions(),
    "packed": codegen.conventions("packed", "packed"),
    "step": codegen.conventions("step", "pointers"),
    "graph": codegen.conventions(executor="graph"),
    "graph-host": codegen.conventions(executor="graph-host"),
}


def compiled(tmp_path: Path, chosen: codegen.Conventions) -> CompiledModel:
    nodes = [
        helper.make_node("Sin", ["x"], ["s"], "the sine"),
        helper.make_node("Add", ["s", "z"], ["a"], "the sum"),
        helper.make_node("Neg", ["a"], ["r"], "the negation"),
        helper.make_node("Softmax", ["r"], ["p"], "the softmax"),
        helper.make_node("Neg", ["p"], ["q"], "the last negation"),
        helper.make_node("Sum", ["q", "r"], ["y"], "the total"),
    ]
    tensors = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [8]) for name in "xzry"}
    graph = helper.make_graph(nodes, "net", [tensors["x"], tensors["z"]], [tensors["y"], tensors["r"]])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, tmp_path / "net.onnx")
    (tmp_path / "npu.py").write_text(BACKEND)
    options = Options(backends=(BackendSpec(str(tmp_path / "npu.py")),), conventions=chosen)
    return mtool.compile(tmp_path / "net.onnx", board="host", options=options)


@pytest.mark.product(3)
@pytest.mark.parametrize("name", CONVENTIONS)
def test_hooks_and_failures(name: str, tmp_path: Path) -> None:
    prepared = commands.build_model(compiled(tmp_path, CONVENTIONS[name]), tmp_path / "project")
    zeros = np.zeros(8, np.float32)
    with mtool.open(prepared) as device:

        def run(value: float, *, in_steps: bool) -> float:
            inputs = {"x": zeros, "z": np.array([5, value, 3, 4, 0, 0, 0, 0], np.float32)}
            if name == "graph-host":
                return float(device.graph_executor(prepared.folder).run(inputs)["r"][0])
            return float(device.run(inputs, in_steps=in_steps)["r"][0])

        assert run(1, in_steps=True) == 1110, "activated, opened, one begun"
        assert run(1, in_steps=False) == 1121, "the first has ended: one call for both regions"
        for in_steps in (True, False):
            with pytest.raises(DeviceError, match=r'npu_0 \("the negation"\) failed with status 93'):
                run(93, in_steps=in_steps)
        with pytest.raises(DeviceError, match="failed with status -7"):
            run(99, in_steps=False)
        assert run(1, in_steps=False) == 1100 + 60 + 5, "also the failing ones have ended"


MAIN = """
#include <stdio.h>
#include "net.h"
#include "npu.h"

static void show(int32_t status)
{
    printf("%d %s %d: %d %d %d %d %d\\n", (int)status, net_failure.region ? net_failure.nodes : "-",
           (int)net_failure.status, (int)npu.activated, (int)npu.opened, (int)npu.before, (int)npu.after,
           (int)npu.closed);
}

int main(void)
{
    show(net_close()); /* nothing is open */
    npu.open_fails = -3;
    show(net_run(&net_arena_inputs, &net_arena_outputs));
    npu.open_fails = 0;
    show(net_run(&net_arena_inputs, &net_arena_outputs));
    show(net_run(&net_arena_inputs, &net_arena_outputs));
    npu.open_fails = -4;
    show(net_close());
    npu.open_fails = 0;
    show(net_close());
    show(net_run(&net_arena_inputs, &net_arena_outputs));
}
"""


def test_opening_and_closing(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    files = compiled(tmp_path, CONVENTIONS["c"]).sources()
    folder.mkdir()
    for name in files:
        (folder / name).write_bytes(files[name])
    (folder / "main.c").write_text(MAIN)
    strict = ["-std=c99", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror"]
    sources = [str(path) for path in folder.glob("*.c") if not path.name.endswith("_rpc.c")]
    subprocess.run(["gcc", *strict, f"-I{folder}", *sources, "-o", str(tmp_path / "main"), "-lm"], check=True)
    lines = subprocess.run([str(tmp_path / "main")], check=True, capture_output=True, text=True).stdout.splitlines()
    assert lines == [
        "0 - 0: 0 0 0 0 0",
        "22 the negation -3: 1 1 0 0 0",
        "0 the negation -3: 1 2 1 1 0",  # what is activated stays so; open is called again
        "0 the negation -3: 1 2 2 2 0",
        "22 the negation -4: 1 2 2 2 12",  # close, and deactivate all the same
        "0 the negation -4: 1 2 2 2 12",
        "0 the negation -4: 2 3 3 3 12",
    ]
