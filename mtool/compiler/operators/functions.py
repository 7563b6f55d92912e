"""Operators that ONNX defines as functions of others, which are expanded by onnx's own bodies, and random ones."""

from mtool.compiler.operators.folding import SLOW, VECTORIZED, Folding
from mtool.compiler.operators.operator import Operator

_LOSS = Folding(lambda node: node.every * 1000)
_REDUCED = {"reduction": ("none", "mean", "sum")}

OPERATORS = (
    *(Operator(op, folding=VECTORIZED) for op in ("Shrink", "Swish", "ThresholdedRelu")),
    *(Operator(op, words=_REDUCED, folding=_LOSS) for op in ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")),
    Operator("CenterCropPad", sizes=(1,), folding=SLOW.growing()),
    *(Operator(op, sizes=(0,), folding=SLOW.growing()) for op in ("HannWindow", "HammingWindow", "BlackmanWindow")),
    *(
        Operator(op, folding=Folding(when="never"))
        for op in ("RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Bernoulli", "Multinomial")
    ),
)
