"""The CPU time of each test and its child processes, which does not depend on a machine's load.

MTOOL_CPU_TIMES=FILE appends a line a test, setup and teardown included: seconds of Python, seconds of the programs that
were started, the test. A fixture's time is counted for the first test that uses it.
"""

import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    before = _seconds()
    result = yield
    own, started = (after - start for start, after in zip(before, _seconds(), strict=True))
    with Path(os.environ["MTOOL_CPU_TIMES"]).open("a") as file:
        file.write(f"{own:.2f} {started:.2f} {item.nodeid}\n")
    return result


def _seconds() -> tuple[float, float]:
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    own, started = (one.ru_utime + one.ru_stime for one in used)
    return own, started
