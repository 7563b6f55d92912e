"""A custom domain's operator with a lowering and a C template: the package of docs/add-an-operator.md."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import graphs
import numpy as np
import onnx
import pytest
from onnx import helper

from mtool.base.errors import ModelError, UsageError
from mtool.compiler import added_operators, codegen
from mtool.compiler.operators import custom_domains

ROOT = Path(__file__).parents[3]
BIQUAD = {"b0": 0.25, "b1": 0.5, "b2": 0.25, "a1": -0.3, "a2": 0.2}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where packages are installed."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    custom_domains.custom_operators.cache_clear()
    yield folder
    custom_domains.custom_operators.cache_clear()
    sys.modules.pop("acme_mtool", None)


def install(site: Path, source: str, template: str = "") -> None:
    package, info = site / "acme_mtool", site / "acme_mtool-1.0.dist-info"
    for folder in (package, info):
        folder.mkdir()
    (package / "__init__.py").write_text(source)
    (package / "biquad.c.j2").write_text(template)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-mtool\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[mtool.operators]\nacme = acme_mtool:OPERATORS\n")


def documented() -> tuple[str, str]:
    """Return the package's Python and its template, as the documentation has them."""
    text = (ROOT / "docs/add-an-operator.md").read_text()
    python = re.search(r"```python\n(# acme_mtool/__init__\.py\n.*?)```", text, re.DOTALL)
    c = re.search(r"```c\n/\* acme_mtool/biquad\.c\.j2 \*/\n(.*?)```", text, re.DOTALL)
    assert python and c
    return python[1], c[1]


def biquad(*, name: str = "Biquad", after: bool = False, **attrs: Any) -> onnx.ModelProto:
    given = {key: value for key, value in (BIQUAD | attrs).items() if value is not None}
    nodes = [helper.make_node(name, ["x"], ["y"], name="filter", domain="com.acme", **given)]
    if after:
        nodes += [helper.make_node("Relu", ["y"], ["z"])]
    proto = graphs.model(nodes, {"x": (np.float32, (2, 40))}, ["z" if after else "y"])
    proto.opset_import.append(helper.make_opsetid("com.acme", 1))
    return proto


def filtered(x: np.ndarray) -> np.ndarray:
    y = np.zeros(x.shape)
    for n in range(x.shape[1]):
        back = [y[:, n - k] if n >= k else 0.0 for k in (1, 2)]
        past = [x[:, n - k].astype(np.float64) if n >= k else 0.0 for k in (0, 1, 2)]
        y[:, n] = sum(BIQUAD[f"b{k}"] * past[k] for k in range(3)) - sum(BIQUAD[f"a{k}"] * back[k - 1] for k in (1, 2))
    return y


@pytest.mark.parametrize("after", [False, True])
def test_the_documented_package_computes(site: Path, tmp_path: Path, after: bool) -> None:
    install(site, *documented())
    plan = graphs.compiled(biquad(after=after))
    x = np.random.default_rng(1).standard_normal((2, 40)).astype(np.float32)
    (y,) = graphs.run_c(plan, {"x": x}, tmp_path)
    expected = np.maximum(filtered(x), 0) if after else filtered(x)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)
    text = codegen.generate(plan, "m.onnx", "0" * 64)[0].text("test.c")
    assert "/* biquad_0: biquad, float32[2,40] -> float32[2,40]" in text


@pytest.mark.parametrize(
    ("attrs", "found"),
    [
        ({"b0": None}, "missing attribute 'b0'"),
        ({"b1": "x"}, "attribute 'b1' is 'x'; expected a finite float"),
        ({"b1": 1}, "attribute 'b1' is 1; expected a finite float"),
        ({"b1": [0.5, 1.0]}, "attribute 'b1' is (0.5, 1.0); expected a finite float"),
        ({"b1": float("inf")}, "attribute 'b1' is inf; expected a finite float"),
        ({"b10": 0.5}, "unknown attribute 'b10': did you mean b1?"),
    ],
)
def test_attributes_are_those_of_the_operator(site: Path, attrs: dict[str, Any], found: str) -> None:
    install(site, *documented())
    with pytest.raises(ModelError) as caught:
        graphs.compiled(biquad(**attrs))
    assert found in str(caught.value.details)


