"""All about an operator is in its record: its name, as a string, occurs in few other files."""

import re
from collections import Counter
from pathlib import Path

import pytest

import mtool
from mtool.compiler.operators import operators

ROOT = Path(mtool.__file__).parent
MOST = 4
"""Files that may name an operator: its own, one that writes it, and two that look for it."""

MOVES = (
    "Concat", "Expand", "Flatten", "Gather", "Identity", "MaxPool", "Pad", "Reshape", "Slice", "Split", "Squeeze",
    "Tile", "Transpose", "Unsqueeze",
)  # fmt: skip
"""Frontends arrange tensors with them, and passes and backends see through them."""
ARITHMETIC = (
    "Abs", "Add", "And", "Cast", "Clip", "Div", "Equal", "Exp", "Greater", "GreaterOrEqual", "Less", "Log", "Max",
    "Min", "Mod", "Mul", "Neg", "ReduceMax", "ReduceMean", "ReduceSum", "ReduceSumSquare", "Relu", "Sigmoid", "Sqrt",
    "Sub", "Tanh", "Where",
)  # fmt: skip
"""Other operators, those of TFLite, and front ends are made of them."""
KERNELS = (
    "BatchNormalization", "Conv", "ConvInteger", "ConvTranspose", "Gemm", "MatMul", "MatMulInteger", "Pool", "Resize",
    "Softmax",
)  # fmt: skip
"""Backends compute them, and oracles bound their rounding."""
QUANTIZED = ("DequantizeLinear", "QuantizeLinear", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul")
"""Quantization is made of them, here and in the models that mtool quantizes."""
CONTROL = ("If", "Loop")
"""Frontends, passes and oracles have their own rules for graphs in graphs."""
WHOLE = ("IntegerLstm", "IntegerSvdf", "Rescale", "RoundedMean")
"""mtool's own, which a frontend writes, and a backend recognizes or another kind is named like."""
EXCEPTIONS = {*MOVES, *ARITHMETIC, *KERNELS, *QUANTIZED, *CONTROL, *WHOLE}


def _files_by_name() -> dict[str, list[str]]:
    names = {name for _, name in operators()}
    found: dict[str, list[str]] = {name: [] for name in names}
    for path in sorted(ROOT.rglob("*.py")):
        for name in set(re.findall(r'"(\w+)"', path.read_text())) & names:
            found[name].append(path.relative_to(ROOT).as_posix())
    return found


FILES = _files_by_name()


def test_few_files_name_an_operator() -> None:
    counts = Counter({name: len(files) for name, files in FILES.items()})
    assert not {name: FILES[name] for name, count in counts.items() if count > MOST and name not in EXCEPTIONS}
    assert not {name for name in EXCEPTIONS if counts[name] <= 1}, "no exception any more"


@pytest.mark.parametrize(("name", "most"), [("Conv", 8), ("GatherND", 1), ("TopK", 1)])
def test_what_moved_into_a_record_stays_there(name: str, most: int) -> None:
    assert len(FILES[name]) <= most, FILES[name]


def test_no_table_of_the_frontend_names_operators_that_records_have() -> None:
    """What the import of a node does for an operator is in its record; control flow and sequences are of graphs."""
    own = {"compiler/frontend/tflite"}
    named = {name: [f for f in files if f.startswith("compiler/frontend/")] for name, files in FILES.items()}
    apart = ("control", "first_values", "parameters", "files", "dispatch", "validation")
    allowed = {f"compiler/frontend/{module}.py" for module in apart}
    for name, files in named.items():
        assert not [f for f in files if f.rpartition("/")[0] not in own and f not in allowed], name
