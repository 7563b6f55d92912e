import networks
import numpy as np
from graphs import model
from onnx import helper
from single_pass import DSP, HOST, MVE, assert_same, pairs

from mtool.compiler.ir import DType, Graph
from mtool.compiler.passes.quantization import use_signed_integers


def unsigned(graph: Graph) -> list[str]:
    """Return the values of unsigned integers that operators exchange."""
    made = {value for node in graph.nodes for value in node.outputs}
    between = made - {*graph.outputs}
    return [value for value in between if graph.types[value].dtype in (DType.UINT8, DType.UINT16)]


def test_random_networks_stay_the_same() -> None:
    moved = 0
    for target in (DSP, MVE):
        for before, after in pairs("use_signed_integers", "uint8", 12, target):
            moved += len(unsigned(before))
            assert not unsigned(after)
            assert_same(before, after)
            interface = (*before.inputs, *before.outputs)
            assert [before.types[value] for value in interface] == [after.types[value] for value in interface]
    assert moved > 40


def test_sources_contain_what_was_subtracted() -> None:
    for before, after in pairs("use_signed_integers", "uint8", 5, DSP):
        reported = [source for value, source in after.sources.items() if value not in before.types]
        assert reported and all(source.moves[-1] == ("signed", (128,)) for source in reported)


def test_what_is_signed_or_for_another_core_stays() -> None:
    for before, after in pairs("use_signed_integers", "int8", 5, DSP):
        assert [node.op for node in before.nodes] == [node.op for node in after.nodes]
    for before, _ in pairs("use_signed_integers", "uint8", 3, DSP):
        assert use_signed_integers(before, HOST) is before


def test_an_unsigned_value_that_is_read_as_such_stays() -> None:
    for before, _ in pairs("use_signed_integers", "uint8", 3, DSP):
        value = next(node.outputs[0] for node in before.nodes if node.op == "QuantizeLinear")
        assert np.dtype(before.types[value].dtype.numpy) == np.uint8


def test_unsigned_inputs_and_outputs_stay_so() -> None:
    """Between the two the same numbers are signed, by way of a quantization at either end."""
    constants = {"xs": np.float32(0.5), "xz": np.uint8(3), "ys": np.float32(0.25), "yz": np.uint8(200)}
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "xs", "xz"], ["a"]),
        helper.make_node("Neg", ["a"], ["b"]),
        helper.make_node("QuantizeLinear", ["b", "ys", "yz"], ["y"]),
    ]
    graph = networks.imported(model(nodes, {"x": (np.uint8, (1, 64))}, ["y"], constants))
    signed = use_signed_integers(graph, DSP)
    assert [node.op for node in signed.nodes].count("QuantizeLinear") == 3
    assert signed.types[signed.outputs[0]].dtype is DType.UINT8 and not unsigned(signed)
    assert_same(graph, signed)
