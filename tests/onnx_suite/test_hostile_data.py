"""Data is not trusted: whatever a tensor contains, no operator reads or writes outside of one.

Of each operator of the suite that reads integers, and of those that compute a place from floats, some cases run with
numbers that no index or length may be, under the address and undefined-behaviour sanitizers. An operator that is added
comes in by itself, with its cases in the suite.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import amount
import numpy as np
import pytest

from mtool.base.errors import MtoolError
from mtool.plugins.onnx_backend.batch import Array, Batch, CModel, build
from tests import sanitized
from tests.onnx_suite.cases import Case, node_cases
from tests.onnx_suite.running import compiled

pytestmark = [pytest.mark.long, pytest.mark.timeout(600), pytest.mark.filterwarnings("ignore")]

BY_FLOATS = {"GridSample", "RoiAlign", "DeformConv", "NonMaxSuppression", "MaxUnpool"}
INDEXED = {
    "Gather", "GatherElements", "GatherND", "ScatterElements", "Scatter", "ScatterND", "OneHot",
    "ReverseSequence", "MaxUnpool", "RoiAlign", "GridSample", "DeformConv", "TensorScatter", "TfIdfVectorizer",
    "NonMaxSuppression",
}  # fmt: skip
EACH = amount.of(3, 1)  # cases of an operator


def reads_places(case: Case) -> bool:
    """Whether an input of integers, or of floats that become places, is there in the run."""
    integers = any(data.dtype in (np.int32, np.int64) for data in case.data[0][0])
    return integers or case.subject in BY_FLOATS


def drawn() -> list[Case]:
    """Return the first cases of each operator."""
    count: Counter[str] = Counter()
    kept = []
    for case in node_cases():
        if "_expanded" not in case.name and reads_places(case) and count[case.subject] < EACH:
            count[case.subject] += 1
            kept.append(case)
    return kept


def hostile(data: Array, kind: int, *, floats: bool) -> Array:
    """Return an array of the same type whose numbers are the ends of the type, just outside, or anything."""
    if data.dtype.kind == "i" and data.dtype.itemsize >= 4:
        ends = np.iinfo(data.dtype)
        edge = max([1, *data.shape])
        choices = [ends.min, ends.max, -1, edge, -edge - 1, ends.min // 2, ends.max // 2, 2**31 - 1, -(2**31)]
        numbers = np.array(choices, np.int64)
    elif floats and data.dtype.kind == "f":
        numbers = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, -1.0, 2.0, 2147483648.0, -2147483904.0])
    else:
        return data
    with np.errstate(over="ignore", invalid="ignore"):
        if kind < len(numbers):
            return np.full(data.shape, numbers[kind]).astype(data.dtype)
        picked = np.random.default_rng(kind).choice(numbers, data.shape)
        return np.where(np.random.default_rng(kind + 1).random(data.shape) < 0.5, data, picked).astype(data.dtype)


def survives(batch: Batch, number: int, case: Case) -> str:
    """Return what the sanitizers say of a case with hostile data; empty: nothing."""
    given: Sequence[Array] = case.data[0][0]
    for kind in range(14):
        try:
            batch.run(number, [hostile(data, kind, floats=case.subject in BY_FLOATS) for data in given])
        except MtoolError as died:
            return " ".join([f"{case.name}, kind {kind}:", died.what, *died.details[:3]])
    return ""


@pytest.mark.slow
def test_no_index_leaves_a_tensor(tmp_path: Path) -> None:
    models: list[CModel] = []
    kept: list[Case] = []
    for case in drawn():
        try:
            made = compiled(case, f"m{len(models)}")
        except MtoolError:
            continue  # what is not supported is written down elsewhere
        if made.model.fed:
            models.append(made.model)
            kept.append(case)
    assert INDEXED - {case.subject for case in kept} == set()
    with build(models, tmp_path, compiler=sanitized.COMPILER, flags=sanitized.FLAGS) as batch:
        found = [survives(batch, number, case) for number, case in enumerate(kept)]
    assert not any(found), "\n".join(filter(None, found))
