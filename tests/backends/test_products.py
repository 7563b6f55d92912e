"""Backends that misbehave: a clear error, of exit code 5, and nothing is written."""

from pathlib import Path
from typing import Any

import networks
import numpy as np
import onnx
import pytest

import mtool
from mtool.backends import BackendSpec
from mtool.errors import MtoolError
from mtool.workflow.stages import Model, Options

BACKEND = """
import numpy as np
from mtool.backends import Backend, BackendError, Pattern, Product

class Npu(Backend):
    name = "npu"
    patterns = (Pattern("Relu"), Pattern("Add"), Pattern("Conv"), Pattern("Mul"), Pattern("Flatten"), Pattern("Pool"))

    def compile(self, region, folder):
        {compile}
"""
DOES_NOTHING = 'Product(body="    (void)0;"{})'


def compiled(tmp_path: Path, body: str, **options: Any) -> Model:
    (tmp_path / "npu.py").write_text(BACKEND.format(compile=body))
    onnx.save(networks.integers(5), tmp_path / "net.onnx")
    spec = BackendSpec(str(tmp_path / "npu.py"))
    return mtool.compile(tmp_path / "net.onnx", board="host", options=Options(backends=(spec,), **options))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("return 3", "returned something malformed"),
        ('return Product(body="")', "returned something malformed"),
        ("return " + DOES_NOTHING.format(', files={"../x.c": b""}'), "outside of the model's folder"),
        ("return " + DOES_NOTHING.format(', files={"/x.c": b""}'), "outside of the model's folder"),
        ("return " + DOES_NOTHING.format(', files={"x.c": "text"}'), "expected bytes"),
        ("return " + DOES_NOTHING.format(', constants={"input0": np.zeros(1)}'), "not a free name"),
        ("return " + DOES_NOTHING.format(', constants={"a b": np.zeros(1)}'), "not a free name"),
        ("return " + DOES_NOTHING.format(', constants={"a": "text"}'), "no array"),
        ("return " + DOES_NOTHING.format(", scratch_bytes=-1"), "scratch_bytes is -1"),
        ("return " + DOES_NOTHING.format(", alignment=3"), "alignment is 3"),
        ("return " + DOES_NOTHING.format(', headers=("a b",)'), "is no name of one"),
        ("return " + DOES_NOTHING.format(', files={"net_weights.c": b""}'), "as the model itself has"),
        ("return " + DOES_NOTHING.format(', constants={"int": np.zeros(1)}'), "not a free name"),
        ("return " + DOES_NOTHING.format(', constants={"größe": np.zeros(1)}'), "not a free name"),
        ("return " + DOES_NOTHING.format(", constants={3: np.zeros(1)}"), "not a free name"),
        ("return " + DOES_NOTHING.format(", constants=None"), "constants is NoneType; expected Mapping"),
        ("return " + DOES_NOTHING.format(', files={3: b""}'), "outside of the model's folder"),
        ("return " + DOES_NOTHING.format(', files={"a b\\n.c": b""}'), "has no name that a build takes"),
        ("return " + DOES_NOTHING.format(', scratch_bytes="64"'), "scratch_bytes is str; expected int"),
        ("return " + DOES_NOTHING.format(", scratch_bytes=64.0"), "scratch_bytes is float; expected int"),
        ("return " + DOES_NOTHING.format(', headers="npu.h"'), "headers is str; expected tuple or list"),
        ('return Product(body="/* \\ud800 */")', "no text"),
        ("raise SystemExit(3)", "SystemExit"),
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


def test_a_name_behind_skip_that_no_node_has_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "npu.py"
    path.write_text(BACKEND.format(compile="return " + DOES_NOTHING.format("")))
    onnx.save(networks.integers(5), tmp_path / "net.onnx")
    node = mtool.compile(tmp_path / "net.onnx", board="host").manifest.operators[0].name
    spec = BackendSpec(str(path), options={"skip": f"{node}|nowhere_9"})
    mtool.compile(tmp_path / "net.onnx", board="host", options=Options(backends=(spec,)))
    assert "npu: skip=nowhere_9 names no operator of the model" in caplog.text


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


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("def __init__(self, options): 1 / 0", "does not start: ZeroDivisionError"),
        ("def __init__(self, options): raise SystemExit(3)", "does not start: SystemExit: 3"),
        ("name = None", "has the name None"),
        ('name = "größe"', "has the name 'größe'"),
        ("pass\n\nraise SystemExit(0)", "can't be loaded"),
    ],
)
def test_a_class_that_does_not_start(tmp_path: Path, lines: str, words: str) -> None:
    source = f"from mtool.backends import Backend\n\nclass Npu(Backend):\n    name = 'npu'\n    {lines}\n"
    (tmp_path / "npu.py").write_text(source)
    onnx.save(networks.integers(5), tmp_path / "net.onnx")
    with pytest.raises(MtoolError, match=words):
        options = Options(backends=(BackendSpec(f"{tmp_path}/npu.py"),))
        mtool.compile(tmp_path / "net.onnx", board="host", options=options)
