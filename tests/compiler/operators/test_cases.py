"""Random valid nodes of each operator, as its record draws them, against onnxruntime: all in one program."""

import random
from pathlib import Path

import numpy as np
import pytest
from graphs import compiled, reference, run_c

from mtool.compiler.operators import operators
from tests.fuzzing.networks import Net, draw_case, to_model

DRAWN = sorted(name for (domain, name), operator in operators().items() if operator.cases and not domain)
SHAPES = ((2, 4, 6, 6), (1, 3, 5, 4), (2, 3, 4), (3, 4), (5,))


@pytest.mark.parametrize("seed", range(2))
def test_cases(seed: int, tmp_path: Path) -> None:
    net = Net(random.Random(f"cases {seed}"))
    for shape in SHAPES:
        net.input(np.float32, shape)
    inputs, made, drawn = dict(net.values), dict(net.values), set()
    for op in DRAWN:
        for _ in range(40):
            net.values = dict(inputs)  # each reads an input, so that what is wrong is wrong alone
            try:
                draw_case(net, op)
            except (ValueError, IndexError, ZeroDivisionError):
                continue
            made |= net.values
            drawn.add(op)
            break
    assert drawn == set(DRAWN)
    outputs = [made[name] for node in net.nodes for name in node.output if name in made]
    proto = to_model(net.nodes, net.inputs, outputs, net.constants, made, net.opset)
    draw = np.random.default_rng(seed)
    feeds = {value.name: draw.standard_normal(value.shape).astype(np.float32) for value in net.inputs}
    got, wanted = run_c(compiled(proto), feeds, tmp_path), reference(proto, feeds)
    for value, mine, theirs in zip(outputs, got, wanted, strict=True):
        maker = next(node.op_type for node in net.nodes if value.name in node.output)
        np.testing.assert_allclose(mine, theirs, 1e-4, 1e-4, err_msg=maker)
