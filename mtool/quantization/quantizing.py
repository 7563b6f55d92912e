"""Post-training quantization: from a float model and data to a QDQ model, and a comparison.

onnxruntime does the work (mtool.verification.oracles.quantizer) in a separate process, since a model may crash it.
"""

import contextlib
import hashlib
import logging
import math
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import helper, numpy_helper

from mtool import boards
from mtool.base import checked, files, plural, spelling
from mtool.base.errors import BuildError, FitError, ModelError, UsageError
from mtool.base.option_values import Integer, Method, WeightType
from mtool.base.plural import count
from mtool.boards import Board
from mtool.compiler.frontend import is_tflite
from mtool.compiler.frontend.onnx_file import read_bound
from mtool.compiler.frontend.reading import opset_of, with_opset
from mtool.compiler.frontend.tensors import every, graphs
from mtool.compiler.frontend.tflite.schema import read as read_tflite
from mtool.compiler.operators.budget import Budget as CompileBudget
from mtool.compiler.operators.problems import OWN, REFUSED
from mtool.device.build import measure
from mtool.quantization import dataset, recipes, recurrent, rounding
from mtool.quantization.budget import WIDE, Bench, Bits, Budget, Cost, Score, Search, Start, least_sqnr, price
from mtool.quantization.dataset import Data, Pixels
from mtool.quantization.metrics import Figures, Output, Scoring, check, doubts_of_labels, figures, output_of
from mtool.quantization.recipes import Made, Recipe, Result, Row
from mtool.stages import formatting
from mtool.stages.building import STANDALONE, build_model
from mtool.stages.compiling import CompiledModel, compile
from mtool.stages.fitting import fit_of
from mtool.stages.options import Options
from mtool.stages.samples import Array, Sample, whole_windows
from mtool.verification import reference
from mtool.verification.oracles import ort, process
from mtool.verification.oracles.quantizer import INSTALL, flat, sqnr_db

# Make a QDQ model's inputs and outputs integers: the caller quantizes, with buffers of a quarter of the size.


_MOVEMENT = ("Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze")  # they only move values


def make_integer_io(path: Path) -> None:
    """Change a QDQ model's file: inputs that are quantized first and outputs that are dequantized last become integers.

    The scales and zero points stay in the model, in the DequantizeLinear after an input and the QuantizeLinear
    before an output. Other inputs and outputs are not changed.

    Raises:
        UsageError: the model has a body that reads values from outside.
    """
    model = onnx.load(str(path))
    for body in [*graphs(model)][1:]:
        names = {"", *(item.name for item in (*body.input, *body.initializer))}
        names.update(name for node in body.node for name in node.output)
        if any(name not in names for node in body.node for name in node.input):
            raise UsageError(f"{path.name} has control flow: its inputs and outputs can't be made integers")
    for value in model.graph.input:
        _input(model.graph, value)
    for value in model.graph.output:
        _output(model.graph, value)
    onnx.save(model, str(path))


def _input(graph: onnx.GraphProto, value: onnx.ValueInfoProto) -> None:
    quantize = _only_reader(graph, value.name)
    first = quantize
    while quantize is not None and quantize.op_type in _MOVEMENT and len(quantize.output) == 1:
        quantize = _only_reader(graph, quantize.output[0])
    if first is None or quantize is None or quantize.op_type != "QuantizeLinear" or len(quantize.input) < 3:
        return
    value.type.tensor_type.elem_type = _kind(graph, quantize.input[2])
    if first is quantize:
        graph.node.remove(quantize)
        _rename(graph, quantize.output[0], value.name)
        return
    dequantized = f"{value.name}_dequantized"
    _rename(graph, value.name, dequantized)
    scale = helper.make_node("DequantizeLinear", [value.name, *quantize.input[1:3]], [dequantized], name=dequantized)
    graph.node.insert(0, scale)


def _output(graph: onnx.GraphProto, value: onnx.ValueInfoProto) -> None:
    made_by = {name: node for node in graph.node for name in node.output}
    last = made_by.get(value.name)
    is_read = any(value.name in node.input for node in graph.node)
    if last is None or is_read or last.op_type != "DequantizeLinear" or last.input[0] not in made_by:
        return
    value.type.tensor_type.elem_type = _kind(graph, last.input[2])
    graph.node.remove(last)
    _rename(graph, last.input[0], value.name)


def _only_reader(graph: onnx.GraphProto, name: str) -> onnx.NodeProto | None:
    readers = [node for node in graph.node if name in node.input]
    return readers[0] if len(readers) == 1 and all(name != value.name for value in graph.output) else None


def _kind(graph: onnx.GraphProto, name: str) -> int:
    return next(int(tensor.data_type) for tensor in graph.initializer if tensor.name == name)


def _rename(graph: onnx.GraphProto, old: str, new: str) -> None:
    for node in graph.node:
        for names in (node.input, node.output):
            for index, name in enumerate(names):
                if name == old:
                    names[index] = new


# The loss by quantization: the distance of outputs and layers from the float model's, and changes of classes.


LAYER_SAMPLES = 16  # samples for the comparison of layers: all of their activations are held in memory


