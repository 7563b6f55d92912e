"""Random valid nodes of every operator, from its record's cases, on the host and on a board, against onnxruntime."""

import functools
import random
import shutil

import amount
import numpy as np
import onnx
import pytest

from mtool import boards
from mtool.compiler.operators import operators
from mtool.compiler.operators.operator import Operator
from mtool.compiler.operators.problems import OWN
from tests.fuzzing.networks import Net, draw_case, feeds, reads, reference
from tests.onnx_suite.cases import Case
from tests.onnx_suite.running import run_all, run_on_board

SHAPES = ((2, 4, 6, 6), (1, 3, 5, 4), (1, 2, 4, 4, 3), (2, 3, 4), (2, 8, 8), (3, 3), (3, 4), (5,))
NEWEST = 21
SCHEMAS = onnx.defs.get_all_schemas_with_history()
TOLERANCES = {
    "QLinearSoftmax": 1,
    "QLinearAveragePool": 1,
    "DynamicQuantizeLSTM": 1e-2,
}  # onnxruntime rounds its steps in another way
DRAWN = {key: operator for key, operator in operators().items() if operator.cases and operator.domain != OWN}

pytestmark = [pytest.mark.filterwarnings("ignore")]


@functools.cache
def opset_of(domain: str, name: str) -> int:
    """Return the opset of a case: a newer one only for an operator that is newer, an older one if it is gone."""
    versions = [one for one in SCHEMAS if (one.name, one.domain) == (name, domain)]
    newest = max((one for one in versions), key=lambda one: one.since_version, default=None)
    if newest is None or domain:
        return NEWEST
    first = min(one.since_version for one in versions)
    return newest.since_version - 1 if newest.deprecated else max(first, NEWEST)


def drawn(op: Operator, seed: int) -> Case:
    """Return a model of one node with inputs and what onnxruntime makes of them."""
    failed: Exception | None = None
    for attempt in range(60):
        net = Net(random.Random(f"{op.domain}.{op.name} {seed} {attempt}"), opset=opset_of(op.domain, op.name))
        for shape in SHAPES:
            net.input(np.float32, shape)
        try:
            draw_case(net, op.name, op.domain)
            read = {name for node in net.nodes for name in reads(node)}
            net.inputs = [value for value in net.inputs if value.name in read]
            model = net.model()
            given = feeds(model, 1)
            outputs = reference(model, given)
        except (ValueError, IndexError, ZeroDivisionError, onnx.defs.SchemaError) as refused:
            failed = refused
            continue
        data = [([*given.values()], [*outputs.values()])]
        return Case("drawn", f"{op.domain}.{op.name}", model, data, 1e-4, TOLERANCES.get(op.name, 1e-4))
    raise AssertionError(f"{op.name} has no valid case: {failed}")


@pytest.mark.parametrize("seed", range(amount.of(8, 1)))
def test_cases(seed: int) -> None:
    cases = [drawn(op, seed) for op in DRAWN.values()]
    outcomes = run_all(cases)
    assert not {case.name: outcome.reason for case, outcome in zip(cases, outcomes, strict=True) if outcome.reason}


@pytest.mark.long
def test_cases_on_a_board() -> None:
    """One firmware for many cases."""
    board = boards.get("mps2_an386")
    assert board.emulator is not None
    for program in (board.toolchain, board.emulator.program, "cmake", "ninja"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    chosen = random.Random(0).sample([*DRAWN.values()], amount.of(len(DRAWN), 60))
    assert not run_on_board([drawn(op, 100) for op in chosen], board)
