"""The reference: the same model on the host, run by onnxruntime with every graph optimisation off, or by LiteRT.

Both run in a separate process (mtool.verification.oracles.process).
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
from onnx import helper

from mtool.base.errors import ModelError
from mtool.compiler.frontend import is_tflite
from mtool.compiler.frontend.first_values import first_values
from mtool.compiler.frontend.model_states import model_states
from mtool.compiler.frontend.options import Pairs
from mtool.compiler.frontend.reading import reread, runnable
from mtool.compiler.frontend.tensors import graphs
from mtool.compiler.frontend.tflite import builtins, products
from mtool.compiler.frontend.tflite.model import to_onnx, zeros_of
from mtool.compiler.frontend.tflite.schema import litert_can_read
from mtool.compiler.frontend.tflite.schema import read as tflite_file
from mtool.compiler.frontend.tflite.translation import Network as Translated
from mtool.compiler.operators.budget import Budget
from mtool.compiler.operators.problems import OWN, REFUSED
from mtool.stages.options import Options
from mtool.stages.samples import Array, Sample
from mtool.verification.oracles import evaluator, litert, ort, process, qonnx

log = logging.getLogger(__name__)

# A network cut at known tensors: each becomes an input, and the value computed for it becomes an output.
#
# So each part gets the reference's inputs, and the rounding of one part does not reach the next. mtool's own operators,
# which onnxruntime lacks, are removed: their results are known.


_COMPUTED = "/computed"  # suffix of the output computed for a tensor


def operator_of(node: onnx.NodeProto) -> str:
    """Return the name of a node's operator: the node's name without its number."""
    return str(node.name.rpartition(" ")[0])


def cut(graph: onnx.GraphProto, tensors: Sample) -> dict[str, str]:
    """Cut a graph at every known tensor; return the operator that computes each, except mtool's own."""
    onnx_nodes = [node for node in graph.node if node.domain != OWN]
    own_outputs = {name for node in graph.node if node.domain == OWN for name in node.output}
    if len(onnx_nodes) < len(graph.node):
        del graph.node[:]
        graph.node.extend(onnx_nodes)
    makers = {}
    for node in graph.node:
        for index, name in enumerate(node.output):
            if name in tensors:
                node.output[index] = f"{name}{_COMPUTED}"
                makers[name] = operator_of(node)
    present = {value.name for value in graph.input}
    graph.input.extend(
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(tensors[name].dtype), tensors[name].shape)
        for name in (*makers, *sorted(own_outputs & tensors.keys()))
        if name not in present
    )
    del graph.output[:]
    graph.output.extend(onnx.ValueInfoProto(name=f"{name}{_COMPUTED}") for name in makers)
    return makers


def name_of(model: Path) -> str:
    """Return the name of a model's reference."""
    return litert.NAME if is_tflite(model) else ort.NAME


_EXACT = f"{litert.NAME}'s reference kernels"
_DEFAULT = f"{litert.NAME}'s default kernels"


def is_installed(model: Path) -> bool:
    """Return whether a model's reference is installed."""
    return bool(litert.version() if is_tflite(model) else ort.version())


def outputs(
    model: Path, samples: Sequence[Sample], *, options: Options | None = None, optimised: bool = False
) -> list[Sample]:
    """Run the model on each sample with its reference, as `computed_by`; return the outputs by name, in order.

    Raises:
        BuildError: the reference is not installed.
        ModelError: the reference refuses the model or an input, or crashes.
    """
    return computed_by(model, samples, options=options, optimised=optimised)[1]


def computed_by(
    model: Path, samples: Sequence[Sample], *, options: Options | None = None, optimised: bool = False
) -> tuple[str, list[Sample]]:
    """Run the model on each sample with its reference.

    LiteRT's default kernels compute what its reference kernels lack; onnx.reference computes what onnxruntime or LiteRT
    lacks, for a TFLite model from its translation to ONNX. If LiteRT's process crashes, its default kernels without
    delegates are tried, then onnx.reference. QONNX's operators are mtool's own functions in NumPy.

    Args:
        model: the ONNX or TFLite file.
        samples: inputs by name.
        options: the compilation's options. Constants are inputs that are the same for every sample; with states, the
            samples are a sequence, and each gets the state outputs of the one before it; with the rounding "tflite",
            or if hybrid operators are computed in integers, LiteRT runs a TFLite model with its reference kernels, else
            with its default kernels.
        optimised: use onnxruntime's graph optimisations; for a quantized model that means integer kernels.

    Returns:
        The name of the reference, and the outputs by name, in the same order.

    Raises:
        BuildError: the reference is not installed.
        ModelError: the reference refuses the model or an input, or crashes.
    """
    options = options or Options()
    samples = whole_windows(samples, options)
    try:
        if is_tflite(model):
            exact = options.rounding == "tflite" or is_hybrid(model, options)
            outputs = _litert(model, samples, options, exact=exact)
            return name_of_kernels(model) if exact else _DEFAULT, outputs
        begun = {"states": states_of(model, options), "initial": _initial_states(model, options)}
        fed = {"constants": options.constants, "optimised": optimised}
        return _by_onnxruntime(model, runnable(model), samples, **begun, **fed)
    except process.DiedError as died:
        if not is_tflite(model):
            raise
        return _after_a_crash(model, samples, options, died)
    except ModelError as refused:
        if not any(words in detail for detail in refused.details for words in _LACKING):
            raise
        evaluated = _evaluated(model, samples, options)
        if evaluated is None:
            raise
        return f"{evaluator.NAME} ({name_of(model)} lacks an operator)", evaluated