@dataclass(frozen=True, slots=True)
class OutputLoss:
    """The distance of an output from the float model's, over all samples.

    `max_abs` and `mean_abs` are in the output's own unit. `sqnr_db` is the power ratio of signal and difference; None:
    no difference, or no signal. `cosine` is the cosine of the angle between the two; None: one is zero.
    """

    name: str
    max_abs: float
    mean_abs: float
    sqnr_db: float | None
    cosine: float | None


@dataclass(frozen=True, slots=True)
class Classes:
    """The number of `samples`, and of those with the same class before and after."""

    samples: int
    same: int


@dataclass(frozen=True, slots=True)
class LayerLoss:
    """The distance of a layer from the float model's: of its output, including earlier losses, and of its weights.

    `node` is its name for `exclude`. Signal-to-difference ratios in decibels; None: no difference, no weights, or
    weights of few bits, which also make up for the errors of earlier layers. `bits` are those of a weight; None: the
    weights are not quantized.
    """

    node: str
    op: str
    sqnr_db: float | None
    weights_sqnr_db: float | None
    bits: int | None = None


def of_outputs(before: Sequence[Sample], after: Sequence[Sample]) -> tuple[OutputLoss, ...]:
    """Compare each output of the float model with the quantized one's; each sample is a dictionary."""
    losses = []
    for name in before[0]:
        expected, actual = (flat([sample[name] for sample in run]) for run in (before, after))
        distance, norms = np.abs(actual - expected), float(np.linalg.norm(expected) * np.linalg.norm(actual))
        largest, mean = float(distance.max(initial=0.0)), float(distance.mean()) if distance.size else 0.0
        cosine = float(expected @ actual) / norms if norms else None
        losses.append(OutputLoss(name, largest, mean, sqnr_db(expected, actual), cosine))
    return tuple(losses)


def has_classes(inputs: Sample, outputs: Sample, labels: Array | None) -> bool:
    """Whether a model's only output is a row of scores of classes, by the labels.

    Without labels, a row of the shape of an input is none: an autoencoder's.
    """
    if len(outputs) != 1:
        return False
    (scores,) = outputs.values()
    if labels is not None:
        return labels.dtype.kind != "f" and labels.size == len(labels) and scores.size > 1
    is_row = 1 < scores.size == scores.shape[-1]
    return is_row and all(scores.shape != array.shape for array in inputs.values())


def of_classes(before: Sequence[Sample], after: Sequence[Sample]) -> Classes:
    """Compare the classes of a model that has them: the largest element of its output."""
    first, second = ([int(np.argmax(*sample.values())) for sample in run] for run in (before, after))
    return Classes(len(before), sum(map(int.__eq__, first, second)))


def of_labels(before: Sequence[Sample], after: Sequence[Sample], labels: Array | None) -> tuple[Figures, ...]:
    """Return the metrics of both models; empty: there are no labels, or several outputs.

    Raises:
        UsageError: the labels don't suit the output.
    """
    if labels is None or len(before[0]) != 1:
        return ()
    ((name, row),) = before[0].items()
    output = Output(name, row.size, row.size == row.shape[-1])
    rows = (np.stack([sample[name].reshape(-1).astype(np.float64) for sample in run]) for run in (before, after))
    return tuple(figures(scores, labels, Scoring(), output) for scores in rows)


def of_layers(
    before: Path, after: Path, samples: Sequence[Sample], source: Path, bits: Mapping[str, int]
) -> tuple[LayerLoss, ...]:
    """Compare activations and weights layer by layer; the worst come first.

    Args:
        before: the float model, in a folder where others may be written.
        after: the QDQ model.
        samples: inputs; the first `LAYER_SAMPLES` are used.
        source: the user's file, for messages.
        bits: the bits of the weights of layers, by name, if they are not 8.
    """
    results = _call("of_layers", source, before=str(before), after=str(after), samples=samples[:LAYER_SAMPLES])
    losses = [
        LayerLoss(node, op, sqnr, None if node in bits else weights, bits.get(node, None if weights is None else WIDE))
        for node, op, sqnr, weights in results
    ]
    return tuple(sorted(losses, key=lambda loss: math.inf if loss.sqnr_db is None else loss.sqnr_db))


# Doubts about calibration data: whether a model's batch normalization statistics match the data, and its ranges do.


_FEW_SAMPLES = 100  # for weights of few bits
_MOST_SAMPLES = 32  # samples whose activations are held in memory
_MOST_DISTANCE = 1.0  # standard deviations between means, median of the channels
_MOST_RATIO = 3.0  # between standard deviations, median of the channels
_FEWEST_SAMPLES, _FEWEST_CLASSES = 8, 3


def doubts_of_samples(samples: Sequence[Sample], weights: WeightType) -> tuple[str, ...]:
    """Return a line if there are few samples for weights of few bits, and for each input that is always the same."""
    doubts = []
    if weights != "int8" and len(samples) < _FEW_SAMPLES:
        few = plural.count(len(samples), "sample")
        doubts.append(f"{few} to calibrate weights of few bits: give {_FEW_SAMPLES} or more")
    for name, first in samples[0].items():
        if first.dtype.kind == "f" and first.size > 1 and all((row[name] == first.flat[0]).all() for row in samples):
            doubts.append(
                f"the input {name} is {first.flat[0] + 0:g} everywhere in the calibration data: check the data"
            )
    return tuple(doubts)


