"""One source and one header: they compile alone, hide internals, and give the same bytes."""

import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
import stateful
from golden_model import small_model
from onnx import helper

import mtool
from mtool.base import resources
from mtool.base.errors import UsageError
from mtool.cli import app
from mtool.compiler.backends import BackendSpec
from mtool.compiler.codegen import conventions
from mtool.compiler.plan.choice import Choice
from mtool.stages.compiling import CompiledModel

STRICT = ["-std=c99", "-Wall", "-Wextra", "-Wshadow", "-Werror", "-pedantic"]
CHOICES = {
    "c": {},
    "pointers, values": {"conventions": conventions("pointers", "values")},
    "packed": {"conventions": conventions("packed", "packed")},
    "step, packed": {"conventions": conventions("step", "packed")},
    "graph": {"conventions": conventions(executor="graph")},
    "rows": {"stream": "x"},
    "caller": {"conventions": conventions(context=True), "arenas": "caller"},
    "external": {"io": "external"},
}


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("net") / "net.onnx"
    onnx.save(small_model(), path)  # type: ignore[arg-type]
    return path


def written(model: CompiledModel, folder: Path) -> list[str]:
    files = model.sources()
    folder.mkdir()
    for name in files:
        (folder / name).write_bytes(files[name])
    return sorted(files)


def check(source: Path) -> None:
    for compiler in ("gcc", "clang"):
        if compiler == "gcc" or shutil.which(compiler):
            subprocess.run([compiler, *STRICT, "-fsyntax-only", source], check=True)


