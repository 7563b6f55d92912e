"""What all tests share: the folder of the tests is importable (`import graphs`), and how much of a large product runs.

A test marked `product` is tried on many combinations of its parameters. A quarter of them run, the same ones each time;
`make test-all` runs every one, and so does naming one of them.
"""

import sys
import zlib
from collections import defaultdict
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import amount


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
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
