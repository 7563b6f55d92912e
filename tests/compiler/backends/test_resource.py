"""The caller's resource reaches regions, also in branches, and the functions around them."""

import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from graphs import FLAGS
from onnx import TensorProto, helper

import mtool
from mtool import commands, project
from mtool.base import resources
from mtool.base.errors import CommunicationError, UsageError
from mtool.base.option_values import OperatorsApi
from mtool.compiler import codegen
from mtool.compiler.backends import BackendSpec
from mtool.device import session

SOURCE = """
#include "npu.h"
struct npu npu_own = {100, 0, 0, 0, 0}; /* what NULL stands for */
static struct npu *of(void *resource) { return resource ? (struct npu *)resource : &npu_own; }
int32_t npu_open(void *resource) { ++of(resource)->opened; return 0; }
int32_t npu_before(void *resource) { ++of(resource)->begun; return 0; }
int32_t npu_after(void *resource) { ++of(resource)->ended; return 0; }
int32_t npu_close(void *resource) { ++of(resource)->closed; return 0; }
int32_t npu_neg(const float *from, float *to, int32_t count, void *resource)
{
    for (int32_t i = 0; i < count; ++i)
        to[i] = (float)of(resource)->bias - from[i];
    return of(resource)->bias < 0 ? of(resource)->bias : 0;
}
"""
HEADER = """
#ifndef NPU_H
#define NPU_H
#include <stdint.h>
struct npu { int32_t bias, opened, begun, ended, closed; };
extern struct npu npu_own;
int32_t npu_open(void *resource);
int32_t npu_before(void *resource);
int32_t npu_after(void *resource);
int32_t npu_close(void *resource);
int32_t npu_neg(const float *from, float *to, int32_t count, void *resource);
#endif
"""
BACKEND = f"""
from mtool.compiler.backends import Backend, Pattern, Product

class Npu(Backend):
    name = "npu"
    patterns = (Pattern("Neg"),)

    def compile(self, region, folder):
        return Product(
            body=f"    return npu_neg(input0, output0, {{region.outputs[0].type.count}}, resource);",
            headers=("npu.h",),
            files={{"npu.h": {HEADER.encode()!r}, "npu.c": {SOURCE.encode()!r}}},
            can_fail=True,
            resource=True,
            hooks={{name: "npu_" + name for name in ("open", "before", "after", "close")}},
        )
"""
X = np.linspace(-1, 1, 8, dtype=np.float32)
CRT = resources.path("crt") / "include"
FORMS: tuple[OperatorsApi, ...] = ("typed", "pointers", "values", "packed")
ARM = [shutil.which(program) for program in ("arm-none-eabi-gcc", "qemu-system-arm", "cmake", "ninja")]


class Npu(ctypes.Structure):
    """A device, as its driver has it."""

    _fields_ = [(name, ctypes.c_int32) for name in ("bias", "opened", "begun", "ended", "closed")]

    def seen(self) -> tuple[int, ...]:
        return self.opened, self.begun, self.ended, self.closed