def of_statistics(model: onnx.ModelProto, samples: Sequence[Sample], source: Path) -> tuple[str, ...]:
    """Compare the inputs of a model's batch normalizations with the means and variances from training.

    Args:
        model: the float model.
        samples: the calibration data, some of which are used.
        source: the user's file.

    Returns:
        A line if those of the first, or of more than half of them, are far off.
    """
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    norms = [
        node for node in model.graph.node
        if node.op_type == "BatchNormalization" and len(node.input) == 5 and {*node.input[1:]} <= constants.keys()
    ]  # fmt: skip
    if not norms:
        return ()
    tried, names = samples[:_MOST_SAMPLES], [node.input[0] for node in norms]
    computed = reference.intermediates(source, reference.Network(model, (), {}), tried, names, options=Options())
    rows = [{**sample, **features} for sample, features in zip(tried, computed, strict=True)]
    off: list[tuple[onnx.NodeProto, str]] = []
    for node in norms:
        mean, variance = (numpy_helper.to_array(constants[name]).astype(np.float64) for name in node.input[3:])
        values = np.concatenate([row[node.input[0]] for row in rows])
        words = _difference(values, mean, variance)
        if words:
            off.append((node, words))
    if not off or (off[0][0] is not norms[0] and 2 * len(off) <= len(norms)):
        return ()
    node, words = off[0]
    return (
        f"the data differ from the training data: before {node.name or node.output[0]} {words} "
        f"({len(off)} of {count(len(norms), 'batch normalization')}); check that they are scaled as in training",
    )


def doubts_of_classes(before: Sequence[Sample], labels: Array | None) -> tuple[str, ...]:
    """Return a line if the float model has the same class for all samples, unless their labels are the same too."""
    flat = [next(iter(sample.values())).reshape(-1) for sample in before]
    is_same_class = labels is not None and np.unique(labels).size == 1
    first = int(flat[0].argmax())
    is_few = len(before) < _FEWEST_SAMPLES or flat[0].size < _FEWEST_CLASSES
    if is_few or is_same_class or any(int(scores.argmax()) != first for scores in flat):
        return ()
    return (
        f"the float model's largest output is number {first} for all {plural.count(len(before), 'sample')}: "
        "a classifier should distinguish them; check the data",
    )


_LEAST_SQNR_DB = 10.0  # of the best layer; int8 has about 30, and one bad layer leaves those before it right


def doubts_of_layers(layers: Sequence[LayerLoss]) -> tuple[str, ...]:
    """Return a line if every layer, the first too, differs a lot: the calibration data have another range."""
    if not layers or any(layer.sqnr_db is None or layer.sqnr_db >= _LEAST_SQNR_DB for layer in layers):
        return ()
    return (
        f"all layers differ a lot from the float model, from the first on (SQNR below {_LEAST_SQNR_DB:g} dB): "
        "the calibration data have another range than the compared data; check that both are scaled as in training",
    )


_MOST_LOST = 0.02  # of top-1
_MOST_CHANGED, _OF_NOISE_DB = 0.1, 20.0  # of the classes, if it is by noise: an autoencoder's largest output may vary
_LEAST_OUTPUT_DB = 8.0


def doubts_of_loss(
    bits: Mapping[str, int], outputs: Sequence[OutputLoss], classes: Classes | None, accuracy: Sequence[Figures]
) -> tuple[str, ...]:
    """Return a line if quantization costs accuracy, or if no layer can have fewer bits than 8."""
    if bits and all(width == WIDE for width in bits.values()):
        return ("no layer can have fewer than 8 bits without losing more than the limit: all weights stay int8",)
    top = [figures.by_name["top1"] for figures in accuracy if "top1" in figures.by_name]
    worst = min((output.sqnr_db for output in outputs if output.sqnr_db is not None), default=math.inf)
    changed = 0 if classes is None else classes.samples - classes.same
    if top and top[0] - top[1] > _MOST_LOST:
        lost = f"top-1 is {top[1]:.1%} instead of {top[0]:.1%}"
    elif not top and classes is not None and changed > _MOST_CHANGED * classes.samples and worst < _OF_NOISE_DB:
        lost = f"the class of {changed} of {plural.count(classes.samples, 'sample')} changed"
    elif not top and worst < _LEAST_OUTPUT_DB:
        lost = f"an output's SQNR is {worst:.1f} dB"
    else:
        return ()
    what, instead = (
        ("weights of few bits", "--weights auto or int8") if bits else ("quantization", "--activations int16")
    )
    return (f"{what} cost{'' if bits else 's'} accuracy: {lost}; try more calibration data, or {instead}",)


