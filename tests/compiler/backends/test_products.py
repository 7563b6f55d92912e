"""Misbehaving backends: a clear error with exit code 5, and nothing is written."""

from pathlib import Path
from typing import Any

import networks
import numpy as np
import onnx
import pytest

import mtool
from mtool.base.errors import MtoolError, UsageError
from mtool.cli import app
from mtool.compiler.backends import BackendError, BackendSpec
from mtool.compiler.backends.chosen import choose
from mtool.stages.building import write_project
from mtool.stages.compiling import CompiledModel
from mtool.stages.options import Options

BACKEND = """
import numpy as np
from mtool.compiler.backends import Backend, BackendError, Pattern, Product

class Npu(Backend):
    name = "npu"
    patterns = (Pattern("Relu"), Pattern("Add"), Pattern("Conv"), Pattern("Mul"), Pattern("Flatten"), Pattern("Pool"))

    def compile(self, region, folder):
        {compile}
"""
DOES_NOTHING = 'Product(body="    (void)0;"{})'


def compiled(tmp_path: Path, body: str, **options: Any) -> CompiledModel:
    (tmp_path / "npu.py").write_text(BACKEND.format(compile=body))
    onnx.save(networks.integers(5), tmp_path / "net.onnx")
    spec = BackendSpec(str(tmp_path / "npu.py"))
    return mtool.compile(tmp_path / "net.onnx", board="host", options=Options(backends=(spec,), **options))


@pytest.mark.product(3)
@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("return 3", "returned a malformed product"),
        ('return Product(body="")', "returned a malformed product"),
        ("return " + DOES_NOTHING.format(', files={"../x.c": b""}'), "outside of the model's folder"),
        ("return " + DOES_NOTHING.format(', files={"/x.c": b""}'), "outside of the model's folder"),
        ("return " + DOES_NOTHING.format(', files={"x.c": "text"}'), "expected bytes"),
        ("return " + DOES_NOTHING.format(', constants={"input0": np.zeros(1)}'), "not valid in C, or taken"),
        ("return " + DOES_NOTHING.format(', constants={"a b": np.zeros(1)}'), "not valid in C, or taken"),
        ("return " + DOES_NOTHING.format(', constants={"a": "text"}'), "expected an array"),
        ("return " + DOES_NOTHING.format(", scratch_bytes=-1"), "scratch_bytes is -1"),
        ("return " + DOES_NOTHING.format(", alignment=3"), "alignment is 3"),
        ("return " + DOES_NOTHING.format(', headers=("a b",)'), "is not a valid name of a header"),
        ("return " + DOES_NOTHING.format(', headers="a.h"'), "expected a sequence, each a string"),
        ("return " + DOES_NOTHING.format(', files={3: b""}'), "expected a mapping from strings"),
        ("return " + DOES_NOTHING.format(', files=["x.c"]'), "expected a mapping of a string"),
        ("return " + DOES_NOTHING.format(', files={"x\\n.c": b""}'), "has characters other than letters"),
        ("return " + DOES_NOTHING.format(', files={"mt_math.h": b""}'), "reserved for the runtime"),
        ("return " + DOES_NOTHING.format(', constants={"int": np.zeros(1)}'), "not valid in C, or taken"),
        ("return " + DOES_NOTHING.format(', constants={"é": np.zeros(1)}'), "not valid in C, or taken"),
        ("return " + DOES_NOTHING.format(', layouts={"a": 3}'), "expected a string"),
        ("return " + DOES_NOTHING.format(', constants={"a": np.zeros((3, 0))}'), "the constant a is empty"),
        ("return " + DOES_NOTHING.format(', constants={"INT32_MAX": np.zeros(3)}'), "not valid in C, or taken"),
        ("return " + DOES_NOTHING.format(', files={"npu": b"", "npu/x.c": b""}'), "is also the folder of 'npu/x.c'"),
        ("return " + DOES_NOTHING.format(', files={"npu//x.c": b""}'), "not a plain relative path"),
        ("return " + DOES_NOTHING.format(', files={"npu/": b""}'), "not a plain relative path"),
        ("return " + DOES_NOTHING.format(', files={"net.c": b""}'), "so does the model itself"),
        ("return " + DOES_NOTHING.format(', headers=("npu/none.h",)'), "npu/none.h is neither among its files"),
        (
            "return " + DOES_NOTHING.format(', hooks={"open": "net_run"}, headers=("mt_half.h",)'),
            "a name that is reserved for the model",
        ),
        (
            "class Bad(dict):\n            def items(self): raise OSError('gone')\n        "
            "return " + DOES_NOTHING.format(', files=Bad(a=b"")'),
            "OSError: gone",
        ),
        ("return " + DOES_NOTHING.format(", cycles=float('nan')"), "cycles is nan"),
        ("return " + DOES_NOTHING.format(", scratch_bytes='4'"), "scratch_bytes is '4'"),
        ("return " + DOES_NOTHING.format(", tensor_alignment=8192"), "a power of two up to 4096"),
        ("return " + DOES_NOTHING.format(", can_fail=True"), "returns no status"),
        ("return " + DOES_NOTHING.format(", can_fail=1"), "expected True or False"),
        ("return " + DOES_NOTHING.format(', hooks={"start": "f"}, headers=("mtool.h",)'), "unknown hook 'start'"),
        ("return " + DOES_NOTHING.format(', hooks={"open": "f()"}, headers=("mtool.h",)'), "the name of a C function"),
        ("return " + DOES_NOTHING.format(', hooks={"open": "f"}'), "no header that declares them"),
        (
            "import mtool.base.proc; mtool.base.proc.run(['sleep', '60'], timeout_s=0.2, what='npuc')",
            "npuc took more than 0.2 s",
        ),
        ("return " + DOES_NOTHING.format(', files={"net_weights.c": b""}'), "so does the model itself"),
        ("raise KeyError('lost')", "KeyError"),
        ("raise BackendError('the compiler says no', details=['at relu_3'])", "the compiler says no"),
    ],
)
def test_errors(tmp_path: Path, body: str, words: str) -> None:
    with pytest.raises(MtoolError, match=words) as raised:
        compiled(tmp_path, body).render_project()
    assert raised.value.exit_code == 5


