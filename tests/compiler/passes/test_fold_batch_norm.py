import networks
import numpy as np
import pytest
from graphs import model
from onnx import helper
from single_pass import assert_same, ops, pairs

from mtool.compiler.passes.fold_batch_norm import fold_batch_norm
from mtool.compiler.passes.lower import lower

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


def _quantized(op: str, *, least: int = -7, zero: int = 0, along: int | None = None, turned: bool = False):  # type: ignore[no-untyped-def]
    """Return a network of a product with integer weights, whose scales lie along a dimension, and normalization."""
    rng = np.random.default_rng(3)
    shape, channel, x = {
        "Conv": ((4, 3, 3, 3), 0, (1, 3, 5, 5)),
        "Gemm": ((4, 6), 0, (2, 6)),
        "MatMul": ((6, 4), 1, (2, 6)),
    }[op]
    along = channel if along is None else along
    constants = {
        "w": rng.integers(least, 8, shape).astype(np.int8), "z": np.full(shape[along], zero, np.int8),
        "s": rng.uniform(0.01, 0.1, shape[along]).astype(F32), "b": rng.uniform(-1, 1, 4).astype(F32),
        "scale": np.array([0.5, -1.5, 0, 2], F32), "shift": rng.uniform(-1, 1, 4).astype(F32),
        "mean": rng.uniform(-1, 1, 4).astype(F32), "variance": rng.uniform(0.5, 2, 4).astype(F32),
    }  # fmt: skip
    constants["w"].reshape(-1)[:12] = least
    dequantized = "r"
    if turned:
        constants["w"], along, dequantized = constants["w"].T.copy(), 1 - along, "t"
    nodes = [helper.make_node("DequantizeLinear", ["w", "s", "z"], ["r"], axis=along)]
    nodes += [helper.make_node("Transpose", ["r"], ["t"], perm=[1, 0])] if turned else []
    nodes += [
        helper.make_node(
            op, ["x", dequantized, *(["b"] if op != "MatMul" else [])], ["c"], **({"transB": 1} if op == "Gemm" else {})
        ),
        helper.make_node("BatchNormalization", ["c", "scale", "shift", "mean", "variance"], ["y"]),
    ]
    return networks.imported(model(nodes, {"x": (F32, x)}, ["y"], constants))


@pytest.mark.parametrize("zero", [0, 3])
@pytest.mark.parametrize(("op", "turned"), [("Conv", False), ("Gemm", False), ("MatMul", False), ("MatMul", True)])
def test_quantized_weights_stay_integers(op: str, turned: bool, zero: int) -> None:
    graph = _quantized(op, zero=zero, turned=turned)
    folded = fold_batch_norm(graph)
    assert "BatchNormalization" not in ops(folded)
    assert_same(graph, folded, exact=False)
    (kernel,) = [node for node in lower(folded).nodes if node.op in ("conv2d", "dense")]
    assert lower(folded).constants[kernel.inputs[1]].dtype == np.int8


@pytest.mark.parametrize("options", [{"least": -128}, {"along": 1}, {"least": -128, "zero": 1}])
def test_weights_that_can_not_be_scaled_stay(options: dict[str, int]) -> None:
    """-128 has no negative in int8, and scales along the inputs are not those of the channels."""
    graph = _quantized("Gemm", **options)
    assert "BatchNormalization" in ops(fold_batch_norm(graph))
    assert_same(graph, fold_batch_norm(graph), exact=False)