def _difference(values: Array, mean: Array, variance: Array) -> str:
    """Return the differences of a tensor's channels (axis 1) from their statistics, as text; "": small ones."""
    axes = tuple(axis for axis in range(values.ndim) if axis != 1)
    wide, least = values.astype(np.float64), np.finfo(np.float32).tiny
    deviation = np.sqrt(variance + least)
    distance = float(np.median(np.abs(wide.mean(axes) - mean) / deviation))
    ratio = float(np.exp(np.median(np.log((wide.std(axes) + least) / deviation))))
    differences = []
    if distance > _MOST_DISTANCE:
        differences.append(f"their mean is {distance:.2g} standard deviations off")
    if not 1 / _MOST_RATIO <= ratio <= _MOST_RATIO and len(values) * wide[0, :1].size > 1:
        differences.append(f"their standard deviation is {ratio:.2g} times the model's")
    return " and ".join(differences)


# The footprint of a compiled model on a board: measured on built firmware if the toolchain is installed.


@dataclass(frozen=True, slots=True)
class Footprint:
    """The size and work of one model on one board.

    file_bytes: the ONNX file.
    macs: nominal multiply-accumulates.
    weight_bytes: weights, biases and scales in the model's file, independent of the board.
    constant_bytes: the same and tables, in the form for the board's kernels.
    arena_bytes: activations, inputs and outputs.
    code_bytes: the standalone firmware without the constants; on the host only the model's functions; None: not
        built, for the reason in `note`.
    fits: whether it fits the board; None: the board's memories are unknown.
    """

    file_bytes: int
    macs: int
    weight_bytes: int
    constant_bytes: int
    arena_bytes: int
    code_bytes: int | None
    fits: bool | None
    note: str


def footprint_of(model: CompiledModel, weight_bytes: int) -> Footprint:
    """Build a compiled model's standalone firmware in a temporary folder, and measure it."""
    manifest, board = model.manifest, model.board
    fits = fit_of(model).fits if board.memories else None
    code: int | None = None
    note = ""
    with tempfile.TemporaryDirectory(prefix="mtool-footprint-") as folder:
        try:
            built = build_model(model, Path(folder) / model.default_folder().name, kinds=(STANDALONE,)).built
            code = measure(built.firmware[STANDALONE], built.manifest).flash_code_bytes
            fits = None if fits is None else True
        except FitError as too_large:
            fits, note = False, "; ".join(too_large.details)
        except (BuildError, UsageError) as failed:
            note = f"not built: {failed.what}"
    size, constants, arena = model.path.stat().st_size, manifest.constant_bytes, manifest.arena_bytes
    return Footprint(size, manifest.macs, weight_bytes, constants, arena, code, fits, note)


def side_by_side(before: Footprint, after: Footprint, *, is_board: bool = True) -> list[list[str]]:
    """Return rows that compare two footprints: a label, and a figure of each.

    On this computer (not `is_board`) flash is meaningless: its kernels widen 8-bit weights to 16 or 32 bits.
    """
    both = (before, after)

    def row(label: str, name: str, write: Callable[[int], str] = formatting.kilobytes) -> list[str]:
        figures = (getattr(footprint, name) for footprint in both)
        return [label, *("not built" if figure is None else write(figure) for figure in figures)]

    rows = [row("file", "file_bytes"), row("MACs", "macs", formatting.amount)]
    rows.append(row("weights in the file", "weight_bytes"))
    if is_board:
        rows += [row("flash: constants", "constant_bytes"), row("flash: code", "code_bytes")]
    rows.append(row("RAM: arena", "arena_bytes"))
    if any(footprint.fits is not None for footprint in both):
        rows.append(["", *("fits" if footprint.fits else "DOES NOT FIT" for footprint in both)])
    return rows


log = logging.getLogger(__name__)
_PRODUCER = "mtool"
_HINT = "onnxruntime has to run the model on each sample: try a single sample, or remove operators that it lacks"
OPSET = 17  # older models are converted to it; per-channel scales need 13
_QUANTIZED = ("QuantizeLinear", "DequantizeLinear", "QLinearConv", "QLinearMatMul", "ConvInteger", "MatMulInteger")


