"""Common settings: the tests' folder is importable (`import graphs`), how much runs, and in what order.

A test marked `slow` takes more than about a second of processor time. A test marked `product` is tried on many
combinations of its parameters. By default no slow test runs, and of a product a sixteenth (of `product(2)` half), the
same ones each time; `make test-all` runs all of them, and so does naming a test (FILE::TEST).

The tests of a file run in one process (`--dist loadfile`), those of some folders too (distribution.py), so that what
they share is made once. Files with a test that is marked `long` begin first: none is left alone at the end.

MTOOL_TESTS_UNTIL is a time (seconds since 1970) after which no test begins: `scripts/test --quick` sets it.

Python looks for objects in circles less often than by itself: compiling a model makes many objects and hardly a circle.
"""

import gc
import os
import signal
import sys
import time
import zlib
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

# Before NumPy is imported, here and in what is started: its threads wait for one another in busy loops.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parent))

import amount
import compiler_cache
import cpu_times


def pytest_configure(config: pytest.Config) -> None:
    os.environ.pop("COLUMNS", None)  # which xdist sets: tables would be folded
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # each start of mtool would compile all that it imports
    for number, default in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) == signal.SIG_IGN:  # as in a shell's background; what the tests start inherits it
            signal.signal(number, default)
    compiler_cache.use()
    os.environ["MTOOL_CACHE"] = "off"  # nothing made by an earlier version is reused
    os.environ["MTOOL_WERROR"] = "1"  # a warning fails a build here, not at a user's
    os.environ["MTOOL_VERIFY_PLAN"] = "1"  # the memory of every compiled model is checked (mtool.manifest.plan_check)
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # of tests that import onnxruntime themselves
    gc.set_threshold(100_000, 20, 20)
    if "MTOOL_CPU_TIMES" in os.environ:
        config.pluginmanager.register(cpu_times)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from distribution import ByWhatIsShared  # in the process that deals tests out alone

    return ByWhatIsShared(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    _choose(config, items)
    begins_first = "MTOOL_TESTS_UNTIL" not in os.environ  # where time is short, what takes long comes last
    items.sort(key=lambda item: (item.get_closest_marker("long") is None) == begins_first)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    if time.time() > float(os.environ.get("MTOOL_TESTS_UNTIL", "inf")):
        pytest.skip("no time was left; scripts/test runs it")


def _values(item: pytest.Item) -> dict[str, Any]:
    """Return a test's parameters and those of its fixtures."""
    return item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}


def _numbers(values: list[Any]) -> list[int]:
    """Number values as they come; equal ones have the same number."""
    distinct = [value for number, value in enumerate(values) if values.index(value) == number]
    return [distinct.index(value) for value in values]


def _choose(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the slow tests and part of the products, but nothing that is named on the command line."""
    if amount.IS_ALL or any("::" in argument for argument in config.args):
        return
    left = {item for item in items if item.get_closest_marker("slow") is not None}
    products: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item not in left and item.get_closest_marker("product") is not None:
            products[item.nodeid.partition("[")[0]].append(item)
    for test, combinations in products.items():
        left |= set(combinations) - set(_part(test, combinations))
    if left:
        config.hook.pytest_deselected(items=[item for item in items if item in left])
        items[:] = [item for item in items if item not in left]


def _part(test: str, combinations: list[pytest.Item]) -> list[pytest.Item]:
    """Return a part in which no parameter has always the same value: by the sums of the parameters' numbers."""
    (wanted,) = combinations[0].get_closest_marker("product").args or (amount.PART,)
    parts = min(wanted, len(combinations))
    first = zlib.crc32(test.encode()) % parts
    rows = [_values(item) for item in combinations]
    columns = {tuple(_numbers([row[name] for row in rows])) for name in rows[0]}  # those of one mark go together
    sums = map(sum, zip(*columns, strict=True))
    chosen = [item for item, total in zip(combinations, sums, strict=True) if total % parts == first]
    return chosen or combinations[first::parts]
