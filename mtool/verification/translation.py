"""Whether mtool translates each operator of a TFLite model to ONNX as LiteRT computes it, by itself.

The network is cut at every tensor of the file: each operator is given what LiteRT has there, so that nothing of one
operator's rounding reaches the next.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from mtool.base.errors import ModelError
from mtool.stages.compiling import Model
from mtool.stages.samples import Array, Sample
from mtool.verification import reference
from mtool.verification.hybrid_bounds import HybridBounds
from mtool.verification.split_at_tensors import computed_name, cut, operator_of

STEPS = {8: 4, 16: 64}
"""How far LiteRT's reference kernels are from the rounded result, by the bits of a grid, by tables and shifts."""

RELATIVE = 1e-4
"""The same of floats, of the tensor's largest number."""


HYBRID = 2e-2
"""The same of recurrent operators whose weights are integers and whose activations LiteRT brings to 8 bits.

Of others there is a bound: mtool.verification.hybrid_bounds.
"""

NOTHING = 1e-30
"""A real number that is none to any other: converters give a grid of 1e-37 to what they never saw above 0.

LiteRT's shifts do not reach such grids, so that its integers there are wrong.
"""


@dataclass(frozen=True, slots=True)
class Mistranslation:
    """An operator whose translation computes something else than LiteRT does; `words` says by how much."""

    operator: str
    words: str


def mistranslations(model: Model, network: reference.Network, sample: Sample) -> tuple[Mistranslation, ...]:
    """Compare the translation of each operator with LiteRT, on one sample, states being at their beginning.

    Raises:
        BuildError: onnxruntime or LiteRT is not installed.
        ModelError: one of them refuses the model, or its parts.
    """
    proto = onnx.ModelProto()
    proto.CopyFrom(network.proto)
    made = [name for node in proto.graph.node for name in node.output]
    (known,) = reference.intermediates(model.path, None, [sample], made, options=model.options)
    hybrid, bounds = _hybrid(proto.graph), HybridBounds(proto.graph)
    makers = cut(proto.graph, known)
    computed = reference.computed(model.path, proto, {**network.initial, **sample, **known}, options=model.options)
    found = []
    for name, operator in makers.items():
        bound = bounds.of(operator, {**sample, **known}, known[name])
        relative = HYBRID if operator in hybrid and bound is None else RELATIVE
        step = network.steps.get(name, 1.0)
        words = _difference(known[name], computed[computed_name(name)], relative, step, bound)
        if words:
            found.append(Mistranslation(operator, f"{name}: {words}"))
    return tuple(found)


def _hybrid(graph: onnx.GraphProto) -> set[str]:
    """Return the operators that dequantise weights."""
    held = {tensor.name for tensor in graph.initializer}
    return {operator_of(node) for node in graph.node if node.op_type == "DequantizeLinear" and node.input[0] in held}


def _difference(wanted: Array, found: Array, relative: float, step: float, bound: Array | None = None) -> str:
    """Return by how much an operator's result is off, if that is more than LiteRT's own roughness; else "".

    `step` is what a step of integers stands for; `bound` is what else each element may be off by.
    """
    if wanted.shape != found.shape or wanted.dtype != found.dtype:
        return f"{found.dtype}{list(found.shape)} for {wanted.dtype}{list(wanted.shape)}"
    if not wanted.size:
        return ""
    if wanted.dtype.kind == "f":
        finite = np.isfinite(wanted) & np.isfinite(found)
        if not np.array_equal(wanted[~finite], found[~finite], equal_nan=True):
            return "not finite in other places"
        off = np.abs(wanted[finite].astype(np.float64) - found[finite])
        allowed = np.full(off.shape, relative * max(float(np.abs(wanted[finite]).max(initial=0)), 1e-3))
        if bound is not None:
            allowed += bound[finite]
        worst = int(np.argmax(off - allowed)) if off.size else 0
        return f"by {off[worst]:.3g}, allowed: {allowed[worst]:.3g}" if (off > allowed).any() else ""
    steps = STEPS.get(8 * wanted.dtype.itemsize, 0) if wanted.dtype.kind in "iu" else 0
    furthest = int(np.abs(wanted.astype(np.int64) - found.astype(np.int64)).max())
    return f"by {furthest} LSB, allowed: {steps}" if furthest > steps and furthest * step > NOTHING else ""


def checked(model: Model, network: reference.Network | None, samples: Sequence[Sample]) -> tuple[Mistranslation, ...]:
    """Return the mistranslations of a TFLite model's network; one that can't be cut in parts is not excused either."""
    if network is None or not samples:
        return ()
    try:
        return mistranslations(model, network, samples[0])
    except ModelError as refused:
        return (Mistranslation("the network", f"can't be compared operator by operator: {refused.what}"),)