@dataclass(frozen=True, slots=True)
class Scheme:
    """The scheme of a quantization. Weights are symmetric.

    method: how an activation's range is found: "minmax" uses all of it, "entropy" and "percentile" cut rare values.
    activations: the activations' type.
    symmetric: the activations' zero point is the middle of their type's range.
    per_channel: convolutions and matrix products have a weight scale for each output channel.
    exclude: names of nodes that stay float.
    integer_io: the inputs and outputs are integers too; their scales are in the model.
    weights: the type of the weights of convolutions and matrix products, which the model stores as int8 in any case.
    """

    method: Method = "minmax"
    activations: Integer = "int8"
    symmetric: bool = False
    per_channel: bool = True
    exclude: tuple[str, ...] = ()
    integer_io: bool = False
    weights: WeightType = "int8"

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            UsageError: one has the wrong type, or is not one of the choices.
        """
        checked.fields(self, {"exclude": tuple})
        if self.weights != "int8" and not self.per_channel:
            raise UsageError(
                f"weights of type {self.weights} need a scale for each channel", hint="leave out --per-tensor"
            )


@dataclass(frozen=True, slots=True)
class QuantizationResult:
    """A quantized model: its file, the samples of calibration and comparison, its losses and its savings.

    `accuracy` has the metrics of the float model and of the quantized one, if there are labels. The worst of `layers`
    come first. `before` and `after` are the footprints on the board. `doubts` are warnings about the data. Of a model
    whose bits were chosen, `recipe` is the file that makes it again, `front` has the models that were tried, and
    `measure` is what their accuracy is.
    """

    path: Path
    board: str
    calibrated_with: int
    compared_over: int
    outputs: tuple[OutputLoss, ...]
    classes: Classes | None
    accuracy: tuple[Figures, ...]
    layers: tuple[LayerLoss, ...]
    before: Footprint
    after: Footprint
    doubts: tuple[str, ...] = ()
    recipe: Path | None = None
    front: tuple[Row, ...] = ()
    measure: str = ""


def quantize(
    path: str | Path,
    data: str | Path | Sequence[Sample],
    *,
    output: str | Path | None = None,
    board: str | Board = "host",
    scheme: Scheme | None = None,
    budget: str | None = None,
    recipe: str | Path | None = None,
    evaluate: str | Path | Sequence[Sample] | None = None,
    labels: str | Path | None = None,
    pixels: Pixels | None = None,
    options: Options | None = None,
    listener: Callable[[int, int], None] = lambda done, total: None,
) -> QuantizationResult:
    """Quantize a float model to integers, and report losses and savings.

    Doubts about the data are logged as warnings.

    Args:
        path: the float ONNX or TFLite model. The result is ONNX.
        data: calibration data: a .npz or .npy file, a folder of .npy files or images
            (`mtool.quantization.dataset.read`), or samples (dictionaries from input name to array).
        output: the file to write; default: <model>_int8.onnx, or _int16, _int4, _int2, _auto, in the working folder.
        board: a board or its name, for the footprints.
        scheme: how to quantize.
        budget: limits of the model, for which the bits of each layer are chosen: "flash=64K,ms=30,accuracy=-0.5"
            (`mtool.quantization.budget.Budget`). The accuracy is that of the compared samples.
        recipe: the recipe of a model that was made with a budget, or with weights "auto", to make it again.
        evaluate: other data for the comparison of the two models; default: `data`.
        labels: the labels of the compared samples, as a .npy or text file; default: those in the data. `evaluate` below
            `mtool` says what they may be.
        pixels: how the pixels of images become values.
        options: symbolic dimensions, and inputs that become constants.
        listener: called with the number of layers that have weights of few bits, and that of all.

    Raises:
        FitError: no model is within the budget.
        UsageError: the data does not fit the model, or the model is already quantized; or `output` is not given, and
            the default file exists and was not written by mtool.
        ModelError: the model can't be compiled or quantized.
        BuildError: onnxruntime is not installed.
    """
    source, options = Path(path), options or Options()
    how, limits, old_recipe = _requested(scheme or Scheme(), budget, recipe)
    writes_recipe = how.weights == "auto" and old_recipe is None
    kind = how.weights if how.weights != "int8" else "int16" if how.activations == "int16" else "int8"
    target = Path(output or (f"{source.stem}_{kind}.onnx" if recipe is None else f"{Path(recipe).stem}.onnx"))
    files_read = [Path(file) for file in (data, evaluate, labels, recipe) if isinstance(file, (str, Path))]
    _check_target(target, source, files_read, is_named=output is not None)
    if writes_recipe:
        recipes.check_target(target.with_suffix(".toml"), files_read)
    if not ort.version():
        raise BuildError("onnxruntime is not installed", details=["it is needed to quantize"], hint=INSTALL)
    target_board = boards.get(board) if isinstance(board, str) else board
    for file in (data, evaluate):
        if isinstance(file, (str, Path)):
            dataset.check(Path(file))
    if labels is not None:
        dataset.labels_of(Path(labels))

    # The model and the data.
    model = _translated(source, options) if is_tflite(source) else read_bound(source, options)
    weight_bytes = _weights_of_tflite(source, options) if is_tflite(source) else _bytes_of_weights(model)
    model = _float_model(model, source)
    compiled = compile(source, board=target_board, options=options)
    inputs = whole_windows(compiled.manifest.inputs)
    calibrating = _data(data, inputs, pixels, labels if evaluate is None else None)
    comparing = calibrating if evaluate is None else _data(evaluate, inputs, pixels, labels)
    doubts = [*dict.fromkeys((*calibrating.doubts, *comparing.doubts))]
    doubts += doubts_of_samples(calibrating.samples, how.weights)
    outputs = compiled.manifest.outputs
    if comparing.labels is not None and len(outputs) == 1:
        judged = output_of(outputs[0])
        comparing = replace(comparing, labels=check(comparing.labels, len(comparing.samples), Scoring(), judged)[1])
        doubts += doubts_of_labels(comparing.labels, judged)
    inside = replace(options, dims={}, constants={})  # the quantized model has their values

    with tempfile.TemporaryDirectory(prefix="mtool-quantize-") as name, _without_golden():
        # All weights of 8 bits.
        folder, began = Path(name), time.monotonic()
        bound, prepared, quantized = (folder / file for file in ("bound.onnx", "prepared.onnx", target.name))
        onnx.save(model, str(bound))
        _call("prepare", source, model=str(bound), prepared=str(prepared))
        how = replace(how, exclude=_whole_names(prepared, how.exclude))
        if how.weights != "int8":
            floats = onnx.load(str(prepared))
            rounding.prepare(floats)
            onnx.save(floats, str(prepared))
        _quantize(prepared, quantized, calibrating.samples, how, source)

        # Fewer bits: those of the recipe, of the scheme, or the best that a search finds.
        before = reference.outputs(prepared, comparing.samples)
        is_classifier = has_classes(comparing.samples[0], before[0], comparing.labels)
        bench = _bench(before, comparing, quantized, lambda: price(quantized, target_board, inside), how, is_classifier)
        bits, front = Bits({}), list[Row]()
        if how.weights != "int8":
            start = Start(floats, onnx.load(str(quantized)), calibrating.samples, folder)
            if writes_recipe:
                choice, tried = Search(start, bench, limits, listener).choice()
                bits, front, integers = choice.bits, recipes.rows(tried, choice), choice.model
            else:
                bits = old_recipe.bits if old_recipe else Bits(rounding.uniform(start.layers, int(how.weights[3:])))
                integers = start.with_bits(bits, listener)
            onnx.save(integers, str(quantized))
        log.info("  %-9s %4.1f s   %s", "quantize", time.monotonic() - began, _described(how, calibrating))

        # The losses.
        doubts += of_statistics(model, calibrating.samples, source)
        layers = of_layers(prepared, quantized, comparing.samples, source, bits.weights)
        after = reference.outputs(quantized, comparing.samples)
        accuracy = of_labels(before, after, comparing.labels)
        outputs_lost, same = of_outputs(before, after), of_classes(before, after) if is_classifier else None
        doubts += doubts_of_classes(before, comparing.labels) if is_classifier else ()
        of_loss = () if limits and limits.costs else doubts_of_loss(bits.weights, outputs_lost, same, accuracy)
        doubts += doubts_of_layers(layers) or of_loss
        if how.integer_io:
            make_integer_io(quantized)
        if evaluate is None or _is_same_file(data, evaluate):
            instead = ": add --evaluate" if evaluate is None else ""
            doubts.append(f"calibration and evaluation use the same data; other data may differ by more{instead}")
        for doubt in doubts:
            log.warning("%s", doubt)

        # The savings, and the files.
        footprint_before = footprint_of(compiled, weight_bytes)
        after_bytes = _bytes_of_weights(onnx.load(str(quantized)))
        footprint_after = footprint_of(compile(quantized, board=target_board, options=inside), after_bytes)
        if old_recipe is not None:
            old_recipe.check_made(source, calibrating.samples, quantized.read_bytes())
        files.write(target, quantized.read_bytes(), follow=True)
        if writes_recipe:
            where = {"board": compiled.board.name, "budget": str(limits or ""), "measure": bench.measure}
            result = Result(sha256=hashlib.sha256(quantized.read_bytes()).hexdigest(), **where)
            written = Recipe.of(Made.of(source, calibrating.samples), how, bits, result, front)
            files.write(target.with_suffix(".toml"), written.as_toml(), follow=True)
    return QuantizationResult(
        path=target,
        board=compiled.board.name,
        calibrated_with=len(calibrating.samples),
        compared_over=len(comparing.samples),
        outputs=outputs_lost,
        classes=same,
        accuracy=accuracy,
        layers=layers,
        before=footprint_before,
        after=footprint_after,
        recipe=target.with_suffix(".toml") if writes_recipe else None,
        front=tuple(front),
        measure=bench.measure,
        doubts=tuple(doubts),
    )


def _requested(
    scheme: Scheme, budget: str | None, recipe: str | Path | None
) -> tuple[Scheme, Budget | None, Recipe | None]:
    """Return the scheme, the limits and the recipe; either of these chooses the weights' bits."""
    limits = None if budget is None else Budget.parse(budget)
    if recipe is not None:
        if limits is not None or scheme != Scheme():
            raise UsageError("a recipe has the whole scheme", hint="leave out the other options, or --recipe")
        loaded = recipes.read(Path(recipe))
        return Scheme(**loaded.scheme.model_dump(), weights="auto"), None, loaded
    if limits is not None and scheme.weights not in ("int8", "auto"):
        raise UsageError(
            f"--budget chooses the weights' bits, and --weights {scheme.weights} sets them", hint="leave out one"
        )
    return scheme if limits is None else replace(scheme, weights="auto"), limits, None


