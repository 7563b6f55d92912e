"""Constants that take more flash than they take in the model's file, and why."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from mtool.compiler.codegen.functions import Functions
from mtool.compiler.frontend.parameters import parameter_count
from mtool.compiler.ir import DType, Graph, Node
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.f32 import are_halves
from mtool.compiler.kernels.schedule import schedule_text
from mtool.compiler.kernels.weighted_sum import WeightedSum
from mtool.compiler.plan import Plan, Step
from mtool.manifest import GrownConstant

MOST = 1.1  # times the bytes in the file, beyond which it is told
_EXPANDING = ("DequantizeLinear", "Transpose", "Reshape")  # what stands between an operator and its constants
_FURTHEST = 8  # of them, and the operator, in a row: quantisers write three


@dataclass(frozen=True, slots=True)
class FileConstants:
    """The constants of one operator of the model: the largest one's name and type, the bytes of all together."""

    tensor: str
    dtype: DType
    bytes: int


@dataclass(frozen=True, slots=True)
class ModelConstants:
    """The constants of a model as it was read: its parameters, and those of each operator, by its name in the model."""

    parameters: int = 0
    operators: Mapping[str, FileConstants] = field(default_factory=dict)


def constants_of(graph: Graph) -> ModelConstants:
    """Return the constants of a model as it was read."""
    return ModelConstants(parameter_count(graph), _by_operator(graph))


def _by_operator(graph: Graph) -> dict[str, FileConstants]:
    makers = graph.producers()
    by_origin: dict[str, dict[str, Array]] = {}
    for node in graph.nodes:
        for origin in node.origins if node.op not in _EXPANDING else ():
            by_origin.setdefault(origin, {}).update(_constants_behind(node, graph, makers))
    found = {}
    for origin, own in by_origin.items():
        if own:
            largest = max(own, key=lambda name: own[name].nbytes)
            kinds = {name: _in_file(data, graph) for name, data in own.items()}
            bytes_in_file = sum(data.size * kinds[name].size for name, data in own.items())
            found[origin] = FileConstants(largest, kinds[largest], bytes_in_file)
    return found


def _in_file(data: Array, graph: Graph) -> DType:
    """Return the type of a constant in the file: a Cast of float16 to float32 is folded as the model is read."""
    kind = DType.of(data.dtype)
    return DType.FLOAT16 if kind is DType.FLOAT32 and graph.halves and are_halves(data) else kind


def _constants_behind(node: Node, graph: Graph, makers: Mapping[str, Node]) -> dict[str, Array]:
    """Return the constants that a node reads, by name: its own, and those behind what only expands or moves them."""
    found: dict[str, Array] = {}
    values = node.inputs
    for _ in range(_FURTHEST):
        found.update((value, graph.constants[value]) for value in values if value in graph.constants)
        between = [makers[value] for value in values if value not in graph.constants and value in makers]
        values = tuple(dict.fromkeys(v for maker in between if maker.op in _EXPANDING for v in maker.inputs))
    return found


def grown_constants(plan: Plan, functions: Functions, filed: Mapping[str, FileConstants]) -> tuple[GrownConstant, ...]:
    """Return which sums of products' constants grew by more than a tenth, those that grew by the most bytes first.

    What is packed for a computer's vectors is left out: its memory is not scarce.
    """
    grown, seen = [], set[str]()
    for step, call in zip(plan.steps, functions.calls, strict=True):
        own = {name: functions.read[symbol] for name, symbol in call.constants.items()}
        origins = [filed[name] for name in step.node.origins if name in filed]
        symbol = call.constants.get("weights", "") if isinstance(step.node.attrs, WeightedSum) else ""
        if not symbol and any(one.dtype is DType.FLOAT16 for one in origins):
            symbol = next((call.constants[name] for name, data in own.items() if data.dtype == np.float32), "")
        if not origins or not symbol or symbol in seen or step.schedule.name.startswith("simd_"):
            continue
        seen.add(symbol)  # of operators by rows, and equal ones, once
        bytes_in_file, bytes_in_flash = (sum(one.bytes for one in origins), sum(data.nbytes for data in own.values()))
        if bytes_in_flash > MOST * bytes_in_file:
            largest = max(origins, key=lambda one: one.bytes)
            reason = _reason(step, plan.graph, functions.read[symbol], largest.dtype)
            grown.append(
                GrownConstant(
                    tensor=largest.tensor,
                    operator=step.node.title,
                    file_bytes=bytes_in_file,
                    flash_bytes=bytes_in_flash,
                    reason=reason,
                    for_speed=bool(step.schedule.grown_bytes(step.node, plan.graph)),
                )
            )
    return tuple(sorted(grown, key=lambda one: one.file_bytes - one.flash_bytes))


def _reason(step: Step, graph: Graph, stored: Array, in_file: DType) -> str:
    """Return why an operator's weights take more than in the file."""
    name = schedule_text(step.schedule)
    if in_file is DType.FLOAT16 and stored.dtype == np.float32:
        return f"float16 weights are float32 in {name}"
    kind = graph.types[step.node.inputs[1]].dtype
    if kind.is_float and in_file.is_integer:
        return f"{in_file.label} weights are float32, since the activations are"
    if stored.dtype.itemsize == kind.size > in_file.size:
        return f"{in_file.label} weights less their zero point are {kind.label} in {name}"
    if step.schedule.grown_bytes(step.node, graph):
        return f"transformed for {name}, which takes fewer instructions; --optimize size leaves them as they are"
    return f"packed for {name}: filled up, with biases and scales"