def _after_a_crash(
    model: Path, samples: Sequence[Sample], options: Options, died: process.DiedError
) -> tuple[str, list[Sample]]:
    """Run a TFLite model that crashed LiteRT with the next reference that can.

    Raises:
        DiedError: none can.
    """
    log.warning("%s; trying its default kernels without delegates, then %s", died.what, evaluator.NAME)
    plain = f"{_DEFAULT} without delegates"
    try:
        outputs = _litert(model, samples, options, delegates=False)
        return f"{plain} ({litert.NAME} crashed)", outputs
    except ModelError as refused:
        also = "crash too" if isinstance(refused, process.DiedError) else "can't run it"
    evaluated = _evaluated(model, samples, options)
    if evaluated is None:
        tried = [f"{plain} {also}", f"{evaluator.NAME} can't run its translation to ONNX"]
        raise process.DiedError(died.what, details=[*died.details, *tried], hint=died.hint)
    return f"{evaluator.NAME} ({litert.NAME} crashed)", evaluated


_LACKING = ("Didn't find op for builtin opcode", "Encountered unresolved custom op", "NOT_IMPLEMENTED")


def name_of_kernels(model: Path) -> str:
    """Return the name of LiteRT's reference kernels, or of the default ones if they lack an operator."""
    lacking = process.call(litert.NAME, model, "litert.lacking", model=litert_can_read(model))
    return f"{_DEFAULT} (its reference kernels lack {lacking})" if lacking else _EXACT


def is_exact(name: str) -> bool:
    """Return whether the reference of this name computes integers as LiteRT's reference kernels do."""
    return name == _EXACT


def _evaluated(model: Path, samples: Sequence[Sample], options: Options) -> list[Sample] | None:
    """Return a model's outputs by onnx.reference; None: it can't run the model."""
    feeds: dict[str, Any] = {}
    if is_tflite(model):
        _, compared = translated(model, options)
        proto: str | bytes = compared.proto.SerializeToString()
        feeds = {"states": compared.states, "initial": compared.initial}
    else:
        proto = runnable(model)
        feeds = {
            "constants": options.constants,
            "states": states_of(model, options),
            "initial": _initial_states(model, options),
        }
    try:
        return _run(evaluator, model, proto, samples, **feeds)
    except ModelError:
        return None


def is_hybrid(model: Path, options: Options) -> bool:
    """Return whether float activations of a TFLite model are quantized to 8 bits, as in LiteRT."""
    return products.in_integers(options) and has_hybrid(model, options, blocks=False)


def has_hybrid(model: Path, options: Options, *, blocks: bool = True) -> bool:
    """Return whether a TFLite model has operators whose float activations LiteRT quantizes to 8 bits.

    `blocks`: also if the weights have a scale for each block, which mtool multiplies by floats.
    """
    file = tflite_file(model, Budget(options.limits))
    parts = (file, *file.others)
    return any(builtins.is_hybrid(operator, part.tensors) for part in parts for operator in part.operators) or (
        blocks and any(tensor.block for part in parts for tensor in part.tensors)
    )


@dataclass(frozen=True, slots=True)
class Network:
    """An ONNX network, its states, and their initial values.

    `in_parts`: it has mtool's own operators, which onnxruntime lacks. They are compared with LiteRT's; the others, each
    between two tensors that the device has, get LiteRT's values as inputs. `steps` are the scales of a TFLite model's
    tensors.
    """

    proto: onnx.ModelProto
    states: Pairs
    initial: Sample
    in_parts: bool = False
    steps: Mapping[str, float] = field(default_factory=dict)


