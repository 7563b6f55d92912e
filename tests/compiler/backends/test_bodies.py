"""Regions inside branches and loops: computed, named with their path, and their devices' failures reported."""

from pathlib import Path

import amount
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
static int32_t begun;
int32_t npu_before(void) { begun = 1; return 0; }
int32_t npu_after(void) { begun = 0; return 0; }
int32_t npu_neg(const float *from, float *to, int32_t count)
{
    for (int32_t i = 0; i < count; ++i)
        to[i] = -from[i];
    return begun == 0 ? 77 : from[0] > 90 ? (int32_t)from[0] : 0;
}
"""
HEADER = """
#include <stdint.h>
int32_t npu_before(void);
int32_t npu_after(void);
int32_t npu_neg(const float *from, float *to, int32_t count);
"""
BACKEND = f"""
from mtool.compiler.backends import Backend, Pattern, Product

class Npu(Backend):
    name = "npu"
    patterns = (Pattern("Neg"),)

    def compile(self, region, folder):
        return Product(
            body=f"    return npu_neg(input0, output0, {{region.outputs[0].type.count}});",
            headers=("npu.h",),
            files={{"npu.h": {HEADER.encode()!r}, "npu.c": {SOURCE.encode()!r}}},
            can_fail=True,
            hooks={{"before": "npu_before", "after": "npu_after"}},
        )
"""
CONVENTIONS = {
    "c": codegen.conventions(),
    "packed": codegen.conventions("packed", "packed"),
    "step": codegen.conventions("step", "pointers"),
    "graph": codegen.conventions(executor="graph"),
    "graph-host": codegen.conventions(executor="graph-host"),
}


def tensor(name: str, kind: int = TensorProto.FLOAT, shape: tuple[int, ...] = (8,)) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def network() -> onnx.ModelProto:
    """Return a loop with a branch in it: y = x rounds times, each negated twice or once, plus a sine."""
    node = helper.make_node
    then = helper.make_graph(
        [
            node("Neg", ["carried"], ["n"], "the inner negation"),
            node("Cos", ["n"], ["c"], "the cosine"),
            node("Neg", ["c"], ["t"], "the second negation"),
        ],
        "then",
        [],
        [tensor("t")],
    )
    otherwise = helper.make_graph([node("Neg", ["carried"], ["e"], "the other negation")], "else", [], [tensor("e")])
    body = helper.make_graph(
        [
            node("Identity", ["going"], ["goes"], "goes on"),
            node("If", ["flag"], ["b"], "the branch", then_branch=then, else_branch=otherwise),
            node("Sin", ["b"], ["s"], "the sine"),
            node("Neg", ["s"], ["next"], "the body's negation"),
        ],
        "body",
        [tensor("i", TensorProto.INT64, ()), tensor("going", TensorProto.BOOL, ()), tensor("carried")],
        [tensor("goes", TensorProto.BOOL, ()), tensor("next")],
    )
    nodes = [
        node("Neg", ["x"], ["m"], "the outer negation"),
        node("Loop", ["rounds", "", "m"], ["y"], "the loop", body=body),
    ]
    inputs = [tensor("x"), tensor("flag", TensorProto.BOOL, ()), tensor("rounds", TensorProto.INT64, ())]
    graph = helper.make_graph(nodes, "net", inputs, [tensor("y")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def compiled(tmp_path: Path, chosen: codegen.Conventions, **options: str) -> CompiledModel:
    onnx.save(network(), tmp_path / "net.onnx")
    (tmp_path / "npu.py").write_text(BACKEND)
    spec = BackendSpec(str(tmp_path / "npu.py"), options=options)
    return mtool.compile(tmp_path / "net.onnx", board="host", options=Options(backends=(spec,), conventions=chosen))


def test_the_backend_of_each_operator(tmp_path: Path) -> None:
    claims = compiled(tmp_path, CONVENTIONS["c"]).manifest.claims
    regions = {claim.operator.replace("the ", ""): claim.region for claim in claims if claim.region}
    assert len({*regions.values()}) == len(regions) == 5, "each negation is one region"
    paths = [name.split("/") for name in regions]
    assert sorted(len(path) for path in paths) == [1, 3, 5, 5, 5]
    assert {"then", "else"} == {path[3] for path in paths if len(path) == 5}
    skipped = compiled(tmp_path, CONVENTIONS["c"], skip="the inner negation|the body's negation").manifest.claims
    assert sum(bool(claim.region) for claim in skipped) == 3
    alone = compiled(tmp_path, CONVENTIONS["c"], **{"inputs-only": "yes"}).manifest.claims
    assert sum(bool(claim.region) for claim in alone) == 1


@pytest.mark.parametrize("name", [*CONVENTIONS] if amount.IS_ALL else ["c"])
def test_results_and_failures(name: str, tmp_path: Path) -> None:
    prepared = commands.build_model(compiled(tmp_path, CONVENTIONS[name]), tmp_path / "project")
    with mtool.open(prepared) as device:

        def run(first: float, *, flag: bool, rounds: int) -> tuple[np.ndarray, np.ndarray]:
            x = np.array([first, 1, 2, 3, 4, 5, 6, 7], np.float32)
            inputs = {"x": x, "flag": np.array(flag), "rounds": np.array(rounds, np.int64)}
            if name == "graph-host":
                return x, device.graph_executor(prepared.folder).run(inputs)["y"]
            return x, device.run(inputs)["y"]

        for flag in (True, False):
            x, y = run(0.5, flag=flag, rounds=3)
            value = -x
            for _ in range(3):
                value = -np.sin(-np.cos(-value) if flag else -value)
            np.testing.assert_allclose(y, value, rtol=1e-5, atol=1e-6)
        for flag, node in ((True, "the inner negation"), (False, "the other negation")):
            with pytest.raises(DeviceError, match=rf'npu_\d \("{node}"\) failed with status 95'):
                run(-95, flag=flag, rounds=2)  # the outer negation makes 95 of it, which the first in the loop refuses
        x, y = run(0.5, flag=True, rounds=0)
        np.testing.assert_array_equal(y, -x)
