"""onnx's backend test suite on the host: exactly the expected tests pass.

The same ones each time: of an operator's cases the first and every thirteenth after it, and a sixteenth of those where
an operator is written out as functions, each of which follows the operator's own case. `make test-all` runs every one.
The others count as what is written down.
"""

from collections import defaultdict

import amount
import pytest

from tests.onnx_suite.cases import Case, all_cases
from tests.onnx_suite.expectations import NOT_PASSED
from tests.onnx_suite.report import PAGE, page
from tests.onnx_suite.running import Outcome, run_all

pytestmark = [pytest.mark.long, pytest.mark.timeout(600), pytest.mark.filterwarnings("ignore")]


def chosen(cases: list[Case]) -> list[Case]:
    """Return the cases that run."""
    if amount.IS_ALL:
        return cases
    written_out = [case for case in cases if "_expanded" in case.name]
    own = [case for case in cases if case.group == "node" and "_expanded" not in case.name]
    by_operator: defaultdict[str, list[Case]] = defaultdict(list)
    for case in own:
        by_operator[case.subject].append(case)
    running = {case.name for some in by_operator.values() for case in some[::40]}
    running |= {case.name for case in written_out[:: 4 * amount.PART]}
    running |= {case.name for case in [one for one in cases if one.group != "node"][::3]}
    return [case for case in cases if case.name in running]


@pytest.fixture(scope="module")
def run():
    cases = all_cases()
    running = chosen(cases)
    ran = {f"{case.group}/{case.name}": o for case, o in zip(running, run_all(running), strict=True)}
    names = [f"{case.group}/{case.name}" for case in cases]
    return cases, [ran.get(name, Outcome(NOT_PASSED.get(name, ""))) for name in names]


def test_a_part_of_the_cases_runs_and_some_of_each_operator(run) -> None:
    cases, _ = run
    running = chosen(cases)
    assert len(running) >= 0.05 * len(cases)
    assert {case.subject for case in running} == {case.subject for case in cases}


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
    assert PAGE.read_text() == page(*run), "update it: python -m tests.onnx_suite.report"