def _bench(
    before: Sequence[Sample], comparing: Data, path: Path, cost: Callable[[], Cost], how: Scheme, is_classifier: bool
) -> Bench:
    """Return the bench: it writes each model to `path`, and compares it with the float model's outputs."""

    def accuracy(after: Sequence[Sample]) -> float | None:
        if figures := of_labels(before, after, comparing.labels):
            top1: float | None = figures[1].by_name.get("top1", figures[1].by_name.get("accuracy"))
            return top1
        return of_classes(before, after).same / len(before) if is_classifier else None

    def judge(model: onnx.ModelProto) -> Score:
        onnx.save(model, str(path))
        after = reference.outputs(path, comparing.samples)
        return Score(accuracy(after), least_sqnr(before, after))

    def costs(model: onnx.ModelProto) -> Cost:
        onnx.save(model, str(path))
        if how.integer_io:
            make_integer_io(path)
        return cost()

    float_accuracy, is_labelled = accuracy(before), bool(of_labels(before, before, comparing.labels))
    what = "by the labels" if is_labelled else "the same class as the float model's"
    over = plural.count(len(before), "sample")
    measure = f"SQNR of {over}" if float_accuracy is None else f"{what}, {over}"
    return Bench(judge, costs, float_accuracy, is_labelled and float_accuracy is not None, len(before), measure)