LOOP = """
from mtool.compiler.ir import Attributes
from mtool.compiler.ir.expr import axis, call, load
from mtool.compiler.operators.operator import Operator

def _lower(ctx, node):
    kind = ctx.types[node.inputs[0]]
    ctx.loop(node, call("abs", load(0, kind.dtype, (axis(0), axis(1)))), node.inputs)

OPERATORS = (Operator("Size", domain="com.acme", infer=lambda attrs, kinds: kinds[:1], lower=_lower),)
"""


def test_a_loop_has_a_name_in_c(site: Path, tmp_path: Path) -> None:
    install(site, LOOP)
    proto = graphs.model(
        [helper.make_node("Size", ["x"], ["y"], domain="com.acme")], {"x": (np.float32, (2, 4))}, ["y"]
    )
    proto.opset_import.append(helper.make_opsetid("com.acme", 1))
    plan = graphs.compiled(proto)
    x = np.random.default_rng(1).standard_normal((2, 4)).astype(np.float32)
    np.testing.assert_array_equal(graphs.run_c(plan, {"x": x}, tmp_path)[0], np.abs(x))


def test_what_no_package_has_is_refused_by_its_domain(site: Path) -> None:
    install(site, *documented())
    with pytest.raises(ModelError) as caught:
        graphs.compiled(biquad(name="Triquad"))
    assert "com.acme" in str(caught.value.details)


def test_a_package_that_does_not_load_is_named(site: Path) -> None:
    install(site, "raise RuntimeError('no licence')")
    with pytest.raises(UsageError, match="acme_mtool:OPERATORS") as caught:
        graphs.compiled(biquad())
    assert "no licence" in str(caught.value.details)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("raise SystemExit(0)", "SystemExit: 0"),
        ("OPERATORS = (3,)", "3 is not an Operator with a name and a domain"),
        ("OPERATORS = {('com.acme', 'Biquad'): 3}", "is not an Operator with a name and a domain"),
        ("OPERATORS = 3", "TypeError"),
    ],
)
def test_a_package_that_ends_the_process_or_gives_something_else(site: Path, source: str, reason: str) -> None:
    install(site, source)
    with pytest.raises(UsageError, match="can't be loaded") as caught:
        graphs.compiled(biquad())
    assert reason in caught.value.details[0]


@pytest.mark.parametrize("entry", ["no module!", "acme_missing.part:OPERATORS", "acme_mtool.part:OPERATORS"])
def test_a_package_that_is_not_there_stops_no_other_model(site: Path, entry: str) -> None:
    install(site, "raise SystemExit(0)")
    (site / "acme_mtool-1.0.dist-info" / "entry_points.txt").write_text(f"[mtool.operators]\nacme = {entry}\n")
    assert added_operators.sources() == []


def test_a_change_of_the_package_is_noticed(site: Path) -> None:
    install(site, *documented())
    assert added_operators.sources() == [site / "acme_mtool"]


def changed(old: str, new: str) -> str:
    """Return the documented package with one mistake."""
    python, _ = documented()
    assert old in python
    return python.replace(old, new)


MAKES = '    template_node(ctx, node, template, {"x": node.inputs[0]}, {"y": node.outputs[0]}, values)\n'
GIVES = "return inputs[:1]"


