"""Proofs about the runtime (tests/crt/proofs.py); make prove runs them over all sizes."""

import shutil
from dataclasses import replace

import pytest

from tests.crt import proofs

QUICK = ("delta", "json")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in proofs.PROOFS]
)
def test_no_input_harms(name: str) -> None:
    if shutil.which(proofs.TOOL) is None:
        pytest.skip("frama-c is not installed (Debian: frama-c-base)")
    assert proofs.prove(name, quick=True).alarms == ()


@pytest.mark.slow
def test_what_is_not_proved_is_an_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which(proofs.TOOL) is None:
        pytest.skip("frama-c is not installed (Debian: frama-c-base)")
    monkeypatch.setitem(proofs.PROOFS, "json", replace(proofs.PROOFS["json"], by_result=()))
    assert any(alarm.startswith("src/mt_json.c:") for alarm in proofs.prove("json", quick=True).alarms)
