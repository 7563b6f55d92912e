"""Generated C defines everything that its headers declare, from C++ too."""

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from conventions import CONVENTIONS
from graphs import FLAGS, compiled, model
from onnx import helper

from mtool.base import resources
from mtool.base.filetree import FileTree
from mtool.compiler import codegen

_DECLARED = re.compile(r"\b((?:net|mt_)\w*)(?:\[[^\]]*\])*(?:\([^;{]*\))?;")


def generated(name: str) -> FileTree:
    weights = np.random.default_rng(3).standard_normal((4, 4)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Softmax", ["m"], ["y"])]
    plan = compiled(model(nodes, {"x": (np.float32, (2, 4))}, ["y"], {"w": weights}), name="net")
    files, _ = codegen.generate(plan, "net.onnx", "0" * 64, CONVENTIONS[name])
    return files


def symbols(objects: list[Path], which: str) -> set[str]:
    lines = subprocess.run(["nm", which, *objects], check=True, capture_output=True, text=True).stdout.splitlines()
    return {line.split()[-1] for line in lines if line.split() and not line.endswith(":")}


@pytest.mark.product(2)
@pytest.mark.parametrize("name", CONVENTIONS)
def test_every_declaration_links_from_cpp17(name: str, tmp_path: Path) -> None:
    if not shutil.which("g++"):
        pytest.skip("g++ is not installed")
    files, include = generated(name), f"-I{resources.path('crt') / 'include'}"
    for path in files:
        (tmp_path / path).write_bytes(files[path])
    headers = [path for path in files if path.endswith(".h")]
    text = "\n".join(files.text(path) for path in headers)
    lines = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL).replace("\n        ", " ").splitlines()
    outside = [line for line in lines if not line.startswith((" ", "#", "}", "struct", "typedef"))]
    declared = sorted({found[1] for line in outside if (found := _DECLARED.search(line))})
    used = "".join(f"    sum += reinterpret_cast<std::uintptr_t>(&{symbol});\n" for symbol in declared)
    included = "".join(f'#include "{path}"\n' for path in headers)
    body = f"std::uintptr_t sum()\n{{\n    std::uintptr_t sum = 0;\n{used}    return sum;\n}}\n"
    (tmp_path / "use.cpp").write_text(f"#include <cstdint>\n{included}{body}")
    sources = [path for path in files if path.endswith(".c")]
    subprocess.run(["gcc", *FLAGS, include, "-c", *sources], cwd=tmp_path, check=True)
    made = symbols(sorted(tmp_path.glob("*.o")), "--defined-only")
    flags = ["-std=c++17", "-Wall", "-Wextra", "-Werror", "-O0", "-c"]
    subprocess.run(["g++", *flags, include, "use.cpp"], cwd=tmp_path, check=True)
    wanted = symbols([tmp_path / "use.o"], "--undefined-only")
    assert set(declared) <= wanted <= made | {"_GLOBAL_OFFSET_TABLE_"} and len(declared) >= 4


COMPILERS = (
    ["gcc"],
    ["gcc", "-flto"],
    ["clang"],
    ["arm-none-eabi-gcc", "-mcpu=cortex-m4", "-mthumb", "--specs=nosys.specs"],
    ["avr-gcc", "-mmcu=atmega2560", "-flto"],
)


@pytest.mark.parametrize("compiler", COMPILERS, ids=" ".join)
@pytest.mark.product(2)
def test_objects_of_different_conventions_do_not_link_and_the_linker_says_why(
    compiler: list[str], tmp_path: Path
) -> None:
    """Models, and a program that was compiled with the header of a model of other conventions."""
    if not shutil.which(compiler[0]):
        pytest.skip(f"{compiler[0]} is not installed")
    include = f"-I{resources.path('crt') / 'include'}"
    for name in CONVENTIONS:
        folder = tmp_path / name
        folder.mkdir()
        files = generated(name)
        for path in (path for path in files if path.endswith(".h")):
            (folder / path).write_bytes(files[path])
        (folder / "use.c").write_text(f'#include "net.h"\nextern int {name};\nint {name} = 1;\n')
        argv = [*compiler, *FLAGS, include, "-c", folder / "use.c", "-o", tmp_path / f"{name}.o"]
        subprocess.run(argv, check=True)
        (folder / "use.c").write_text((folder / "use.c").read_text().replace(f"int {name}", f"int {name}_2"))
        subprocess.run([*argv[:-1], tmp_path / f"{name}_2.o"], check=True)
    (tmp_path / "main.c").write_text("int main(void)\n{\n    return 0;\n}\n")

    def linked(*objects: str) -> subprocess.CompletedProcess[str]:
        argv = [*compiler, "main.c", *(f"{name}.o" for name in objects), "-o", "program"]
        return subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)

    for name in CONVENTIONS:
        assert linked(name, f"{name}_2").returncode == 0
    for pair in (("c", "packed"), ("step", "c"), ("values", "c")):
        refused = linked(*pair)
        assert refused.returncode != 0
        assert "mt_models_have_different_calling_conventions" in refused.stderr
