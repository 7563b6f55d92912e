"""Regions are convex, never depend on one another, and are as large as possible; results stay the same."""

import random
import sys
from pathlib import Path

import amount
import networks
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

import mirror

from mtool.compiler.backends import Operation, Region
from mtool.compiler.backends.partition import Partition
from mtool.compiler.backends.reading import operations_of
from mtool.compiler.ir import Graph


def network(seed: int) -> Graph:
    make = networks.floats if seed % 3 == 0 else networks.integers
    return networks.imported(make(seed))


def reach(operations: list[Operation]) -> list[set[int]]:
    """Return for each operation those that wait for it, near or far."""
    made = {one.value: number for number, operation in enumerate(operations) for one in operation.outputs}
    after: list[set[int]] = [set() for _ in operations]
    for number in reversed(range(len(operations))):
        for value in {one.value for one in operations[number].variables} & made.keys():
            after[made[value]] |= {number, *after[number]}
    return after


def check_regions(graph: Graph, found: Partition) -> None:
    operations = [claim.operation for claim in found.claims]
    after = reach(operations)
    of = [claim.region for claim in found.claims]
    names = {*filter(None, of)}
    for name in names:
        inside = {number for number, region in enumerate(of) if region == name}
        for one in inside:
            for between in after[one] - inside:
                assert not after[between] & inside, f"{name} is not convex"
    waits = {(of[one], of[other]) for one in range(len(of)) for other in after[one] if of[one] and of[other]}
    for one, other in waits:
        assert one == other or (other, one) not in waits, f"{one} and {other} wait for one another"
    computed = [operation.name for region in found.regions for operation in region.operations]
    assert len(computed) == len({*computed}), "an operation is computed twice"
    for region in found.regions:
        crossing = [operand.value for operand in (*region.inputs, *region.outputs)]
        assert len(crossing) == len({*crossing}), f"a tensor crosses the border of {region.name} twice"


@pytest.mark.product(3)
@pytest.mark.parametrize("seed", range(amount.of(300, 14)))
def test_random_claims_leave_the_results(seed: int) -> None:
    chance, graph = random.Random(seed), network(seed)
    share = chance.choice([0.3, 0.6, 0.9, 1.0])
    layout = chance.choice(["", "NHWC"])
    claims = {one.name: chance.random() < share for one in operations_of(graph)}
    first = mirror.backend("first", lambda one: claims.get(one.name, chance.random() < 0.5), layout=layout)
    most = chance.randrange(1, 6)
    second = mirror.backend(
        "second", lambda one: True, lambda region: "too large" if len(region.operations) > most else ""
    )
    backends = [first, second] if chance.random() < 0.5 else [first]
    found, bodies = mirror.partitioned(graph, *backends)
    check_regions(graph, found)
    for feeds in networks.feeds_of(graph, seed, calls=2):
        for expected, got in zip(mirror.run(graph, feeds, {}), mirror.run(found.graph, feeds, bodies), strict=True):
            if expected.dtype.kind == "f":
                np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)
            else:
                np.testing.assert_array_equal(got, expected)


def test_everything_claimed_is_one_region() -> None:
    graph = network(1)
    found, _ = mirror.partitioned(graph, mirror.backend("all", lambda one: True))
    assert len(found.regions) == 1
    assert {node.op for node in found.graph.nodes} == {"External"}
    (region,) = found.regions
    assert {one.value for one in region.inputs} == {*graph.inputs}
    assert {one.value for one in region.outputs} == {*graph.outputs}


def test_nothing_claimed_changes_nothing() -> None:
    graph = network(2)
    found, _ = mirror.partitioned(graph, mirror.backend("none", lambda one: False))
    assert found.graph is graph and not found.regions
    assert all(claim.refusals == (("none", "the test does not give it that"),) for claim in found.claims)


def test_a_limit_cuts_regions() -> None:
    def limit(region: Region) -> str:
        return "" if len(region.operations) <= 2 else "more than two"

    found, _ = mirror.partitioned(network(4), mirror.backend("small", lambda one: True, limit))
    assert max(len(region.operations) for region in found.regions) == 2