def network(model: Path, options: Options) -> Network | None:
    """Return the ONNX network whose operators a device's are compared with; None: compare with LiteRT's kernels.

    A TFLite model with ONNX's rounding is compared with its translation to ONNX: LiteRT's own operators round nearly
    the same way, but fused ones differ by more than one step.
    """
    if not is_tflite(model):
        return Network(reread(model), states_of(model, options), _initial_states(model, options))
    if options.rounding == "tflite" or not ort.version():
        return None
    translation, compared = translated(model, options)
    nodes = [node for graph in graphs(translation.proto) for node in graph.node]
    for number, node in enumerate(nodes):  # the nodes of one operator share its name
        node.name = f"{node.name} {number}"
    own_nodes = [node for node in nodes if node.domain == OWN]
    apart = all(name in translation.tensors for node in own_nodes for name in node.output) and not compared.states
    if (own_nodes and not apart) or any(node.domain == REFUSED for node in nodes):
        return None
    steps = {name: float(tensor.scale.max()) for name, tensor in translation.tensors.items() if tensor.is_quantized}
    return replace(compared, in_parts=bool(own_nodes), steps=steps)


def translated(model: Path, options: Options) -> tuple[Translated, Network]:
    """Return a TFLite model's translation to ONNX, and the same as a network with its states' initial values."""
    budget = Budget(options.limits)
    result = to_onnx(tflite_file(model, budget), model.name, options, budget)
    zeros = {
        name: np.full(result.tensors[name].shape, point, result.tensors[name].dtype)
        for name, point in zeros_of(result, options.states).items()
    }
    initial = _initial({**zeros, **result.initial}, options)
    return result, Network(result.proto, (*result.states, *options.states), initial)


def intermediates(
    model: Path, compared: Network | None, samples: Sequence[Sample], tensors: Iterable[str], *, options: Options
) -> list[Sample]:
    """Run a model's network, as returned by `network`, on each sample, without optimisations; return tensors by name.

    Names that are not tensors of the network's own graph are left out. For a network in parts, the values are LiteRT's;
    `part_results` computes onnxruntime's from them.

    Raises:
        BuildError: the reference is not installed.
        ModelError: the reference refuses the model or an input, or crashes.
    """
    samples = whole_windows(samples, options)
    if compared is None or compared.in_parts:
        own = () if compared is None else compared.proto.graph.node
        own_outputs = [name for node in own if node.domain == OWN for name in node.output]
        return _litert(model, samples, options, exact=True, tensors=[*tensors, *own_outputs])
    proto = compared.proto
    own = {value for node in proto.graph.node for value in node.output}
    present = {output.name for output in proto.graph.output}
    count = len(proto.graph.output)
    proto.graph.output.extend(
        onnx.ValueInfoProto(name=name) for name in dict.fromkeys(tensors) if name in own - present
    )
    whole = proto.SerializeToString()
    del proto.graph.output[count:]
    fixed = {} if is_tflite(model) else options.constants
    begun = {"states": compared.states, "initial": compared.initial}
    return _by_onnxruntime(model, whole, samples, constants=fixed, **begun)[1]


def whole_windows(samples: Sequence[Sample], options: Options) -> Sequence[Sample]:
    """Return a sequence of samples with whole windows, at first of zeros, instead of new rows."""
    if not options.slides:
        return samples
    result, windows = [], dict[str, Array]()
    for sample in samples:
        for slide in options.slides:
            new, axis = sample[slide.value], slide.axis or 0
            zeros = np.full((*new.shape[:axis], slide.rows, *new.shape[axis + 1 :]), slide.zero, new.dtype)
            both = np.concatenate([windows.get(slide.value, zeros), new], axis)
            windows[slide.value] = both.take(range(-slide.rows, 0), axis)
        result.append({**sample, **windows})
    return result


def with_states(
    model: Path, compared: Network, samples: Sequence[Sample], *, options: Options
) -> tuple[Sequence[Sample], Network]:
    """Return a sequence's samples with the states before each, and the network with the states as inputs."""
    if not compared.states:
        return samples, compared
    results = intermediates(model, compared, samples, [output for output, _ in compared.states], options=options)
    before = [compared.initial, *({put: values[output] for output, put in compared.states} for values in results[:-1])]
    extended = [{**sample, **state} for sample, state in zip(samples, before, strict=True)]
    return extended, replace(compared, states=(), initial={})


