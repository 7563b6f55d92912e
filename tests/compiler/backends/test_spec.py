"""The values of --backend, and how backends are found."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from graphs import model
from onnx import helper, save

import mtool
from mtool import Options, commands
from mtool.base.errors import UsageError
from mtool.compiler.backends import BackendSpec
from mtool.compiler.backends.chosen import choose
from mtool.compiler.backends.spec import parse


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("npu", BackendSpec("npu")),
        ("npu:path=/a/b", BackendSpec("npu", "", {"path": "/a/b"})),
        ("npu:a=1,b=two words", BackendSpec("npu", "", {"a": "1", "b": "two words"})),
        ('npu:cmd="x, \\"y\\" : z",b=1', BackendSpec("npu", "", {"cmd": 'x, "y" : z', "b": "1"})),
        ("npu:cmd='a=b,c'", BackendSpec("npu", "", {"cmd": "a=b,c"})),
        ("npu:url=host:80", BackendSpec("npu", "", {"url": "host:80"})),
        ("./my.py", BackendSpec("./my.py")),
        ("./my.py:Npu", BackendSpec("./my.py", "Npu")),
        ("./my.py:Npu:skip=a|b", BackendSpec("./my.py", "Npu", {"skip": "a|b"})),
        ("./my.py:skip=a", BackendSpec("./my.py", "", {"skip": "a"})),
        ("C:\\my.py:Npu", BackendSpec("C:\\my.py", "Npu")),
        ("npu:optional", BackendSpec("npu", optional=True)),
        ("npu:optional,a=1", BackendSpec("npu", "", {"a": "1"}, optional=True)),
        ("npu:a=optional, optional", BackendSpec("npu", "", {"a": "optional"}, optional=True)),
        ("./my.py:optional", BackendSpec("./my.py", optional=True)),
        ("./my.py:Npu:optional", BackendSpec("./my.py", "Npu", optional=True)),
    ],
)
def test_grammar(text: str, expected: BackendSpec) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize("text", ["", ":a=1", "npu:a", "npu:a=1,a=2", 'npu:a="x', "npu:=1", "no.toml"])
def test_malformed(text: str) -> None:
    with pytest.raises(UsageError):
        parse(text)


def test_toml(tmp_path: Path) -> None:
    (tmp_path / "npu.toml").write_text('backend = "npu.py"\nclass = "Npu"\n[options]\nbanks = 4\nfast = true\n')
    found = parse(str(tmp_path / "npu.toml"))
    assert found == BackendSpec(str(tmp_path / "npu.py"), "Npu", {"banks": "4", "fast": "yes"})
    assert parse(str(tmp_path / "npu.toml:optional")) == replace(found, optional=True)
    (tmp_path / "npu.toml").write_text("backend = 3\n")
    with pytest.raises(UsageError, match="does not describe a backend"):
        parse(str(tmp_path / "npu.toml"))


NPU = """
from mtool.compiler.backends import Backend

class Npu(Backend):
    name = "npu"
    options = {"banks": "how many memories it has"}
"""


@pytest.mark.parametrize("place", ["{}/npu.py", "ethos_u", "ethos_u:skip=n0"])
def test_one_that_computes_nothing_is_an_error_unless_it_is_optional(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, place: str
) -> None:
    (tmp_path / "npu.py").write_text(NPU)
    nodes = [helper.make_node("Mul", ["x", "x"], ["y"], name="n0")]
    save(model(nodes, {"x": (np.float32, (1, 4))}, ["y"]), tmp_path / "net.onnx")
    text = place.format(tmp_path)
    name = "npu" if text.endswith(".py") else "ethos_u"
    for stage in (mtool.compile, commands.partition):
        with pytest.raises(UsageError, match=f"the backend {name} computes no operator of the model") as refused:
            stage(tmp_path / "net.onnx", board="mps3_an547", options=Options(backends=(parse(text),)))
        assert refused.value.details and ":optional" in refused.value.hint
    optional = parse(text + (",optional" if "=" in text else ":optional"))
    made = mtool.compile(tmp_path / "net.onnx", board="mps3_an547", options=Options(backends=(optional,)))
    assert [one.backend for one in made.manifest.claims] == [""]
    assert f"the backend {name} computes no operator of the model: " in caplog.text


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "npu.py"
    path.write_text(NPU)
    (found,) = choose([parse(f"{path}:banks=4,regions=2,inputs-only=yes,skip=a|b")])
    assert found.backend.name == "npu" and found.backend.values == {"banks": "4"}
    assert (found.most, found.inputs_only, found.skip) == (2, True, {"a", "b"})


@pytest.mark.parametrize(
    ("source", "spec", "words"),
    [
        (NPU, "{}:bank=4", "no option bank"),
        (NPU, "{}:regions=some", "expected a number"),
        (NPU, "{}:inputs-only=1", "expected yes or no"),
        (NPU, "{}:Other", "is not a backend"),
        (NPU.replace('"npu"', '"my npu"'), "{}", "expected a valid name in C"),
        ("x = 1", "{}", "does not define exactly one backend"),
        ("x =", "{}", "can't be loaded"),
        ("raise KeyError(3)", "{}", "can't be loaded"),
    ],
)
def test_wrong_files(tmp_path: Path, source: str, spec: str, words: str) -> None:
    path = tmp_path / "npu.py"
    path.write_text(source)
    with pytest.raises(UsageError, match=words):
        choose([parse(spec.format(path))])


def test_unknown_names() -> None:
    with pytest.raises(UsageError, match="unknown backend nothing"):
        choose([parse("nothing")])
    with pytest.raises(UsageError, match="there is no file"):
        choose([parse("./nothing.py")])
