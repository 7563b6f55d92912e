"""A region that is not worth it is compiled to C, and a requested one is reported as such."""

from pathlib import Path

import networks
import onnx
import pytest

import mtool
from mtool.compiler.backends import BackendSpec
from mtool.stages.options import Options

BACKEND = """
from mtool.compiler.backends import Backend, Product

class Npu(Backend):
    name = "npu"

    def refusal(self, operation, context):
        return ""

    def cost(self, region):
        return {factor} * max(region.macs, 1)

    def compile(self, region, folder):
        return Product(body="    (void)0;", cost=7, cycles=5)
"""


@pytest.mark.parametrize(("factor", "pays"), [(1e-3, True), (1e6, False)])
def test_pays(tmp_path: Path, factor: float, pays: bool) -> None:
    (tmp_path / "npu.py").write_text(BACKEND.format(factor=factor))
    onnx.save(networks.integers(5), tmp_path / "net.onnx")
    options = Options(backends=(BackendSpec(str(tmp_path / "npu.py"), optional=not pays),))
    claims = mtool.compile(tmp_path / "net.onnx", board="host", options=options).manifest.claims
    assert {bool(claim.backend) for claim in claims} == {pays}
    reasons = {refusal.reason for claim in claims for refusal in claim.refusals}
    assert pays or all("it does not pay: about" in reason and "in C" in reason for reason in reasons)
