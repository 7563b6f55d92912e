"""A random network by its number: float, quantized with QDQ, integer, or mixed."""

import random

import numpy as np
import onnx

from tests.fuzzing import draw_float, draw_integer
from tests.fuzzing.draw_bodies import with_bodies
from tests.fuzzing.draw_control import controlled
from tests.fuzzing.networks import Net
from tests.fuzzing.quantizer import WEIGHTED, quantized

FAMILIES = ("float", "float", "qdq", "qdq", "qdq", "integer", "integer", "mixed")


def network(number: int, base: int = 0, *, few_bits: bool = False) -> tuple[str, onnx.ModelProto]:
    """Return the family and the model of a number; `few_bits`: layers have weights of 8, 4, 3, 2 bits or fewer.

    Raises:
        ValueError: this number has no valid network.
    """
    if few_bits:
        return "few bits", _of_few_bits(random.Random(f"few bits {base}:{number}"))
    rng = random.Random(f"network {base}:{number}")
    net = Net(rng, opset=rng.choice((18, 18, 21)), other_types=0)
    family = rng.choice(FAMILIES)
    length = rng.choice((1, 2, 3, 4, 6, 8, 12))
    if family in ("integer", "mixed"):
        for _ in range(rng.choice((1, 1, 2))):
            dtype = rng.choice(draw_integer.KINDS)
            net.grid_of(net.input(dtype, net.shape(rng.choice((2, 3, 4, 4)))))
    if family != "integer" or rng.random() < 0.3:
        for _ in range(rng.choice((1, 1, 2))):
            shape = list(net.shape())
            if shape and rng.random() < 0.04:
                shape[rng.randrange(len(shape))] = 0
            net.input(np.float32, shape)
    _draw(net, {"float": 0.0, "qdq": 0.0, "integer": 1.0, "mixed": 0.5}[family], length)
    if not net.nodes:
        raise ValueError("nothing could be drawn")
    if family == "qdq" or (family == "mixed" and rng.random() < 0.5):
        net = quantized(net, rng.choice((0.5, 0.8, 1.0)))
    if family == "float":
        return family, controlled(random.Random(f"control {base}:{number}"), net.model())
    return family, net.model()


def in_bodies(number: int, model: onnx.ModelProto, base: int = 0) -> onnx.ModelProto | None:
    """Return what computes the same as the network of a number with nodes in bodies; None: this one has none."""
    return with_bodies(random.Random(f"bodies {base}:{number}"), model)


def _of_few_bits(rng: random.Random) -> onnx.ModelProto:
    """Return a quantized network with at least one layer of weights."""
    for _ in range(20):
        net = Net(rng, opset=21, other_types=0)
        net.input(np.float32, net.shape(rng.choice((2, 2, 3, 4, 4))))
        _draw(net, 0.0, rng.choice((2, 4, 6, 8)))
        if any(node.op_type in WEIGHTED for node in net.nodes):
            return quantized(net, rng.choice((0.8, 1.0, 1.0)), few_bits=True).model()
    raise ValueError("no layer could be drawn")


def _draw(net: Net, integers: float, length: int) -> None:
    """Append nodes until there are enough, or too many attempts failed."""
    for _ in range(length * 6):
        if len(net.nodes) >= length:
            return
        try:
            table = draw_integer.DRAWS if net.rng.random() < integers else draw_float.DRAWS
            draws, weights = zip(*table, strict=True)
            net.rng.choices(draws, weights)[0](net)
        except (ValueError, IndexError, ZeroDivisionError):
            continue  # it does not go with what is there