def part_results(
    model: Path, compared: Network, sample: Sample, tensors: Sample, *, options: Options
) -> dict[str, tuple[str, Array]]:
    """Compute each known tensor of a network from the others.

    Returns:
        The operator that computes each, and the result, without those of mtool's own operators.
    """
    proto = onnx.ModelProto()
    proto.CopyFrom(compared.proto)
    makers = cut(proto.graph, tensors)
    results = computed(model, proto, {**compared.initial, **sample, **tensors}, options=options)
    return {name: (operator, results[f"{name}{_COMPUTED}"]) for name, operator in makers.items()}


def computed(model: Path, proto: onnx.ModelProto, sample: Sample, *, options: Options) -> Sample:
    """Run a network derived from a model on one sample by onnxruntime, without optimisations.

    Raises:
        BuildError: onnxruntime is not installed.
        ModelError: it refuses the network.
    """
    fed = {value.name for value in proto.graph.input}
    feeds = {name: data for name, data in {**options.constants, **sample}.items() if name in fed}
    return _by_onnxruntime(model, proto.SerializeToString(), [feeds])[1][0]


def _run(oracle: ModuleType, path: Path, model: str | bytes, samples: Sequence[Sample], **how: Any) -> list[Sample]:
    """Run a model with an oracle in the oracles' process (mtool.verification.oracles.sequences)."""
    outputs: list[Sample] = process.call(
        oracle.NAME,
        path,
        f"{oracle.__name__.rpartition('.')[2]}.outputs",
        model=str(path.absolute()) if isinstance(model, str) else model,
        samples=samples,
        title=str(path),
        **how,
    )
    return outputs


_UNREGISTERED = ("is not a registered function/op", "No opset import for domain")


def _by_onnxruntime(path: Path, model: str | bytes, samples: Sequence[Sample], **how: Any) -> tuple[str, list[Sample]]:
    """Run a model by onnxruntime, with QONNX's operators if it has some; return the reference's name and outputs."""
    try:
        return ort.NAME, _run(ort, path, model, samples, **how)
    except ModelError as refused:
        if not any(words in detail for detail in refused.details for words in _UNREGISTERED):
            raise
    return qonnx.NAME, _run(qonnx, path, model, samples, **how)


def _litert(path: Path, samples: Sequence[Sample], options: Options, **how: Any) -> list[Sample]:
    begun = {"constants": options.constants, "states": options.states, "initial": options.state_values}
    return _run(litert, path, litert_can_read(path), samples, **begun, **how)


def states_of(path: Path, options: Options) -> Pairs:
    """Return an ONNX model's states: those in its metadata, and the user's."""
    return (*model_states(reread(path)), *options.states)


def _initial_states(path: Path, options: Options) -> Sample:
    """Return the initial values of an ONNX model's states: the user's, their initialisers, or zeros."""
    states = states_of(path, options)
    if not states:
        return {}
    graph = reread(path).graph
    inputs = {value for _, value in states}
    points = first_values(graph, states)
    begun = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer if tensor.name in inputs}
    values = {}
    for put in graph.input:
        if put.name in inputs:
            kind = put.type.tensor_type
            sizes = [
                dim.dim_value if dim.HasField("dim_value") else options.dims[dim.dim_param or f"{put.name}_{number}"]
                for number, dim in enumerate(kind.shape.dim)
            ]
            dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
            values[put.name] = begun.get(put.name, np.full(sizes, points.get(put.name, 0), dtype))
    return _initial(values, options)


def _initial(first: Sample, options: Options) -> Sample:
    """Return initial values: the user's, else the model's."""
    feeds = {name: value for name, value in options.state_values.items() if name in first}
    return first | {
        name: np.broadcast_to(value, first[name].shape).astype(first[name].dtype) for name, value in feeds.items()
    }


def spread_of_reference(model: Path, samples: Sequence[Sample], steps: Mapping[str, float], options: Options) -> int:
    """Return the steps by which the reference's outputs differ with and without its optimisations.

    The two round in different places, so that no other implementation can be expected to be closer. 0 if LiteRT's
    process crashes.

    Args:
        model: the ONNX or TFLite file.
        samples: inputs.
        steps: the step of each output's grid, by the output's name.
        options: the compilation's options.
    """
    if not steps:
        return 0
    if is_tflite(model):
        samples = whole_windows(samples, options)
        try:
            plain, optimised = (_litert(model, samples, options, exact=exact) for exact in (True, False))
        except process.DiedError:
            return 0
    else:
        plain, optimised = (outputs(model, samples, options=options, optimised=fast) for fast in (False, True))
    pairs = [*zip(plain, optimised, strict=True)]
    return max(
        round(float(np.abs(np.asarray(expected[name], np.float64) - other[name]).max(initial=0)) / step)
        for name, step in steps.items()
        for expected, other in pairs
    )
