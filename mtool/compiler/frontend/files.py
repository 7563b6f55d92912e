"""Read a model file of either format."""

from pathlib import Path

from mtool.base.errors import UsageError
from mtool.compiler.frontend import model_file, onnx_file, reading
from mtool.compiler.frontend.dimensions import symbolic_dimensions
from mtool.compiler.frontend.options import DEFAULTS, ModelOptions
from mtool.compiler.ir import Graph, Node
from mtool.compiler.ir.graph import Rewriter
from mtool.compiler.ir.types import Array
from mtool.compiler.operators.budget import Budget
from mtool.compiler.operators.epilogue import real_numbers
from mtool.compiler.operators.quantize import DEQUANTIZE, stored_constant
from mtool.compiler.operators.window import CONV

# Convert int8 weights of float activations to float32: they take four times the flash, and use the float kernels.

PRODUCTS = (CONV, "ConvTranspose", "Gemm", "MatMul")


def with_float32_weights(graph: Graph) -> Graph:
    """Replace the dequantization of constant weights by its result, where only float products read it."""
    makers = {value: node for node in graph.nodes for value in node.outputs}
    readers: dict[str, list[tuple[Node, int]]] = {}
    for node in graph.nodes:
        for index, value in enumerate(node.inputs):
            readers.setdefault(value, []).append((node, index))
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        uses = readers.get(node.outputs[0], [])
        data = None
        inner = node.op == DEQUANTIZE and node.outputs[0] not in graph.outputs
        if inner and uses and all(_is_of_floats(reader, index, makers) for reader, index in uses):
            data = _dequantized(node, graph)
        if data is None:
            rewriter.keep(node)
        else:
            rewriter.rename(node.outputs[0], rewriter.constant(f"{node.name}/float32", data))
    return rewriter.finish()


def _is_of_floats(node: Node, index: int, makers: dict[str, Node]) -> bool:
    """Whether an operand is the weights of a product whose activations are real floats, not dequantized integers."""
    maker = makers.get(node.inputs[0])
    return node.op in PRODUCTS and index == 1 and (maker is None or maker.op != DEQUANTIZE)


def _dequantized(node: Node, graph: Graph) -> Array | None:
    """Return the real numbers of an 8-bit constant with per-tensor or per-axis scales; None for anything else."""
    stored = stored_constant(node, graph.constants)
    return real_numbers(*stored) if stored is not None and stored[0].dtype.itemsize == 1 else None


def load(path: Path, options: ModelOptions = DEFAULTS) -> Graph:
    """Read an ONNX model (of any opset) or a TFLite model and return its graph.

    Args:
        path: the model file.
        options: of the model.

    Raises:
        UsageError: the file is missing, an option names a dimension, input or output that the model does not have, or
            an option is for TFLite models only and the model is not one.
        NeedsValues: an operator needs the values of inputs of the model at compile time; the error lists them.
        ModelError: the file is not a model, is malformed, has an unbound dimension, or holds
            operators that can't be compiled (all of them are listed).
    """
    if model_file.is_tflite(path):
        from mtool.compiler.frontend import tflite  # loaded for TFLite models only: its schema has two hundred modules

        graph = tflite.load(path, options)
        return with_float32_weights(graph) if options.hybrid == "float32" else graph
    if options.rounding != "onnx":
        raise UsageError(
            f"{path.name} is not a TFLite model; --rounding {options.rounding} needs one",
            hint="omit the option, or give the .tflite file that the model was converted from",
        )
    if options.hybrid == "int8":
        raise UsageError(
            f"{path.name} is not a TFLite model; --hybrid int8 needs one",
            hint="for an ONNX model, quantize the activations with onnxruntime.quantization.quantize_dynamic",
        )
    graph = onnx_file.load(path, options)
    return with_float32_weights(graph) if options.hybrid == "float32" else graph


def run_time_sizes(path: Path, options: ModelOptions) -> dict[str, int]:
    """Return the largest sizes of the symbolic dimensions of a model's inputs that have no fixed size, by name.

    Raises:
        UsageError: the file is missing.
        ModelError: the file is not a model, or malformed.
    """
    stated = {name: most for name, most in options.maxima.items() if name not in options.dims}
    if not stated:
        return {}
    budget = Budget(options.limits)
    if model_file.is_tflite(path):
        from mtool.compiler.frontend.tflite.schema import read

        model = read(path, budget)
        kinds = [model.tensors[number] for number in model.inputs]
        names = [f"{kind.name}_{number}" for kind in kinds for number in kind.open]
    else:
        names = [dim.name for dim in symbolic_dimensions(reading.read_separated(path, budget)[0])]
    return {name: stated[name] for name in dict.fromkeys(names) if name in stated}