def appends(*arguments: str) -> str:
    return f"    template_node({', '.join(arguments)})\n"


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        (GIVES, "return []", "it has 1 output in the model, but the package returns 0 types"),
        (GIVES, "return None", "TypeError"),
        (GIVES, "return [inputs[0].shape]", "the type of output 0 is (2, 40)"),
        (GIVES, "return [TensorType(inputs[0].dtype, [2, 40])]", "the type of output 0 is"),
        (GIVES, "return [TensorType('float32', (2, 40))]", "the type of output 0 is"),
        (GIVES, "return [TensorType(inputs[0].dtype, (2, -40))]", "the type of output 0 is"),
        (GIVES, "return [TensorType(inputs[0].dtype, (1 << 40,))]", "expected at most 2,147,483,647"),
        (GIVES, "raise KeyError('order')", "KeyError: 'order'"),
        (GIVES, "raise SystemExit(0)", "SystemExit: 0"),
        (MAKES, "", "its lowering does not write the output 'y'"),
        (MAKES, "    raise RuntimeError('no licence')\n", "RuntimeError: no licence"),
        (MAKES, "    raise SystemExit(3)\n", "SystemExit: 3"),
        (MAKES, MAKES * 2, "it writes 'y', which is written already"),
        (MAKES, MAKES.replace("node.outputs", "node.inputs"), "it writes 'x', which is written already"),
        (MAKES, MAKES.replace("node.inputs[0]", "'nothing'"), "reads 'nothing' before it is written"),
        (MAKES, MAKES.replace("node.inputs[0]", "node.outputs[0]"), "reads 'y' before it is written"),
        (MAKES, MAKES.replace("values)", "values, scratch=-1)"), "scratch and MACs"),
        (MAKES, MAKES.replace("values)", "values, scratch=8)"), "scratch without a type"),
        (MAKES, MAKES.replace("values)", "None)"), "no mapping of its variables"),
        (MAKES, MAKES.replace('"y"', '"x y"'), "has the names"),
        (MAKES, MAKES.replace('"y"', '"x"'), "has the names"),
        (MAKES, MAKES.replace("values)", "values, overwrites={'y': 'z'})"), "ValueError"),
        (MAKES, MAKES + "    ctx.types['y'] = TensorType(DType.INT8, (2, 40))\n", "'y' is int8[2,40]; expected"),
        (MAKES, "    ctx.node('dense', node.inputs, node.outputs)\n", "AssertionError"),
        (MAKES, "    ctx.node('swish', node.inputs, node.outputs)\n", "appends a node of the unknown kind swish"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("after", [False, True])
def test_a_package_that_does_something_else_is_named(site: Path, old: str, new: str, found: str, after: bool) -> None:
    source = changed(old, new).replace("from mtool.compiler.ir import ", "from mtool.compiler.ir import DType, ")
    install(site, source, documented()[1])
    with pytest.raises(ModelError, match=r"the package of .*filter can't compile it") as caught:
        graphs.compiled(biquad(after=after))
    assert "acme_mtool:OPERATORS" in caught.value.details[0] and found in caught.value.details[1]


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{{ taps }}", "UndefinedError: 'taps' is undefined"),
        ("{% if %}", "TemplateSyntaxError"),
        ("{{ b[7] }}", "UndefinedError"),
        ("{{ rows / 0 }}", "ZeroDivisionError"),
        (None, "FileNotFoundError"),
    ],
)
def test_a_template_that_can_not_be_rendered_is_named(site: Path, template: str | None, reason: str) -> None:
    install(site, documented()[0], template or "")
    if template is None:
        (site / "acme_mtool/biquad.c.j2").unlink()
    plan = graphs.compiled(biquad())
    with pytest.raises(ModelError, match=r"the C template .*biquad\.c\.j2 can't be rendered") as caught:
        codegen.generate(plan, "m.onnx", "0" * 64)
    assert reason in caught.value.details[0]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("lower=_biquad", "lower=3"), (", lower=_biquad", ""), ("infer=_same", "infer=3"), ("infer=_same, ", ""),
        ("attributes=Biquad", "attributes=int"), ("attributes=Biquad", "attributes=Biquad(b0=1.0)"),
        ('domain="com.acme"', 'domain=""'), ('"Biquad", domain', "3, domain"),
    ],
)  # fmt: skip
def test_an_operator_without_its_parts_is_not_loaded(site: Path, old: str, new: str) -> None:
    install(site, changed(old, new))
    with pytest.raises(UsageError, match="acme_mtool:OPERATORS can't be loaded"):
        graphs.compiled(biquad())
