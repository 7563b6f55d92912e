import networks
import numpy as np
from graphs import model
from onnx import helper
from stages import assert_same, pairs

from mtool.passes.fold_constants import fold_constants
from mtool.passes.lower import lower


def test_random_networks_stay_the_same() -> None:
    for kind, count in (("float", 25), ("int8", 10)):
        for before, after in pairs("fold_constants", kind, count):
            assert_same(before, after)
            for node in after.nodes:
                movable = node.op in ("loop", "view", "transpose", "concat")
                assert not movable or not all(value in after.constants for value in node.inputs)


def test_every_kind_of_node_is_folded() -> None:
    rng = np.random.default_rng(0)
    constants = {
        "a": rng.uniform(-1, 1, (2, 3, 4)).astype(np.float32),
        "b": rng.uniform(-1, 1, (2, 3, 4)).astype(np.float32),
        "shape": np.array([12, 4]),
    }
    nodes = [
        helper.make_node("Exp", ["a"], ["e"]),
        helper.make_node("Concat", ["e", "b"], ["c"], axis=1),
        helper.make_node("Transpose", ["c"], ["t"], perm=[1, 0, 2]),
        helper.make_node("Reshape", ["t", "shape"], ["r"]),
        helper.make_node("Add", ["x", "r"], ["y"]),
    ]
    lowered = lower(networks.imported(model(nodes, {"x": (np.float32, (12, 4))}, ["y"], constants)))
    folded = fold_constants(lowered)
    assert len(folded.nodes) == 1
    (value,) = folded.constants
    joined = np.concatenate([np.exp(constants["a"]), constants["b"]], axis=1)
    np.testing.assert_allclose(folded.constants[value], joined.transpose(1, 0, 2).reshape(12, 4), rtol=1e-6)


def test_a_constant_output_is_folded_and_stays() -> None:
    nodes = [helper.make_node("Neg", ["a"], ["y"]), helper.make_node("Relu", ["x"], ["z"])]
    proto = model(nodes, {"x": (np.float32, (2,))}, ["y", "z"], {"a": np.float32([1, -2])})
    folded = fold_constants(lower(networks.imported(proto)))
    assert folded.outputs == ("y", "z") and folded.constants["y"].tolist() == [-1, 2]
