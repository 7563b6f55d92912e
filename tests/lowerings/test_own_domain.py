"""An operator of a domain of one's own, with a lowering and a C template: the package of docs/add-an-operator.md."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import graphs
import numpy as np
import onnx
import pytest
from onnx import helper

from mtool import added_operators, codegen
from mtool.errors import ModelError, UsageError
from mtool.lowerings import own_domains

ROOT = Path(__file__).parents[2]
BIQUAD = {"b0": 0.25, "b1": 0.5, "b2": 0.25, "a1": -0.3, "a2": 0.2}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where packages are installed."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    own_domains.own_operators.cache_clear()
    yield folder
    own_domains.own_operators.cache_clear()
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


def biquad(*, name: str = "Biquad", after: bool = False) -> onnx.ModelProto:
    nodes = [helper.make_node(name, ["x"], ["y"], name="filter", domain="com.acme", **BIQUAD)]
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
        ("OPERATORS = {('com.acme', 'Biquad'): 3}", "is not the domain and name of an OwnOperator"),
        ("OPERATORS = {'Biquad': 3}", "is not the domain and name of an OwnOperator"),
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
