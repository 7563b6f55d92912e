"""The json backend: its two files, device files, external compilers that misbehave, and `mtool partition`."""

import base64
import json
import os
import re
import shlex
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import networks
import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import mtool
from mtool.base.errors import MtoolError, UsageError
from mtool.cli import app
from mtool.compiler.backends import BackendSpec
from mtool.compiler.backends.json.external_compiler import filled, words_of
from mtool.compiler.backends.spec import parse
from mtool.stages.compiling import CompiledModel
from mtool.stages.deployment import Deployment
from mtool.stages.options import Options

DEVICE = """
name = "npu"
[[operators]]
op = "Conv"
dtypes = ["int8"]
quantized = true
"""


def python(program: str) -> str:
    return f"{shlex.quote(sys.executable)} -c {shlex.quote(program)}"


OUTPUT = "import sys, pathlib as p; p.Path('{output}').write_bytes(b'made')"


@pytest.fixture
def net(tmp_path: Path) -> Path:
    onnx.save(networks.integers(5), tmp_path / "net.onnx")
    return tmp_path / "net.onnx"


def compiled(net: Path, device: str = DEVICE, **options: str) -> CompiledModel:
    (net.parent / "npu.toml").write_text(device)
    (net.parent / "npu.c").write_text("int npu;\n")
    given = {"driver": str(net.parent / "npu.c"), **options, "device": str(net.parent / "npu.toml")}
    return mtool.compile(
        net, board="host", options=Options(backends=(BackendSpec("json", options=given, optional=True),))
    )


def parts(net: Path, *more: str) -> dict[str, Any]:
    """Return the files that `mtool partition` writes, by name."""
    folder = net.parent / "parts"
    assert app.invoke(["partition", str(net), "-o", str(folder), *more]) == 0
    return {path.name: json.loads(path.read_text()) for path in folder.glob("*.json")}


def test_the_files_have_the_models_own_names_and_numbers(net: Path) -> None:
    files = parts(net, "--backend", "json")
    graph = onnx.load(net).graph
    known = {numpy_helper.to_array(one).tobytes(): numpy_helper.to_array(one) for one in graph.initializer}
    outputs = {name for node in graph.node for name in node.output}
    seen = set()
    regions = [name.removesuffix(".nodes.json") for name in files if name.endswith(".nodes.json")]
    for region, node in [(name, node) for name in regions for node in files[f"{name}.nodes.json"]["nodes"]]:
        nodes, data = files[f"{region}.nodes.json"], files[f"{region}.constants.json"]["constants"]
        assert nodes["schema"] == {"name": "mtool-region", "version": 1} and nodes["region"] == region
        assert node["origins"] and re.fullmatch(region + r"_n\d+", node["name"])
        assert {nodes["tensors"][one]["tensor"] for one in node["outputs"]} <= outputs
        if node["op"] != "Conv":
            continue
        x, weights, bias = (nodes["tensors"][number] for number in node["inputs"])
        assert (x["dtype"], x["layout"], weights["layout"], bias["dtype"]) == ("int8", "NHWC", "OIHW", "int32")
        raw = base64.b64decode(data[weights["constant"]]["data"])
        assert raw in known and known[raw].shape == tuple(weights["shape"]) and x["shape"][3] % weights["shape"][1] == 0
        scales = np.array(weights["quantisation"]["scale"], np.float32)
        assert weights["quantisation"]["axis"] == 0 and scales.tobytes() in known
        assert node["attributes"]["pads"] == [weights["shape"][2] // 2] * 4
        seen.add(raw)
    assert len(seen) >= 2


def test_float16(tmp_path: Path) -> None:
    onnx.save(networks.floats(7), tmp_path / "net.onnx")
    command = ["--backend", "json:mode=float16"]
    files = [one for name, one in parts(tmp_path / "net.onnx", *command).items() if "nodes" in name]
    assert files and {tensor["dtype"] for one in files for tensor in one["tensors"]} == {"float16"}


def test_partition_refuses(net: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.invoke(["partition", str(net), "-o", str(tmp_path / "d")]) == 2
    (tmp_path / "own.py").write_text(
        "from mtool.compiler.backends import Backend, Pattern\n"
        "class Own(Backend):\n    name = 'own'\n    patterns = (Pattern('Conv'),)\n"
    )
    assert app.invoke(["partition", str(net), "-o", str(tmp_path / "d"), "--backend", str(tmp_path / "own.py")]) == 2
    assert "writes no files" in capsys.readouterr().err
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("import sys; print('no luck at {region}_n0'); sys.exit(3)", r"exit code 3(.|\n)*npu_0_n0 \(Conv 'v\d+"),
        ("pass", r"wrote no binary(.|\n)*no new file"),
        ("open('elsewhere', 'w')", r"wrote no binary(.|\n)*found elsewhere"),
        ("open('{output}', 'w')", "a file of 1 to"),
        ("import os; os.symlink('/etc/hostname', '{output}')", "wrote no binary"),
        (OUTPUT + "; p.Path('{report}').write_text('[')", "not valid JSON"),
        (OUTPUT + "; p.Path('{report}').write_text('[1]')", "not a JSON object"),
        (
            OUTPUT + "; p.Path('{report}').write_text(chr(123) + '\"scratch_bytes\": -1' + chr(125))",
            "scratch_bytes = -1",
        ),
        (OUTPUT + "; p.Path('{report}').write_text(chr(123) + '\"alignment\": 3' + chr(125))", "power of two"),
    ],
)
def test_compilers_that_misbehave(net: Path, program: str, words: str) -> None:
    with pytest.raises(MtoolError, match=words) as raised:
        compiled(net, compiler=python(program))
    assert raised.value.exit_code == 5