@pytest.mark.product(3)
@pytest.mark.parametrize("name", CHOICES)
def test_it_compiles_by_itself(name: str, net: Path, tmp_path: Path) -> None:
    options = mtool.Options(single_file=True, portable=True, **CHOICES[name])  # type: ignore[arg-type]
    model = mtool.compile(net, board="host", options=options)
    beside = ["net.json"] if model.manifest.graph else []
    assert written(model, tmp_path / "c") == ["mtool.json", "net.c", "net.h", *beside]
    check(tmp_path / "c" / "net.c")
    (tmp_path / "c" / "main.cpp").write_text('#include "net.h"\nint main() { return 0; }\n')
    subprocess.run(["g++", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", tmp_path / "c" / "main.cpp"], check=True)


@pytest.mark.product(3)
@pytest.mark.parametrize("name", [name for name in CHOICES if name != "step, packed"])
def test_two_models_in_one_compile_by_themselves(name: str, net: Path, tmp_path: Path) -> None:
    """Statics of both that have one name get others, and none that an entry point has."""
    own = {"arenas": "own"} if name == "rows" else {}
    both = [
        mtool.Options(name=each, single_file=True, portable=True, **CHOICES[name], **own)  # type: ignore[arg-type]
        for each in ("left", "right")
    ]
    model = mtool.compile_models([net, net], board="host", options=both)[0]
    assert {"left_right.c", "left_right.h"} <= {*written(model, tmp_path / "c")}
    check(tmp_path / "c" / "left_right.c")


def library(folder: Path) -> Path:
    made = folder / "models.so"
    command = ["gcc", *STRICT, "-shared", "-fPIC", f"-I{folder}", *folder.glob("*.c"), "-o", made, "-lm"]
    subprocess.run(command, check=True)
    return made


def test_two_models_with_states_in_one_give_the_same_bytes(tmp_path: Path) -> None:
    proto, ((output, value),) = stateful.recurrent("GRU", "torch", 1)
    onnx.save(proto, tmp_path / "cell.onnx")
    first = {value: np.full((1, 1, stateful.HIDDEN), 0.25, np.float32) * np.arange(stateful.HIDDEN, dtype=np.float32)}
    common = {"states": ((output, value),), "portable": True, "conventions": conventions("step")}
    made = []
    for is_single in (False, True):
        both = [
            mtool.Options(name="left", state_values=first, single_file=is_single, **common),  # type: ignore[arg-type]
            mtool.Options(name="right", single_file=is_single, **common),  # type: ignore[arg-type]
        ]
        model = mtool.compile_models([tmp_path / "cell.onnx"] * 2, board="host", options=both)[0]
        folder = tmp_path / str(is_single)
        names = written(model, folder)
        assert (names == ["left_right.c", "left_right.h", "mtool.json"]) == is_single
        called = ctypes.CDLL(str(library(folder)))
        rng, results = np.random.default_rng(0), []
        for turn in range(6):
            x = rng.standard_normal((1, 1, stateful.SIZE)).astype(np.float32)
            y = np.zeros((1, 1, stateful.CLASSES), np.float32)
            inputs, outputs = ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data)
            which = ("left", "right")[turn % 2]
            getattr(called, f"{which}_begin")(ctypes.byref(inputs), ctypes.byref(outputs))
            while not getattr(called, f"{which}_done")():
                assert getattr(called, f"{which}_step")() == 0
            results.append(y.tobytes())
        made.append(results)
    assert made[0] == made[1]
    assert len({*made[0]}) == 6


def test_only_the_interface_is_visible(net: Path, tmp_path: Path) -> None:
    options = mtool.Options(single_file=True, schedules={"conv_1": Choice("c99_patch", {"opt": "O3"})})
    model = mtool.compile(net, board="mps2_an385", options=options)
    assert written(model, tmp_path / "c") == ["mtool.json", "net.c", "net.h"]
    text = (tmp_path / "c" / "net.c").read_text()
    assert text.count("GCC push_options") == text.count("GCC pop_options") == 1
    assert text.index("Arena, ") < text.index("#include")
    subprocess.run(["gcc", *STRICT, "-c", tmp_path / "c" / "net.c", "-o", tmp_path / "net.o"], check=True)
    shown = subprocess.run(
        ["nm", "-g", "--defined-only", tmp_path / "net.o"], check=True, capture_output=True, text=True
    )
    visible = {line.split()[-1] for line in shown.stdout.splitlines()}
    assert visible - {"mt_models_have_different_calling_conventions"} == {
        "net_run", "net_arena", "net_arena_inputs", "net_arena_outputs",
    }  # fmt: skip


BACKEND = """
from mtool.compiler.backends import Backend, Pattern, Product

class Npu(Backend):
    name = "npu"
    patterns = (Pattern("Neg"),)

    def compile(self, region, folder):
        header = b"#include \\"mtool.h\\"\\nint32_t npu_neg(const float *x, float *y);\\n"
        source = b"#include \\"npu.h\\"\\nint32_t npu_neg(const float *x, float *y) { *y = -*x; return MT_OK; }\\n"
        files = {"npu.h": b"#include <stdint.h>\\n" + header, "npu.c": source}
        return Product(body="    return npu_neg(input0, output0);", headers=("npu.h",), files=files, can_fail=True)
"""


@pytest.mark.slow
def test_a_firmware_of_it_beside_the_c_of_a_backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    value = helper.make_tensor_value_info
    nodes = [helper.make_node("Neg", ["x"], ["n"]), helper.make_node("Exp", ["n"], ["y"])]
    graph = helper.make_graph(nodes, "net", [value("x", 1, [1])], [value("y", 1, [1])])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), "net.onnx")
    Path("npu.py").write_text(BACKEND)
    words = ["--backend", "./npu.py", "--executor", "graph", "--single-file"]
    assert app.invoke(["verify", "net.onnx", "net.onnx", "--name", "a", "--name", "b", *words]) == 0
    model = Path("build") / "a_b-host" / "model"
    assert {path.name for path in model.glob("*.[ch]")} == {"a_b.c", "a_b.h", "a_rpc.c", "b_rpc.c", "npu.c", "npu.h"}
    own = mtool.Options(single_file=True, backends=(BackendSpec("./npu.py"),))
    names = written(mtool.compile("net.onnx", board="host", options=own), tmp_path / "c")
    assert names == ["mtool.h", "mtool.json", "net.c", "net.h", "npu.c", "npu.h"]
    library(tmp_path / "c")


def test_the_c_of_many_cores_is_not_a_single_file() -> None:
    digits = resources.path("examples/digits") / "digits_int8.onnx"
    model = mtool.compile(digits, board="host", options=mtool.Options(single_file=True))
    assert {*model.package("cmake")} == {"CMakeLists.txt", "include/digits_int8.h", "mtool.json", "src/digits_int8.c"}
    with pytest.raises(UsageError, match="does not fit in a single file"):
        model.package("arduino-lib")
