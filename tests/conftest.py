"""What all tests share: the folder of the tests is importable (`import graphs`), how much runs, and in what order.

A test marked `product` is tried on many combinations of its parameters. A quarter of them run, the same ones each time;
`make test-all` runs every one, and so does naming one of them.

Tests that share a fixture of their module run in one process (`--dist loadgroup`), so that it is made once; those that
share something else say so themselves (`xdist_group`). Tests marked `long` begin first: none is left alone at the end.
"""

import os
import sys
import zlib
from collections import defaultdict
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import amount
import cpu_times


def pytest_configure(config: pytest.Config) -> None:
    if "MTOOL_CPU_TIMES" in os.environ:
        config.pluginmanager.register(cpu_times)


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    _choose(config, items)
    for item in items:
        if (group := _shared(item)) is not None:
            item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


def _shared(item: pytest.Item) -> str | None:
    """Return a name for what a test shares with others of its module: fixtures, by their parameters."""
    if not isinstance(item, pytest.Function):
        return None
    found = item._fixtureinfo.name2fixturedefs
    shared = sorted(name for name, definitions in found.items() if definitions[-1].scope == "module")
    if not shared:
        return None
    chosen = getattr(item, "callspec", None)
    numbers = [chosen.indices[name] for name in shared if chosen is not None and name in chosen.indices]
    return " ".join([item.nodeid.partition("::")[0], *map(str, numbers)])


def _choose(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what of the products does not run."""
    named = any("[" in argument for argument in config.args)
    if amount.IS_ALL or named:
        return
    products: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("product") is not None:
            products[item.nodeid.partition("[")[0]].append(item)
    left: set[pytest.Item] = set()
    for test, combinations in products.items():
        first = zlib.crc32(test.encode()) % min(amount.PART, len(combinations))
        left |= set(combinations) - set(combinations[first :: amount.PART])
    if left:
        config.hook.pytest_deselected(items=[item for item in items if item in left])
        items[:] = [item for item in items if item not in left]