def test_fallback(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = compiled(tmp_path, "raise BackendError('the compiler says no')", backend_fallback=True)
    assert "left to C: the compiler says no" in caplog.text
    assert not any(one.schedule == "c99_call" for one in model.manifest.operators)


def test_files_and_constants_reach_the_model(tmp_path: Path) -> None:
    body = "return " + DOES_NOTHING.format(
        ', files={"npu/npu.c": b"int npu;", "npu/npu.h": b""}, headers=("npu/npu.h",), '
        'constants={"table": np.arange(7, dtype=np.int16)}, layouts={"table": "as I like it"}'
    )
    model = compiled(tmp_path, body)
    assert model.files["npu/npu.c"] == b"int npu;"
    assert b'#include "npu/npu.h"' in model.files["net.c"]
    assert b"as I like it" in model.files["net_weights.c"]
    used = [one for one in model.manifest.operators if one.schedule == "c99_call"]
    assert used and np.sum([one.constant_bytes for one in used]) >= 14
    assert {claim.backend for claim in model.manifest.claims} == {"", "npu"}


METHODS = """
from mtool.compiler.backends import Backend, Pattern, Product

class Npu(Backend):
    name = "npu"
    patterns = (Pattern("Conv", where=(lambda operation: {pattern},)),)

    def claims(self, region):
        return {claims}

    def cost(self, region):
        return {cost}

    def compile(self, region, folder):
        return Product(body="    (void)0;")
"""
SOUND = {"pattern": '""', "claims": '""', "cost": "None"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"pattern": "1 / 0"}, "the backend npu failed: ZeroDivisionError"),
        ({"pattern": "3"}, "returned 3 from refusal"),
        ({"claims": "1 / 0"}, "the backend npu failed: ZeroDivisionError"),
        ({"claims": "True"}, "returned True from claims"),
        ({"cost": "1 / 0"}, "the backend npu failed: ZeroDivisionError"),
        ({"cost": "-1"}, "returned -1 from cost"),
        ({"cost": "float('nan')"}, "returned nan from cost"),
        ({"cost": "'much'"}, "returned 'much' from cost"),
    ],
)
def test_methods_that_misbehave(tmp_path: Path, change: dict[str, str], words: str) -> None:
    (tmp_path / "npu.py").write_text(METHODS.format(**{**SOUND, **change}))
    network = networks.integers(5)
    onnx.save(network, tmp_path / "net.onnx")
    options = Options(backends=(BackendSpec(str(tmp_path / "npu.py")),))
    with pytest.raises(MtoolError, match=words) as raised:
        mtool.compile(tmp_path / "net.onnx", board="host", options=options)
    assert raised.value.exit_code == 5
    assert any(node.name in str(raised.value) for node in network.graph.node if node.op_type == "Conv")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1 / 0", "can't be loaded"),
        ("class Npu: pass", "does not define exactly one backend"),
        ("from mtool.compiler.backends import Backend\nclass Npu(Backend): name = 'a b'", "expected a valid name in C"),
        ("from mtool.compiler.backends import Backend\nclass Npu(Backend): name = 3", "expected a valid name in C"),
        ("from mtool.compiler.backends import Backend\nclass Npu(Backend): name = 'int'", "expected a valid name in C"),
        (
            "from mtool.compiler.backends import Backend\nclass Npu(Backend):\n  name = 'a'\n"
            "  def __init__(self, o): 1 / 0",
            "ZeroDivisionError",
        ),
        (
            "from mtool.compiler.backends import Backend\nclass Npu(Backend):\n  name = 'a'\n"
            "  def __init__(self): pass",
            "TypeError",
        ),
        ("import sys; sys.exit(0)", "can't be loaded"),
    ],
)
def test_classes_that_can_not_be_had(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "npu.py").write_text(text)
    with pytest.raises((UsageError, BackendError), match=words):
        choose([BackendSpec(str(tmp_path / "npu.py"))])


