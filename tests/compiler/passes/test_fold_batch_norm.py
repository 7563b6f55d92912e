import networks
import numpy as np
import pytest
from graphs import model
from onnx import helper
from single_pass import assert_same, ops, pairs

from mtool.compiler.passes.fold_constants import fold_batch_norm

F32 = np.float32


def test_random_networks_stay_the_same() -> None:
    folded = 0
    for before, after in pairs("fold_batch_norm", "float", 40):
        folded += ops(before).count("BatchNormalization") - ops(after).count("BatchNormalization")
        assert_same(before, after, exact=False)
    assert folded >= 3


def _network(*, bias: bool = True, twice: bool = False, output: bool = False, given: bool = False, group: int = 1):  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(2)
    channels = 4 if group == 1 else 3
    constants = {
        "w": rng.uniform(-1, 1, (channels, 3 // group, 3, 3)).astype(F32),
        "b": rng.uniform(-1, 1, channels).astype(F32),
        **{name: rng.uniform(0.5, 2, channels).astype(F32) for name in ("scale", "shift", "mean", "variance")},
    }
    inputs = {"x": (F32, (1, 3, 5, 5))}
    if given:
        inputs["w"] = (F32, constants.pop("w").shape)
    nodes = [
        helper.make_node("Conv", ["x", "w", *(["b"] if bias else [])], ["c"], group=group),
        helper.make_node("BatchNormalization", ["c", "scale", "shift", "mean", "variance"], ["y"], epsilon=0.01),
        *([helper.make_node("Relu", ["c"], ["z"])] if twice else []),
    ]
    return networks.imported(
        model(nodes, inputs, ["y", *(["z"] if twice else []), *(["c"] if output else [])], constants)
    )


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("group", [1, 3])
def test_scale_and_shift_go_into_the_convolution(bias: bool, group: int) -> None:
    graph = _network(bias=bias, group=group)
    folded = fold_batch_norm(graph)
    assert ops(folded) == ["Conv"]
    assert len(folded.nodes[0].origins) == 2
    assert_same(graph, folded, exact=False)


@pytest.mark.parametrize("why", ["twice", "output", "given"])
def test_what_others_read_or_the_run_gives_stays(why: str) -> None:
    graph = _network(**{why: True})
    assert "BatchNormalization" in ops(fold_batch_norm(graph))
    assert_same(graph, fold_batch_norm(graph), exact=False)
