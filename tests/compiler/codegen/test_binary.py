"""Large constants in a binary file that the compiler includes: the same bytes as in C."""

import subprocess
from pathlib import Path

import numpy as np
import packages
import pytest
from graphs import model
from onnx import ModelProto, helper, save

from mtool import commands, project
from mtool.base.errors import UsageError
from mtool.base.identifiers import target_name
from mtool.cli import app
from mtool.commands import Options
from mtool.compiler.codegen import weights
from mtool.compiler.codegen.weights import binary_of, weights_header, weights_source

F = np.float32
rng = np.random.default_rng(0)


def network(width: int) -> ModelProto:
    """Return two products and a bias between them."""
    constants = {
        "a": rng.normal(size=(width, width)).astype(F) / width,
        "b": rng.normal(size=width).astype(F),
        "c": rng.normal(size=(width, 4)).astype(F) / width,
    }
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["p"]),
        helper.make_node("Add", ["p", "b"], ["q"]),
        helper.make_node("MatMul", ["q", "c"], ["y"]),
    ]
    return model(nodes, {"x": (F, (1, width))}, ["y"], constants)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A small model, whose constants count as large."""
    monkeypatch.setattr(weights, "LARGE_BYTES", 1000)
    monkeypatch.setattr(weights, "PIECE_BYTES", 100)
    save(network(24), tmp_path / "net.onnx")
    return tmp_path / "net.onnx"


def test_constants_of_less_than_the_limit_stay_in_c() -> None:
    constants = {"w": np.zeros(weights.LARGE_BYTES - 1, np.int8)}
    assert not binary_of("m", constants, as_text=False).offsets


def test_large_constants_are_found_at_their_offsets() -> None:
    constants = {
        "small": np.arange(10, dtype=np.int8),
        "bytes": rng.integers(-128, 128, 5001).astype(np.int8),
        "floats": np.asfortranarray(rng.normal(size=(1100, 1000)).astype(F)),
        "wide": rng.integers(-(1 << 31), 1 << 31, (3, 700)),
    }
    found = binary_of("m", constants, as_text=False)
    assert {*found.offsets} == {"bytes", "floats", "wide"}
    assert not binary_of("m", constants, as_text=True).offsets
    for symbol, offset in found.offsets.items():
        data = constants[symbol]
        assert offset % 16 == 0
        assert np.array_equal(np.frombuffer(found.data, data.dtype, data.size, offset), data.reshape(-1))


@pytest.mark.parametrize("compiler", ["cc", "arm-none-eabi-gcc -mcpu=cortex-m4 -mthumb", "arm-none-eabi-gcc -flto"])
def test_the_compiler_takes_the_file_in(compiler: str, tmp_path: Path) -> None:
    data = rng.integers(-128, 128, weights.LARGE_BYTES).astype(np.int8)
    constants = {"m_first": data, "m_few": np.arange(3, dtype=np.int16)}
    made = binary_of("m", constants, as_text=False)
    folder = tmp_path / "m"
    folder.mkdir()
    (folder / made.name).write_bytes(made.data)
    (folder / "m_weights.h").write_text(
        "\n".join(weights_header("/* m */", "m", constants, flash_is_apart=False)).replace("MT_FLASH ", "")
    )
    source = "\n".join(weights_source("/* m */", "m", constants, made))
    (folder / "m_weights.c").write_text(source.replace("MT_FLASH ", ""))
    strict = ["-std=c99", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wpedantic", "-Werror", "-fdata-sections"]
    argv = [*compiler.split(), *strict, "-I", str(folder), "-c", str(folder / "m_weights.c"), "-o", "w.o"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "-flto" in compiler or data.tobytes() in (tmp_path / "w.o").read_bytes()


def test_a_project_is_built_with_the_file_and_computes_the_same(small: Path, tmp_path: Path) -> None:
    results = []
    for how in ("auto", "text"):
        compiled = commands.compile(small, board="host", options=Options(weights=how))
        assert ("net_weights.bin" in compiled.files) == (how == "auto")
        prepared = commands.build_model(compiled, tmp_path / how)
        with commands.open(prepared) as device:
            results.append(device.run({"x": np.linspace(-1, 1, 24, dtype=F).reshape(1, 24)})["y"])
    assert np.array_equal(*results)


def test_a_changed_file_changes_the_source(small: Path) -> None:
    texts = []
    for _ in range(2):
        texts.append(commands.compile(small, board="host").files["net_weights.c"])
        save(network(24), small)
    lines = [set(text.splitlines()) for text in texts]
    assert any(b"sha256" in line and b"Generated" not in line for line in lines[0] ^ lines[1])


def test_packages_have_the_file_where_the_compiler_looks(small: Path) -> None:
    compiled = commands.compile(small, board="mps2_an386")
    packed = project.Packed(project.Module(compiled.sources(), compiled.manifest))
    for form in ("cmake", "zephyr-module", "mlf"):
        files = project.package(packed, form)
        headers = next(path for path in files if path.endswith("/net.h")).removesuffix("net.h")
        assert f"{headers}net_weights.bin" in files
        assert not any(b"net_weights.bin\n" in files[path] for path in files if path.endswith("CMakeLists.txt"))
    with pytest.raises(UsageError, match=r"net_weights\.bin"):
        compiled.package("arduino-lib")


def test_arduino_and_avr_get_text(small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for board in ("arduino_mega2560", "nano_33_ble"):
        assert "net_weights.bin" not in commands.compile(small, board=board).files
    argv = ["compile", str(small), "--emit", "arduino-lib", "--board", "mps2_an386", "-d", str(tmp_path / "lib")]
    assert app.invoke(argv) == 0
    assert not [*(tmp_path / "lib").rglob("*.bin")]


def test_constants_in_the_file_are_in_memory_once() -> None:
    large = rng.standard_normal((1024, 1025)).astype(np.float32)
    constants = {"a": large, "b": np.arange(3, dtype=np.int8), "c": large[:, ::2].T}
    before = {name: data.copy() for name, data in constants.items()}
    file = binary_of("m", constants, as_text=False)
    assert [*constants] == [*before] and [*file.offsets] == ["a", "c"]
    for name, data in before.items():
        assert constants[name].dtype == data.dtype
        np.testing.assert_array_equal(constants[name], data)
    content = np.frombuffer(file.data, np.uint8)
    assert [np.shares_memory(constants[name], content) for name in before] == [True, False, True]


@pytest.mark.product(2)
@pytest.mark.parametrize("flags", ["", "-DCMAKE_INTERPROCEDURAL_OPTIMIZATION=ON"])
def test_another_file_of_bytes_is_taken_in_by_a_package(flags: str, small: Path, tmp_path: Path) -> None:
    package, app_folder, build = tmp_path / "package", tmp_path / "app", tmp_path / "out"
    packages.write(commands.compile(small, board="host"), package, form="cmake")
    app_folder.mkdir()
    (app_folder / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.20)\nproject(app C)\n"
        f"add_subdirectory({package} net)\nadd_executable(app main.c)\n"
        f"target_link_libraries(app {target_name('net')}::{target_name('net')})\n"
    )
    (app_folder / "main.c").write_text(
        '#include <stdio.h>\n#include "net_weights.h"\n'
        'int main(void) { printf("%g", (double)net_dense_0_weights[0]); return 0; }\n'
    )
    configured = ["cmake", "-G", "Ninja", "-S", app_folder, "-B", build, *([flags] if flags else [])]
    subprocess.run(configured, check=True, stdout=subprocess.DEVNULL)
    said = []
    for _ in range(2):
        subprocess.run(["cmake", "--build", build], check=True, stdout=subprocess.DEVNULL)
        said.append(subprocess.run([build / "app"], check=True, capture_output=True).stdout)
        file = package / "include" / "net_weights.bin"
        file.write_bytes(bytes(file.stat().st_size))
    assert said[0] != said[1] == b"0"


@pytest.mark.parametrize("template", ["baremetal", "zephyr"])
def test_a_project_depends_on_the_file_of_bytes(template: str, small: Path) -> None:
    compiled = commands.compile(small, board="mps2_an386", options=Options(template=template))
    tree, _ = compiled.render_project()
    text = " ".join(tree["CMakeLists.txt"].decode().split())
    assert "OBJECT_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/model/net_weights.bin COMPILE_OPTIONS -fno-lto" in text