def test_a_compiler_without_end(net: Path) -> None:
    """Its own children hold the pipe: all end."""
    start = time.monotonic()
    with pytest.raises(MtoolError, match=r"took more than 0\.5 s") as raised:
        compiled(net, compiler="sh -c 'echo begun; sleep 60; true'", timeout="0.5")
    assert raised.value.exit_code == 5 and "begun" in str(raised.value) and time.monotonic() - start < 30


def test_the_binary_and_the_report_reach_the_model(net: Path) -> None:
    report = OUTPUT + "; p.Path('{report}').write_text(chr(123) + '\"scratch_bytes\": 100' + chr(125))"
    model = compiled(net, compiler=python(report))
    assert b"npu_run(binary, inputs, outputs, scratch)" in model.files["net.c"]
    assert model.files["npu/npu.c"] == b"int npu;\n" and b"int32_t npu_run(" in model.files["npu/npu_call.h"]
    call = next(one for one in model.manifest.operators if one.schedule == "c99_call")
    assert call.constant_bytes == len(b"made") and call.scratch_bytes == 100


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "has no compiler"),
        ({"compiler": "true {nodes} {what}"}, "unknown placeholder {what}"),
        ({"compiler": "'true"}, "compiler= can't be read"),
        ({"compiler": ""}, "compiler= contains no program"),
        ({"compiler": "true", "driver": "/nowhere.c"}, "there is no C file"),
        ({"compiler": "true", "mode": "int4"}, "expected int8 or float16"),
        ({"compiler": "true", "timeout": "soon"}, "expected seconds"),
        ({"compiler": "true", "run": "simulator"}, "but no simulator="),
        ({"compiler": "/nowhere/compiler {nodes}"}, "is not installed"),
        ({"fast": "yes"}, "has no option fast"),
    ],
)
def test_wrong_options(net: Path, options: dict[str, str], words: str) -> None:
    with pytest.raises(MtoolError, match=words) as raised:
        compiled(net, **options)
    assert raised.value.exit_code in (2, 5)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name = 3\noperators = []", "name: expected a string"),
        ("nam = 'x'\noperators = []", "nam: there is no such key"),
        ("name = 'x'", "operators: is missing"),
        ("operators = [", "is not TOML"),
        ("name = 'a b'\noperators = []", r"name: expected text of the form .*, found 'a b'"),
        ("name = 'near'\noperators = []", "which is a keyword in C"),
        ("operators = [{op = 'Conv', dtype = 'int8'}]", "operators.0.dtype: there is no such key"),
        ("limits = {memory_bytes = -1}\noperators = []", "limits.memory_bytes"),
        ("hooks = {now = 'f'}\noperators = []", "hooks.now"),
    ],
)
def test_malformed_device_files(net: Path, text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        compiled(net, device=text, compiler="true")


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ('dtypes = ["int16"]', "is int8; expected int16"),
        ("ranks = [3]", "it has 4 dimensions"),
        ("variables = 2", "1 of its operands are not constant"),
        ('groups = ["depthwise"]', "its channels are in 1 groups"),
        ("attributes = { kernel = 7 }", "its kernel is"),
        ("attributes = { strides = { min = 2 } }", "its strides is"),
        ("attributes = { strides = [2, 3] }", "its strides is"),
        ("attributes = { stride = 1 }", "it has no attribute stride"),
        ("[limits]\nmemory_bytes = 10", "memory bytes; at most 10 fit"),
        ("[limits]\nconstant_bytes = 10", "constant bytes; at most 10 fit"),
    ],
)
def test_what_a_device_does_not_take(net: Path, rule: str, why: str) -> None:
    device = f'name = "npu"\n[[operators]]\nop = "Conv"\n{rule}\n'
    model = compiled(net, device, compiler=python(OUTPUT))
    reasons = [one.reason for claim in model.manifest.claims if claim.kind == "Conv" for one in claim.refusals]
    assert any(why in reason for reason in reasons), reasons


def test_roundings(net: Path) -> None:
    device = 'name = "npu"\nrounding = ["tflite"]\n[[operators]]\nop = "Conv"\n'
    model = compiled(net, device, compiler=python(OUTPUT))
    assert not any(claim.backend for claim in model.manifest.claims)
    reasons = [one.reason for claim in model.manifest.claims if claim.kind == "Conv" for one in claim.refusals]
    assert reasons and all("--rounding tflite" in one for one in reasons)


def test_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cc.py").write_text("")
    places = frozenset({"output", "inputs"})
    words = words_of("python3 cc.py -o{output} '{inputs}' 'a b; rm {here}/x'", "compiler", Path("/d e"), places)
    assert words == ("python3", str(tmp_path / "cc.py"), "-o{output}", "{inputs}", "a b; rm /d e/x")
    made = filled(words, {"output": ("o",), "inputs": ("1", "2")})
    assert made == ["python3", str(tmp_path / "cc.py"), "-oo", "1", "2", "a b; rm /d e/x"]


def test_an_option_may_end_in_toml() -> None:
    assert parse("json:device=npu.toml") == BackendSpec("json", options={"device": "npu.toml"})


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cc") is None or os.name != "posix", reason="cc is not installed")
def test_a_simulator_that_fails_ends_the_inference(net: Path) -> None:
    model = compiled(net, compiler=python(OUTPUT), simulator="false {binary} {inputs} {outputs}")
    assert b'static const char *const command[] = {"false", "model.bin", "input0.bin"' in model.files["net.c"]
    with pytest.raises(MtoolError, match="failed with status 2") as raised:
        mtool.verify(net, board="host", options=model.options, samples=1, deployment=Deployment(net.parent / "p"))
    assert raised.value.exit_code == 10