def network() -> onnx.ModelProto:
    """Return z = exp y, y = kept + (flag ? -n : cos n), n = -sin x; `kept` may be a state, which y is the next of."""

    def tensor(name: str, kind: int = TensorProto.FLOAT, shape: tuple[int, ...] = (8,)) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, kind, shape)

    node = helper.make_node
    then = helper.make_graph([node("Neg", ["n"], ["t"], "inner")], "then", [], [tensor("t")])
    otherwise = helper.make_graph([node("Cos", ["n"], ["e"], "other")], "else", [], [tensor("e")])
    nodes = [
        node("Sin", ["x"], ["s"], "sine"),
        node("Neg", ["s"], ["n"], "outer"),
        node("If", ["flag"], ["b"], "branch", then_branch=then, else_branch=otherwise),
        node("Add", ["b", "kept"], ["y"], "sum"),
        node("Exp", ["y"], ["z"], "exponential"),
    ]
    inputs = [tensor("x"), tensor("flag", TensorProto.BOOL, ()), tensor("kept")]
    graph = helper.make_graph(nodes, "net", inputs, [tensor("z"), tensor("y")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def of(x: np.ndarray, *, flag: bool, bias: float) -> np.ndarray:
    n = bias - np.sin(x)
    return np.asarray(bias - n if flag else np.cos(n))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("resource")
    onnx.save(network(), made / "net.onnx")
    (made / "npu.py").write_text(BACKEND)
    return made


def options(folder: Path, chosen: codegen.Conventions, **more: object) -> mtool.Options:
    return mtool.Options(backends=(BackendSpec(str(folder / "npu.py")),), conventions=chosen, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("form", FORMS)
def test_it_reaches_regions_and_hooks(form: OperatorsApi, folder: Path, tmp_path: Path) -> None:
    states = {"states": (("y", "kept"),)} if form != "packed" else {}  # packed functions take all tensors
    own = options(folder, codegen.conventions("pointers", form), **states)
    model = mtool.compile(folder / "net.onnx", board="host", options=own)
    for name in model.files:
        (tmp_path / name).write_bytes(model.files[name])
    sources = [path for path in tmp_path.glob("*.c") if not path.name.endswith("_rpc.c")]
    command = ["gcc", *FLAGS, "-shared", "-fPIC", f"-I{CRT}", *sources, "-o", tmp_path / "net.so", "-lm"]
    subprocess.run(command, check=True)
    library = ctypes.CDLL(str(tmp_path / "net.so"))
    devices = [Npu(bias=3), Npu(bias=5), Npu.in_dll(library, "npu_own")]
    z, y, kept = (np.zeros(8, np.float32) for _ in range(3))
    for which, flag in ((0, 1), (1, 1), (1, 0), (2, 0), (0, 1)):
        x, choice = X * (1 + which), np.array(flag, np.uint8)
        arrays = [x, choice] if states else [x, choice, kept]
        inputs = (ctypes.c_void_p * len(arrays))(*(one.ctypes.data for one in arrays))
        outputs = (ctypes.c_void_p * 2)(z.ctypes.data, y.ctypes.data)
        assert library.net_run(inputs, outputs, ctypes.byref(devices[which]) if which < 2 else None) == 0
        kept += of(x, flag=bool(flag), bias=devices[which].bias)
        np.testing.assert_allclose(z, np.exp(kept), rtol=1e-4)
    assert library.net_close(ctypes.byref(devices[1])) == 0
    assert [one.seen() for one in devices] == [(1, 2, 2, 0), (0, 2, 2, 1), (0, 1, 1, 0)]
    failing = Npu(bias=-9)
    inputs = (ctypes.c_void_p * 3)(X.ctypes.data, choice.ctypes.data, kept.ctypes.data)
    assert library.net_run(inputs, outputs, ctypes.byref(failing)) == 22  # MT_DEVICE
    assert failing.seen() == (1, 1, 1, 0)


@pytest.mark.product(3)
@pytest.mark.parametrize(
    "chosen",
    [codegen.conventions("pointers"), codegen.conventions("packed", executor="graph"), codegen.conventions("step")],
)
def test_callers_without_a_resource_pass_null(chosen: codegen.Conventions, folder: Path, tmp_path: Path) -> None:
    model = mtool.compile(folder / "net.onnx", board="host", options=options(folder, chosen, io="external"))
    prepared = commands.build_model(model, tmp_path / "project", kinds=commands.ALL_KINDS)
    inputs = {"x": X, "flag": np.array(True), "kept": np.ones(8, np.float32)}
    with mtool.open(prepared) as device:
        for in_steps in (False, True):
            made = device.run(inputs, in_steps=in_steps)["y"]
            np.testing.assert_allclose(made, 1 + of(X, flag=True, bias=100), atol=1e-4)


PROGRAM = """
#include "net.h"
#include "npu.h"
#include "two.h"
int main(void)
{
    static struct npu one = {3, 0, 0, 0, 0}, other = {5, 0, 0, 0, 0};
    static float x[8], y[8], z[8];
    static uint8_t flag;
    void *inputs[] = {x, &flag, y}, *outputs[] = {z, y};
    int32_t status = 0;
    for (int32_t i = 0; status == 0 && i < 3; ++i)
        status = net_run(inputs, outputs, &one);
    report("state", (int32_t)(1000 * z[0]));
    if (status == 0)
        status = two_run(inputs, outputs, &other);
    report("none", (int32_t)(1000 * z[0]));
    report("begun", 10 * one.begun + other.begun);
    report("status", status);
    return 0;
}
"""


@pytest.mark.slow
@pytest.mark.skipif(None in ARM, reason="the Arm toolchain or QEMU is not installed")
def test_two_models_on_an_emulated_board(folder: Path, tmp_path: Path) -> None:
    source = tmp_path / "src" / "main.c"
    source.parent.mkdir()
    console = resources.path("project_templates") / "own" / "console" / "baremetal.c"
    source.write_text(console.read_text() + PROGRAM)
    target = tmp_path / "project"
    program = project.program_in(source.parent, target)
    chosen = codegen.conventions("pointers")
    net = options(folder, chosen, name="net", program=program, states=(("y", "kept"),))
    two = options(folder, chosen, name="two", program=program)
    models = mtool.compile_models([folder / "net.onnx"] * 2, board="mps2_an386", options=[net, two])
    commands.build_model(models[0], target, kinds=("standalone",))
    text = b""
    with session.open_transport(target, kind="standalone") as channel:
        while b"status" not in text.rpartition(b"\n")[0]:
            try:
                text += channel.read(timeout_s=20)
            except CommunicationError:
                break
    kept, none = (int(1000 * np.exp(np.cos(np.float32(n)) * times)) for n, times in ((3, 3), (5, 1)))
    assert text.decode().split() == ["state", str(kept), "none", str(none), "begun", "31", "status", "0"]


def test_a_graph_executor_has_none_to_hand_on() -> None:
    with pytest.raises(UsageError, match="passes a resource on"):
        codegen.conventions("pointers", executor="graph")
