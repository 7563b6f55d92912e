"""The Model Library Format as TVM 0.14 reads it: the archive has what each of its readers needs."""

import ast
import json
import os
import shutil
import struct
import subprocess
import tarfile
import types
import typing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import packages
import pytest

from mtool import commands
from mtool.base import resources
from mtool.commands import Options
from mtool.compiler.codegen import conventions
from tests.arduino import sine

DIGITS = resources.path("examples/digits") / "digits_int8.onnx"
STRICT = ["-std=c99", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror", "-ffp-contract=off"]
CHANGED = 1_700_000_000  # 2023-11-14 22:13:20 UTC


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    path = tmp_path / "digits_int8.onnx"
    shutil.copyfile(DIGITS, path)
    os.utime(path, (CHANGED, CHANGED))
    return path


def archive(model: Path, folder: Path, *, more: tuple[Path, ...] = (), **options: Any) -> Path:
    chosen = Options(**options)
    others = [commands.compile(path, board="mps2_an386", options=chosen) for path in more]
    compiled = commands.compile(model, board="mps2_an386", options=chosen)
    (made,) = packages.write(compiled, folder, form="mlf", more=others).glob("*.tar")
    return made


def unpacked(path: Path, folder: Path) -> Path:
    with tarfile.TarFile(path) as file:  # as the servers of the Project API open it: no compression
        file.extractall(folder, filter="data")
    return folder


def test_each_field_that_tvm_reads(digits: Path, tmp_path: Path) -> None:
    path = archive(digits, tmp_path / "mlf")
    with tarfile.open(path) as file:
        members = file.getmembers()
        assert "./metadata.json" in [member.name for member in members]  # tvm.micro.testing.utils
        assert {member.mtime for member in members} == {CHANGED}
        assert {(member.uid, member.uname) for member in members} == {(0, "root")}
    folder = unpacked(path, tmp_path / "x")
    metadata = json.loads((folder / "metadata.json").read_text())
    assert metadata["version"] == 7 and list(metadata["modules"]) == ["digits_int8"]
    module = metadata["modules"]["digits_int8"]
    assert module["model_name"] == "digits_int8" and module["style"] == "full-model"
    assert module["executors"] == ["aot"] and module["target"] == ["c -keys=cpu -mcpu=cortex-m4"]
    assert datetime.strptime(module["export_datetime"], "%Y-%m-%d %H:%M:%SZ").replace(tzinfo=UTC).timestamp() == CHANGED
    (runtime,) = module["external_dependencies"]
    assert runtime["url_type"] == "mlf_path" and (folder / runtime["url"] / "include/mtool.h").is_file()
    (main,) = module["memory"]["functions"]["main"]
    assert main["inputs"] == {"image": {"dtype": "int8", "size": 64}}
    assert main["outputs"] == {"scores": {"dtype": "int8", "size": 10}}
    assert main["device"] == 1 and main["io_size_bytes"] == 74
    magic = struct.unpack("<QQQQ", (folder / "parameters/digits_int8.params").read_bytes())
    assert magic == (0xF7E58D4F05049CB7, 0, 0, 0), "an empty dictionary, as tvm.runtime.load_param_dict reads it"
    assert (folder / "src/digits_int8.onnx").read_bytes() == DIGITS.read_bytes()


def test_functions_and_workspaces_are_those_of_the_c(digits: Path, tmp_path: Path) -> None:
    if shutil.which("arm-none-eabi-gcc") is None:
        pytest.skip("arm-none-eabi-gcc is not installed")
    folder = unpacked(archive(digits, tmp_path / "mlf"), tmp_path / "x")
    sources = sorted((folder / "codegen/host/src").glob("*.c"))
    cpu = ["-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16"]
    include = f"-I{folder / 'codegen/host/include'}"
    subprocess.run(["arm-none-eabi-gcc", *cpu, *STRICT, "-O1", include, "-c", *sources], cwd=tmp_path, check=True)
    listed = subprocess.run(["nm", "-S", *tmp_path.glob("*.o")], check=True, capture_output=True, text=True).stdout
    symbols = {line.split()[-1]: line.split() for line in listed.splitlines() if len(line.split()) == 4}
    functions = json.loads((folder / "metadata.json").read_text())["modules"]["digits_int8"]["memory"]["functions"]
    names = [each["function_name"] for each in functions["operator_functions"]]
    assert len(names) == len({*names}) == 6
    assert all(symbols[name][2] == "T" for name in names), "each is a function of the C"
    arena = int(symbols["digits_int8_arena"][1], 16)
    assert functions["main"][0]["workspace_size_bytes"] == arena
    scratch = [space["workspace_size_bytes"] for each in functions["operator_functions"] for space in each["workspace"]]
    assert 0 < max(scratch) < arena and len(scratch) == 6


def test_the_graph_and_its_storage(digits: Path, tmp_path: Path) -> None:
    folder = unpacked(archive(digits, tmp_path / "g", conventions=conventions(executor="graph")), tmp_path / "x")
    module = json.loads((folder / "metadata.json").read_text())["modules"]["digits_int8"]
    graph = json.loads((folder / "executor-config/graph/digits_int8.graph").read_text())
    assert module["executors"] == ["graph"]
    assert [node["op"] for node in graph["nodes"]].count("null") == len(graph["arg_nodes"]) == 1
    storage = module["memory"]["sids"]
    assert [entry["storage_id"] for entry in storage] == list(dict.fromkeys(graph["attrs"]["storage_id"][1]))
    bound = [entry for entry in storage if "input_binding" in entry]
    assert [(entry["input_binding"], entry["size_bytes"] >= 64) for entry in bound] == [("image", True)]


def test_several_modules_share_an_archive(digits: Path, tmp_path: Path) -> None:
    other = sine.write(tmp_path / "sine.onnx")
    folder = unpacked(archive(digits, tmp_path / "mlf", more=(other,)), tmp_path / "x")
    assert {*json.loads((folder / "metadata.json").read_text())["modules"]} == {"digits_int8", "sine"}
    for model in ("digits_int8", "sine"):
        assert (folder / f"codegen/host/src/{model}.c").is_file() and (folder / f"parameters/{model}.params").is_file()


@pytest.mark.skipif("TVM_SOURCE" not in os.environ, reason="TVM_SOURCE names no checkout of TVM 0.14")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # it leaves the archive open
@pytest.mark.parametrize("executor", ["aot", "graph"])
def test_tvmc_itself_imports_it(executor: str, digits: Path, tmp_path: Path) -> None:
    """The class TVMCPackage of python/tvm/driver/tvmc/model.py, run as it stands there."""
    source = (Path(os.environ["TVM_SOURCE"]) / "python/tvm/driver/tvmc/model.py").read_text()
    tree = ast.parse(source)
    tree.body = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "TVMCPackage"]
    ast.fix_missing_locations(tree)
    place = tmp_path / "tvmc"
    place.mkdir()
    folder = types.SimpleNamespace(relpath=lambda name: str(place / name))
    names: dict[str, Any] = {
        "utils": types.SimpleNamespace(tempdir=lambda: folder),
        **{"os": os, "json": json, "tarfile": tarfile, "TVMCException": RuntimeError, "Path": Path},
        **{"Optional": typing.Optional, "Union": typing.Union},
    }
    exec(compile(tree, "model.py", "exec"), names)
    chosen = {"conventions": conventions(executor="graph")} if executor == "graph" else {}
    package = names["TVMCPackage"](str(archive(digits, tmp_path / "mlf", **chosen)), project_dir=tmp_path)
    assert package.type == "mlf" and package.executor_type == executor
    assert (package.graph is not None) is (executor == "graph") and len(package.params) == 32
