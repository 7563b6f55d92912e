"""onnx's backend test suite on the host: what passes and what does not is exactly what is written down."""

import pytest

from .cases import all_cases
from .expectations import NOT_PASSED
from .report import PAGE, page
from .running import run_all

pytestmark = [pytest.mark.long, pytest.mark.timeout(600), pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def run():
    cases = all_cases()
    return cases, run_all(cases)


def test_what_does_not_pass_is_written_down(run) -> None:
    cases, outcomes = run
    failed = {f"{case.group}/{case.name}": o.reason for case, o in zip(cases, outcomes, strict=True) if o.reason}
    new = {name: reason for name, reason in failed.items() if name not in NOT_PASSED}
    assert not new, "\n".join(f"{name}: {reason}" for name, reason in new.items())
    assert not set(NOT_PASSED) - set(failed), "these pass now: take them off the list"


def test_enough_passes(run) -> None:
    cases, outcomes = run
    for group, least in (("node", 0.99), ("pytorch-converted", 0.95), ("pytorch-operator", 0.95), ("simple", 0.95)):
        results = [not outcome.reason for case, outcome in zip(cases, outcomes, strict=True) if case.group == group]
        assert sum(results) >= least * len(results), group


def test_the_page_of_operators_is_up_to_date(run) -> None:
    assert PAGE.read_text() == page(*run), "write it anew: python -m tests.onnx_suite.report"
