"""Constant folding by onnx's reference evaluator; the budget is checked before anything is computed."""

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper

from mtool.compiler.frontend.inference import attributes, operator_of
from mtool.compiler.frontend.scope import domain_of
from mtool.compiler.ir import TensorType
from mtool.compiler.ir.types import Array
from mtool.compiler.operators.budget import Budget
from mtool.compiler.operators.folding import Folded
from mtool.compiler.operators.problems import NotComputed, Unsupported

Types = Mapping[str, TensorType]


def fold(
    proto: onnx.NodeProto, version: int, constants: Mapping[str, Array], kinds: Types, budget: Budget
) -> dict[str, Array]:
    """Return a node's outputs, computed from constants.

    Args:
        proto: the node, all of whose inputs are constants.
        version: its opset.
        constants: the values of its inputs.
        kinds: the types of its outputs; empty: inference can't determine them.
        budget: the limits of the import.

    Raises:
        NotComputed: the reference evaluator can't compute it.
        Unsupported: its value does not have the inferred size, or its size can't be determined beforehand.
        ModelError: it exceeds the budget.
    """
    from onnx.reference import ReferenceEvaluator  # slow to import: it builds its operator tables

    folding = operator_of(proto).folding
    if not folding.is_right:
        raise NotComputed("onnx's reference evaluator is known to compute it wrongly")
    where = f"{proto.op_type} {proto.name or next(iter(proto.output), '')}"
    operands = [constants[name] for name in proto.input if name]
    elements = sum(kind.count for kind in kinds.values()) if kinds else folding.size(operands)
    budget.spend("work", folding.cost(Folded(attributes(proto), operands, elements)), where)
    budget.afford("constants", sum(kind.bytes for kind in kinds.values()), where)
    inputs = [helper.make_tensor_value_info(name, 1, None) for name in dict.fromkeys(proto.input) if name]
    outputs = [helper.make_tensor_value_info(name, 1, None) for name in proto.output if name]
    graph = helper.make_graph([proto], "fold", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid(domain_of(proto.domain), version)])
    feeds = {name: constants[name] for name in proto.input if name}
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            values: list[Any] = ReferenceEvaluator(model).run(None, feeds)
    except Exception as failed:
        raise NotComputed(f"computing it from its constant inputs failed: {failed}") from None
    result = {}
    for info, value in zip(outputs, values, strict=True):
        kind = kinds.get(info.name)
        if kind is None:  # inference could not determine it
            result[info.name] = np.asarray(value)
            continue
        data = np.asarray(value, kind.dtype.numpy)
        if data.size != kind.count:
            raise Unsupported(f"its output has shape {list(data.shape)}; shape inference expects {list(kind.shape)}")
        result[info.name] = data.reshape(kind.shape)
    return result
