"""onnx.reference, onnx's own evaluator, as the reference of operators that LiteRT and onnxruntime lack."""

from collections.abc import Mapping

import numpy as np

from mtool.base.tensors import Array, Sample
from mtool.verification.oracles.sequences import Run, over_samples

NAME = "onnx.reference"


def _opened(model: str | bytes) -> Run:
    from onnx.reference import ReferenceEvaluator

    evaluator = ReferenceEvaluator(model)

    def run(feeds: Mapping[str, Array]) -> Sample:
        with np.errstate(all="ignore"):
            outputs = evaluator.run(None, dict(feeds))
        return {name: np.asarray(data) for name, data in zip(evaluator.output_names, outputs, strict=True)}

    return run


outputs = over_samples(NAME, _opened)
"""Run a model on each sample (mtool.verification.oracles.sequences)."""
