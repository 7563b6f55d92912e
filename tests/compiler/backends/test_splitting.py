"""A backend's compiler refuses operations of a region: the rest is compiled, and `check` shows the reason."""

import importlib.util
from pathlib import Path

import networks
import numpy as np
import onnx
import pytest
from tflite_models import Op, T, model

import mtool
from mtool.compiler.backends import BackendError, BackendSpec
from mtool.stages.compiling import CompiledModel
from mtool.stages.options import Options

BACKEND = """
from mtool.compiler.backends import Backend, OperationsRefused, Pattern, Product

class Npu(Backend):
    name = "npu"
    patterns = (Pattern("Relu"), Pattern("Add"), Pattern("Conv"), Pattern("Mul"), Pattern("Pool"))
    asked = []

    def compile(self, region, folder):
        self.asked.append(region.name)
        bad = [one.name for one in region.operations if one.kind in {kinds}][:1]
        if bad or {always}:
            raise OperationsRefused("npuc says no", dict.fromkeys(bad, "npuc has no room"), details=["at x"])
        return Product(body="    (void)0;")
"""


def compiled(folder: Path, kinds: tuple[str, ...], *, always: bool = False, falls_back: bool = False) -> CompiledModel:
    (folder / "npu.py").write_text(BACKEND.format(kinds=kinds, always=always))
    onnx.save(networks.integers(5), folder / "net.onnx")
    options = Options(backends=(BackendSpec(str(folder / "npu.py")),), backend_fallback=falls_back)
    return mtool.compile(folder / "net.onnx", board="host", options=options)


def test_what_is_left_is_compiled(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    whole = {one.operator: one.region for one in compiled(tmp_path, ()).manifest.claims if one.region}
    made = compiled(tmp_path, ("Add",)).manifest
    refused = {one.operator for one in made.claims if one.operator in whole and not one.region}
    kinds = {one.operator: one.kind for one in made.claims}
    assert refused == {name for name in whole if kinds[name] == "Add"} and refused < {*whole}
    for claim in made.claims:
        assert [one.reason for one in claim.refusals if one.reason == "npuc has no room"] == (
            ["npuc has no room"] if claim.operator in refused else []
        )
    calls = [one.name for one in made.operators if one.schedule == "c99_call"]
    assert sorted(calls) == sorted({one.region for one in made.claims if one.region})
    assert "npu_0 is split: npuc says no" in caplog.text


def test_one_that_refuses_nothing_by_name(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match="npuc says no") as raised:
        compiled(tmp_path, (), always=True)
    assert raised.value.exit_code == 5
    claims = compiled(tmp_path, (), always=True, falls_back=True).manifest.claims
    assert not any(one.region for one in claims)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ethosu") is None, reason="Vela is not installed")
def test_what_vela_leaves_to_the_cpu(tmp_path: Path) -> None:
    """A pool that is too large for the NPU is C, and what stands around it is two regions."""
    tensors = [T(name, [1, 300, 300, 2], np.int8, 0.1, 3) for name in ("x", "s")]
    tensors += [T(name, [1, 1, 1, 2], np.int8, 0.1, 3) for name in ("m", "y")]
    window = {"Padding": 1, "StrideH": 1, "StrideW": 1, "FilterHeight": 300, "FilterWidth": 300}
    ops = [
        Op("ADD", ["x", "x"], ["s"], "AddOptions"),
        Op("MAX_POOL_2D", ["s"], ["m"], "Pool2DOptions", window),
        Op("ADD", ["m", "m"], ["y"], "AddOptions"),
    ]
    (tmp_path / "net.tflite").write_bytes(model(tensors, ops, ["x"], ["y"]))
    spec = BackendSpec("ethos_u", options={"config": "ethos-u55-128"})
    options = Options(rounding="tflite", backends=(spec,))
    claims = mtool.compile(tmp_path / "net.tflite", board="mps3_an547", options=options).manifest.claims
    assert [one.kind for one in claims if not one.region] == ["Pool"]
    (why,) = [one.reason for claim in claims for one in claim.refusals]
    assert why.startswith("Vela leaves it to the CPU: ") and "300" in why
    assert len({one.region for one in claims if one.region}) == 2