def _is_same_file(path: object, other: object) -> bool:
    return isinstance(path, (str, Path)) and isinstance(other, (str, Path)) and Path(path).samefile(other)


def _bytes_of_weights(model: onnx.ModelProto) -> int:
    """Return the bytes of the constants in a model's file."""
    return sum(onnx.numpy_helper.to_array(tensor).nbytes for tensor in every(model))


def _weights_of_tflite(source: Path, options: Options) -> int:
    """Return the bytes of the constants in a TFLite model's file; its translation has float weights."""
    file = read_tflite(source, CompileBudget(options.limits))
    tensors = [tensor for part in (file, *file.others) for tensor in part.tensors]
    return sum(tensor.data.nbytes for tensor in tensors if tensor.data is not None)


def _check_target(target: Path, source: Path, files_read: Sequence[Path], *, is_named: bool) -> None:
    if target.suffix != ".onnx":
        raise UsageError(f"{target}: the output has to be an .onnx file", hint=f"-o {target.stem or 'model'}.onnx")
    if target.exists() and source.exists() and target.samefile(source):
        raise UsageError(f"{target} is the model itself", hint="choose another file with -o")
    files.check_writable(target, files_read)
    if not is_named and target.exists() and not _is_own(target):
        raise UsageError(f"{target} exists and was not written by mtool", hint=f"overwrite it: -o {target}")


def _is_own(path: Path) -> bool:
    """Return whether a model was written by this function."""
    try:
        return str(onnx.load(str(path), load_external_data=False).producer_name) == _PRODUCER
    except (DecodeError, OSError):
        return False


def _float_model(model: onnx.ModelProto, source: Path) -> onnx.ModelProto:
    """Return a model of fixed shapes prepared for the quantizer: float weights, a name for each node, a new opset."""
    _put_weights_in_floats(model)
    ops = sorted({node.op_type for node in model.graph.node} & set(_QUANTIZED))
    if ops:
        raise UsageError(
            f"{source.name} is already quantized", details=[f"it has: {', '.join(ops)}"], hint="give its float model"
        )
    is_recurrent = any(node.op_type in recurrent.GATES for node in model.graph.node)
    least, new_opset = (recurrent.OPSET, recurrent.OPSET) if is_recurrent else (OPSET - 4, OPSET)
    if (opset_of(model) or OPSET) < least:
        model = with_opset(model, new_opset, source.name)
    names = Counter(node.name for node in model.graph.node)
    for number, node in enumerate(model.graph.node):
        if not node.name or names[node.name] > 1:
            node.name = f"{node.name or node.op_type}_{number}"
    return model


def _translated(source: Path, options: Options) -> onnx.ModelProto:
    """Return a TFLite model as an ONNX model.

    Raises:
        UsageError: it has states, or operators that ONNX lacks.
    """
    translation, _ = reference.translated(source, replace(options, hybrid="float"))
    foreign = [node.name or node.op_type for node in translation.proto.graph.node if node.domain in (OWN, REFUSED)]
    if translation.states or foreign:
        what = "operators that ONNX lacks" if foreign else "states, which calibration does not support"
        raise UsageError(
            f"{source.name} has {what}",
            details=[*foreign, *(state for state, _ in translation.states)][:5],
            hint="quantize it with TensorFlow's converter",
        )
    for number, node in enumerate(translation.proto.graph.node):  # the nodes of one operator share its name
        node.name = f"{node.name or node.op_type} {number}"
    return translation.proto


def _put_weights_in_floats(model: onnx.ModelProto) -> None:
    """Replace integer weights of float operators (TFLite's dynamic range quantization) by their real values."""
    graph = model.graph
    constants = {tensor.name: tensor for tensor in graph.initializer}
    for node in [*graph.node]:
        if node.op_type != "DequantizeLinear" or not constants.keys() >= {*node.input}:
            continue
        data, scale, *zero = (onnx.numpy_helper.to_array(constants[name]) for name in node.input)
        if scale.ndim > 1 or data.dtype.kind not in "iu":
            continue  # quantized in blocks
        axis = next((attr.i for attr in node.attribute if attr.name == "axis"), 1)
        along = [-1 if scale.ndim and dim == axis % data.ndim else 1 for dim in range(data.ndim)]
        steps = data.astype(np.int64) - (zero[0].astype(np.int64).reshape(along) if zero else 0)
        graph.node.remove(node)
        values = (steps * scale.astype(np.float64).reshape(along)).astype(scale.dtype)
        graph.initializer.append(onnx.numpy_helper.from_array(values, node.output[0]))


