"""The tests of the `onnx` package itself that are in mtool's scope, as plain data."""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

T = TensorProto
NUMBERS = {
    T.BOOL, T.INT8, T.INT16, T.INT32, T.INT64, T.UINT8, T.UINT16, T.UINT32, T.UINT64, T.INT4, T.UINT4,
    T.FLOAT16, T.BFLOAT16, T.FLOAT, T.DOUBLE, T.INT2, T.UINT2, T.FLOAT4E2M1, T.FLOAT8E4M3FN, T.FLOAT8E4M3FNUZ,
    T.FLOAT8E5M2, T.FLOAT8E5M2FNUZ,
}  # fmt: skip
NARROW = NUMBERS - {
    T.INT2, T.UINT2, T.FLOAT4E2M1, T.FLOAT8E4M3FN, T.FLOAT8E4M3FNUZ, T.FLOAT8E5M2, T.FLOAT8E5M2FNUZ,
}  # fmt: skip
RANDOM = {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial"}
TRAINING = {"ai.onnx.preview.training", "ai.onnx.training"}

Arrays = Sequence[np.ndarray]


@dataclass(frozen=True, slots=True)
class Case:
    """One test: its group and name, its model, its data sets (inputs, outputs) and the suite's tolerances."""

    group: str
    name: str
    model: onnx.ModelProto
    data: Sequence[tuple[Arrays, Arrays]]
    rtol: float
    atol: float

    subject: str = ""  # the operator that it is about


def node_cases() -> list[Case]:
    """Return the node tests, made in the process, that are in scope."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        found = collect_testcases()
    cases, subject = [], ""
    for case in found:
        if "_expanded" not in case.name:  # a function written out follows the operator itself
            subject = case.model.graph.node[0].op_type
        if in_scope(case.model) and not case.name.startswith("test_training_"):
            data = [_arrays(pair) for pair in case.data_sets]
            cases.append(Case("node", case.name, case.model, data, case.rtol, case.atol, subject))
    return cases


def in_scope(model: onnx.ModelProto) -> bool:
    """Whether all inputs and outputs are tensors of numbers, and nothing is random or trains."""
    values = [*model.graph.input, *model.graph.output]
    tensors = all(value.type.WhichOneof("value") == "tensor_type" for value in values)
    if not tensors or not all(value.type.tensor_type.elem_type in NUMBERS for value in values):
        return False
    if any(entry.domain in TRAINING for entry in model.opset_import):
        return False
    return not any(_is_random(node) for node in model.graph.node)


def is_narrow(case: Case) -> bool:
    """Whether a case has no elements but bool, integers of 4 bits or more, and floats of 16 bits or more."""
    values = [*case.model.graph.input, *case.model.graph.output]
    return all(value.type.tensor_type.elem_type in NARROW for value in values)


def _is_random(node: onnx.NodeProto) -> bool:
    """Whether a node draws numbers, or trains (with statistics or a mask of its own)."""
    training = any(attr.name == "training_mode" and attr.i for attr in node.attribute)
    return node.op_type in RANDOM or training


def _arrays(pair: tuple[Sequence[object], Sequence[object]]) -> tuple[Arrays, Arrays]:
    inputs, outputs = (
        [numpy_helper.to_array(item) if isinstance(item, TensorProto) else np.asarray(item) for item in side]
        for side in pair
    )
    return inputs, outputs


def stored_cases(group: str) -> Iterator[Case]:
    """Yield the tests of a folder of the package: pytorch-converted, pytorch-operator, simple."""
    from onnx.backend.test.loader import load_model_tests

    for case in sorted(load_model_tests(kind=group), key=lambda case: case.name):
        if case.model_dir is None:
            continue
        home = Path(case.model_dir)
        model = onnx.load(home / "model.onnx")
        if not in_scope(model):
            continue
        data = []
        for folder in sorted(home.glob("test_data_set*")):
            sides = []
            for side in ("input", "output"):
                count = len(list(folder.glob(f"{side}_*.pb")))
                sides.append([_tensor(folder / f"{side}_{number}.pb") for number in range(count)])
            data.append((sides[0], sides[1]))
        yield Case(group, case.name, model, data, case.rtol, case.atol)


def _tensor(path: Path) -> np.ndarray:
    tensor = TensorProto()
    tensor.ParseFromString(path.read_bytes())
    return np.asarray(numpy_helper.to_array(tensor))


GROUPS = ("node", "pytorch-converted", "pytorch-operator", "simple")


def all_cases() -> list[Case]:
    """Return every test in scope."""
    return [*node_cases(), *(case for group in GROUPS[1:] for case in stored_cases(group))]