def test_tensors_lie_as_the_device_needs_them(tmp_path: Path) -> None:
    body = "return " + DOES_NOTHING.format(", scratch_bytes=5, alignment=32, tensor_alignment=64")
    model = compiled(tmp_path, body)
    regions = [one for one in model.manifest.operators if one.schedule == "c99_call"]
    places = [operand for one in regions for operand in (*one.reads, *one.writes)]
    assert places and all(operand.offset % 64 == 0 for operand in places)
    assert all(one.scratch_offset % 32 == 0 for one in regions)
    assert b"MT_ARENA_ALIGNED(64) MT_ARENA uint8_t" in model.files["net.c"]
    with pytest.raises(MtoolError, match="needs tensors aligned to 64 B") as raised:
        compiled(tmp_path, body, io="external").render_project()
    assert raised.value.exit_code == 5 and "is kept by the caller" in str(raised.value)


ODD = 'relu"; evil() /* \u202e\n<b>'


HOSTILE = (
    "return " + DOES_NOTHING.format(', files={"../x": b""}'),
    "return " + DOES_NOTHING.format(', constants={"a": np.zeros(0)}'),
    "(folder / 'elsewhere').write_text(''); raise BackendError('it wrote elsewhere')",
    "import mtool.base.proc; mtool.base.proc.run(['sleep', '60'], timeout_s=0.2, what='npuc')",
    *(
        pytest.param(body, marks=pytest.mark.slow)
        for body in (
            "raise ValueError('no room')",
            "return " + DOES_NOTHING.format(', files={"npu": b"", "npu/x.c": b""}'),
            "return " + DOES_NOTHING.format(', files={"net_weights.c": b""}'),
            "return " + DOES_NOTHING.format(', headers=("none.h",)'),
        )
    ),
)


@pytest.mark.parametrize("body", HOSTILE)
def test_nothing_is_half_written(body: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither a new folder nor a project that is there already is touched."""
    before = compiled(tmp_path, "return " + DOES_NOTHING.format(""))
    out = write_project(before, tmp_path / "out")
    there = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    (tmp_path / "npu.py").write_text(BACKEND.format(compile=body))
    for folder in (out, tmp_path / "new"):
        argv = ["build", str(tmp_path / "net.onnx"), "--board", "host", "-d", str(folder)]
        assert app.invoke([*argv, "--backend", str(tmp_path / "npu.py")]) == 5
    assert "Traceback" not in capsys.readouterr().err
    assert there == {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert not (tmp_path / "new").exists() and not (tmp_path / "x").exists()


@pytest.mark.parametrize("command", ["build", "compile"])
def test_nothing_is_written(tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "npu.py").write_text(BACKEND.format(compile='raise ValueError("no room\\x1b[31m")'))
    network = networks.integers(5)
    for node in network.graph.node:
        node.name += ODD
    onnx.save(network, tmp_path / "net.onnx")
    out = tmp_path / "out"
    backend = ["--backend", str(tmp_path / "npu.py")]
    assert app.invoke([command, str(tmp_path / "net.onnx"), "--board", "host", "-d", str(out), *backend]) == 5
    said = capsys.readouterr().err
    assert "ValueError: no room" in said and "evil()" in said and "Traceback" not in said
    assert "\x1b" not in said and "\u202e" not in said
    assert not out.exists()
    (tmp_path / "npu.py").write_text(BACKEND.format(compile="return " + DOES_NOTHING.format("")))
    assert app.invoke(["check", str(tmp_path / "net.onnx"), "--board", "host", *backend]) == 0
    assert "npu (npu_0)" in capsys.readouterr().out, "regions are reported with the operators"