def _data(data: str | Path | Sequence[Sample], tensors: Any, pixels: Pixels | None, labels: str | Path | None) -> Data:
    if isinstance(data, (str, Path)):
        return dataset.read(Path(data), tensors, pixels=pixels, labels=None if labels is None else Path(labels))
    return dataset.of_arrays(data, tensors)


@contextlib.contextmanager
def _without_golden() -> Iterator[None]:
    """Replace the hint about a file with the expected outputs, which does not apply here."""
    try:
        yield
    except ModelError as refused:
        refused.hint = _HINT if refused.hint.endswith(process.HINT) else refused.hint
        raise


def _call(function: str, source: Path, **named: Any) -> Any:
    """Call a function of mtool.verification.oracles.quantizer for a model, in the oracles' process."""
    return process.call(ort.NAME, source, f"quantizer.{function}", title=source.name, **named)


def _whole_names(prepared: Path, excluded: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the nodes to exclude, of which parts suffice."""
    names = [node.name for node in onnx.load(str(prepared)).graph.node]
    whole = tuple(spelling.whole_name(name, names) for name in excluded)
    unknown = [name for name in whole if name not in names]
    if unknown:
        near = spelling.near(unknown[0], names, most=4) or names[:4]
        raise UsageError(
            f"the model has no node {unknown[0]!r} to exclude",
            details=[f"some of its {plural.count(len(names), 'node')}: {', '.join(near)}"],
            hint="use a name from the list of layers that mtool quantize prints",
        )
    return whole


def _quantize(prepared: Path, quantized: Path, samples: Sequence[Sample], how: Scheme, source: Path) -> None:
    """Write the quantized model."""
    model = onnx.load(str(prepared))
    layers, refused = recurrent.layers(model)
    layers = [layer for layer in layers if layer.node.name not in how.exclude]
    for name, reason in refused.items():
        if name not in how.exclude:
            log.warning("%s stays in float: %s", name, reason)
    observed = prepared.with_name("observed.onnx")
    grids = recurrent.grids_of(model, layers, samples, how.activations, observed, symmetric=how.symmetric)
    same = {tensor: grids[layer]["h"] for tensor, layer in recurrent.same_grid(model, layers).items()}
    for layer in layers:
        grids[layer.node.name]["x"] = same.get(layer.node.input[0], grids[layer.node.name]["x"])
    fixed = {tensor: grid.parameters for tensor, grid in same.items()}
    arguments = {"prepared": str(prepared), "quantized": str(quantized), "samples": samples, "grids": fixed}
    _call("quantize", source, **arguments, scheme=asdict(how), forced=False)
    in_float = _in_float(onnx.load(str(quantized)))
    if any(op in _SAMPLING and name not in how.exclude for name, op in in_float.items()):
        excluded = {name for name, op in in_float.items() if op not in (*_SAMPLING, "Relu", "Clip")}
        scheme = replace(how, exclude=(*excluded, *how.exclude))
        _call("quantize", source, **arguments, scheme=asdict(scheme), forced=True)
    model = onnx.load(str(quantized))
    recurrent.quantized(model, layers, grids, per_channel=how.per_channel)
    if not any(node.op_type == "QuantizeLinear" for node in model.graph.node):
        ops = sorted({node.op_type for node in model.graph.node})
        reasons = [f"{name}: {reason}" for name, reason in refused.items()]
        raise UsageError(
            "the model has nothing that can be quantized", details=[f"its operators: {', '.join(ops)}", *reasons]
        )
    used = {node.domain or "" for node in model.graph.node}
    imports = [entry for entry in model.opset_import if entry.domain in used]
    del model.opset_import[:]
    model.opset_import.extend(imports)  # onnxruntime lists every domain that it knows
    model.producer_name = _PRODUCER
    onnx.save(model, str(quantized))


_SAMPLING = ("MaxPool", "AveragePool", "Resize")
"""Operators that onnxruntime quantizes only after another one that it quantizes."""


def _in_float(model: onnx.ModelProto) -> dict[str, str]:
    """Return the operators of a QDQ model whose first input is float, by name."""
    integers = {name for node in model.graph.node if node.op_type == "DequantizeLinear" for name in node.output}
    return {node.name: node.op_type for node in model.graph.node if node.input and node.input[0] not in integers}


def _described(how: Scheme, data: Data) -> str:
    scales = "per channel" if how.per_channel else "per tensor"
    zero = "symmetric" if how.symmetric else "asymmetric"
    count = plural.count(len(data.samples), "sample")
    return f"{count}, {how.method}; activations {how.activations} {zero}; weights {how.weights} {scales}"
