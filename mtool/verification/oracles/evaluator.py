"""onnx.reference, onnx's own evaluator, as the reference of what neither LiteRT nor onnxruntime computes."""

from collections.abc import Mapping, Sequence

import numpy as np

from mtool.base.errors import ModelError
from mtool.base.tensors import Array, Sample
from mtool.verification.oracles.process import HINT

NAME = "onnx.reference"


def outputs(
    model: str | bytes,
    samples: Sequence[Sample],
    *,
    title: str,
    constants: Mapping[str, Array] | None = None,
    states: Sequence[tuple[str, str]] = (),
    initial: Mapping[str, Array] | None = None,
) -> list[Sample]:
    """Run a model on each sample; the outputs by name, in the same order.

    Args:
        model: the ONNX file's absolute path, or its bytes.
        samples: inputs by name.
        title: what the file is called in messages.
        constants: inputs that are the same for every sample.
        states: pairs of an output and the input of the next sample that it feeds.
        initial: what the states begin with.

    Raises:
        ModelError: it refuses the model or an input.
    """
    try:
        from onnx.reference import ReferenceEvaluator

        evaluator = ReferenceEvaluator(model)
        kept, found = dict(initial or {}), []
        for sample in samples:
            with np.errstate(all="ignore"):
                made = evaluator.run(None, {**sample, **(constants or {}), **kept})
            found.append({name: np.asarray(data) for name, data in zip(evaluator.output_names, made, strict=True)})
            kept = {value: found[-1][output] for output, value in states}
        return found
    except Exception as refused:  # the evaluator's operators raise what they like
        details = str(refused).splitlines()[:3] or [type(refused).__name__]
        raise ModelError(f"{NAME} can't run {title}", details=details, hint=HINT) from None
