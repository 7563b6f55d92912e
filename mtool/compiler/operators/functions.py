"""Operators that ONNX defines as functions of others, expanded with onnx's own bodies, and random ones."""

from mtool.compiler.operators.folding import SLOW, VECTORIZED, Folding
from mtool.compiler.operators.operator import Case, Draw, Operator, case

_LOSS = Folding(lambda node: node.every * 1000)
_REDUCED = {"reduction": ("none", "mean", "sum")}


def _loss_cases(draw: Draw, op: Operator) -> Case:
    value = draw.pick(rank=2)
    labels = draw.constant(draw.numbers().integers(0, value.shape[1], value.shape[:1]), "int64")
    return Case([value.name, labels], {"reduction": draw.rng.choice(_REDUCED["reduction"])})


def _window_cases(draw: Draw, op: Operator) -> Case:
    return Case([draw.constant(draw.rng.randint(2, 9), "int64")])


OPERATORS = (
    *(Operator(op, folding=VECTORIZED) for op in ("Shrink", "Swish", "ThresholdedRelu")),
    *(
        Operator(op, cases=_loss_cases, words=_REDUCED, folding=_LOSS)
        for op in ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
    ),
    Operator(
        "CenterCropPad", cases=case(lambda draw, x: draw.whole([draw.rng.randint(1, 6) for _ in x.shape])), sizes=(1,),
        folding=SLOW.growing(),
    ),
    *(
        Operator(op, cases=_window_cases, sizes=(0,), folding=SLOW.growing())
        for op in ("HannWindow", "HammingWindow", "BlackmanWindow")
    ),
    *(
        Operator(op, cases=None, folding=Folding(when="never"))
        for op in ("RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Bernoulli", "Multinomial")
    ),
)  # fmt: skip
