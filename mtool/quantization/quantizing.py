"""Post-training quantisation: a float model and data in, a QDQ model of 8-bit integers out, and what that changes.

onnxruntime does the work (mtool.verification.oracles.quantizer), in a process of its own: it may die of a model.
"""

import contextlib
import logging
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError

from mtool import boards
from mtool.base import checked, files, spelling
from mtool.base.errors import BuildError, ModelError, UsageError
from mtool.base.option_values import Integer, Method
from mtool.boards import Board
from mtool.compiler.frontend import is_tflite
from mtool.compiler.frontend.budget import Budget
from mtool.compiler.frontend.onnx_file import read_bound
from mtool.compiler.frontend.problems import OWN, REFUSED
from mtool.compiler.frontend.tflite.model import to_onnx
from mtool.compiler.frontend.tflite.schema import read as read_tflite
from mtool.quantization import calibration, dataset, loss
from mtool.quantization.dataset import Data, Pixels
from mtool.quantization.integer_io import make_integer_io
from mtool.quantization.loss import Classes, LayerLoss, OutputLoss
from mtool.stages import formatting
from mtool.stages.compiling import compile
from mtool.stages.footprint import Footprint, footprint_of
from mtool.stages.options import Options
from mtool.stages.samples import Sample
from mtool.verification import reference
from mtool.verification.oracles import ort, process
from mtool.verification.oracles.quantizer import INSTALL

log = logging.getLogger(__name__)

_PRODUCER = "mtool"
_HINT = "onnxruntime has to run the model on each sample: try a single one, or leave out what it can't compute"
OPSET = 17  # what older models are converted to; per-channel scales need 13
_QUANTISED = ("QuantizeLinear", "DequantizeLinear", "QLinearConv", "QLinearMatMul", "ConvInteger", "MatMulInteger")


@dataclass(frozen=True, slots=True)
class Scheme:
    """The scheme of a quantisation. Weights are int8 and symmetric.

    method: how an activation's range is found: "minmax" takes all of it, "entropy" and "percentile" cut rare values.
    activations: their type.
    symmetric: the activations' zero point is the middle of their type's range.
    per_channel: convolutions and matrix products have a weight scale for each output channel.
    exclude: names of nodes that stay float.
    integer_io: the inputs and outputs are integers too; their scales stand in the model.
    """

    method: Method = "minmax"
    activations: Integer = "int8"
    symmetric: bool = False
    per_channel: bool = True
    exclude: tuple[str, ...] = ()
    integer_io: bool = False

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            UsageError: one is of another type, or none of those that there are.
        """
        checked.fields(self, {"exclude": tuple})


@dataclass(frozen=True, slots=True)
class Quantised:
    """A quantised model: its file, what it was calibrated and compared with, what it loses and what it saves.

    The worst of `layers` come first. `before` and `after` are of the board. `doubts` are reasons why the data may not
    be what they should be, in words.
    """

    path: Path
    board: str
    calibrated_with: int
    compared_over: int
    outputs: tuple[OutputLoss, ...]
    classes: Classes | None
    layers: tuple[LayerLoss, ...]
    before: Footprint
    after: Footprint
    doubts: tuple[str, ...] = ()


def quantize(
    path: str | Path,
    data: str | Path | Sequence[Sample],
    *,
    output: str | Path | None = None,
    board: str | Board = "host",
    scheme: Scheme | None = None,
    evaluate: str | Path | Sequence[Sample] | None = None,
    labels: str | Path | None = None,
    pixels: Pixels | None = None,
    options: Options | None = None,
) -> Quantised:
    """Quantise a float model to 8-bit integers, and tell what that loses and saves.

    Doubts about the data are logged as warnings.

    Args:
        path: the ONNX or TFLite model, of floats. The result is ONNX.
        data: calibration data: a .npz or .npy file, a folder of .npy files or images
            (`mtool.quantization.dataset.read`), or samples (dictionaries from input name to array).
        output: the file to write; default: <model>_int8.onnx in the working folder.
        board: a board or its name, for what is saved.
        scheme: how to quantise.
        evaluate: other data to compare the two models over; default: `data`.
        labels: the class of each sample that is compared, as a .npy or text file; default: those in the data.
        pixels: how the pixels of images become values.
        options: symbolic dimensions, and inputs that are made constants.

    Raises:
        UsageError: the data does not suit the model, or the model is quantised already; or `output` is not given, and
            a file that mtool did not write stands where the model would go.
        ModelError: the model can't be compiled or quantised.
        BuildError: onnxruntime is not installed.
    """
    source, chosen, how = Path(path), options or Options(), scheme or Scheme()
    target = Path(output) if output is not None else Path(f"{source.stem}_int8.onnx")
    files_read = [each for each in (data, evaluate, labels) if isinstance(each, (str, Path))]
    _check_target(target, source, [Path(each) for each in files_read], is_named=output is not None)
    if not ort.version():
        raise BuildError("onnxruntime is not installed", details=["it is what quantises"], hint=INSTALL)
    target_board = boards.get(board) if isinstance(board, str) else board
    for each in (data, evaluate):
        if isinstance(each, (str, Path)):
            dataset.check(Path(each))
    if labels is not None:
        dataset.labels_of(Path(labels))
    model = _float_model(source, chosen)
    compiled = compile(source, board=target_board, options=chosen)
    calibrating = _data(data, compiled.manifest.inputs, pixels, labels if evaluate is None else None)
    comparing = calibrating if evaluate is None else _data(evaluate, compiled.manifest.inputs, pixels, labels)
    doubts = [*dict.fromkeys((*calibrating.doubts, *comparing.doubts))]
    with tempfile.TemporaryDirectory(prefix="mtool-quantize-") as name:
        folder = Path(name)
        prepared, made = folder / "prepared.onnx", folder / target.name
        start = time.monotonic()
        with _without_golden():
            _prepare(model, prepared, source)
            _check_excluded(prepared, how.exclude)
            _quantise(prepared, made, calibrating.samples, how, source)
            log.info("  %-9s %4.1f s   %s", "quantise", time.monotonic() - start, _described(how, calibrating))
            doubts += calibration.of_statistics(model, calibrating.samples, source)
            layers = loss.of_layers(prepared, made, comparing.samples, source)
            before = reference.outputs(prepared, comparing.samples)
            after = reference.outputs(made, comparing.samples)
            doubts += calibration.of_classes(before, comparing.labels)
        if how.integer_io:
            make_integer_io(made)
        if evaluate is None or _is_same_file(data, evaluate):
            doubts.append(
                "the same data calibrate and evaluate the model, so that others may differ by more"
                + ": give --evaluate" * (evaluate is None)
            )
        for doubt in doubts:
            log.warning("%s", doubt)
        footprint_before = footprint_of(compiled, _bytes_of_weights(model))
        # The values of its dimensions and constants are in the model now.
        footprint_after = footprint_of(
            compile(made, board=target_board, options=replace(chosen, dims={}, constants={})),
            _bytes_of_weights(onnx.load(str(made))),
        )
        files.write(target, made.read_bytes(), follow=True)
    return Quantised(
        path=target,
        board=compiled.board.name,
        calibrated_with=len(calibrating.samples),
        compared_over=len(comparing.samples),
        outputs=loss.of_outputs(before, after),
        classes=loss.of_classes(before, after, comparing.labels),
        layers=layers,
        before=footprint_before,
        after=footprint_after,
        doubts=tuple(doubts),
    )


def _is_same_file(one: object, other: object) -> bool:
    return isinstance(one, (str, Path)) and isinstance(other, (str, Path)) and Path(one).samefile(other)


def _bytes_of_weights(model: onnx.ModelProto) -> int:
    """Return the bytes of a model's constants as its file has them."""
    nodes = [node.attribute[0].t for node in model.graph.node if node.op_type == "Constant" and node.attribute]
    return sum(onnx.numpy_helper.to_array(one).nbytes for one in (*model.graph.initializer, *nodes))


def _check_target(target: Path, source: Path, files_read: Sequence[Path], *, is_named: bool) -> None:
    if target.suffix != ".onnx":
        raise UsageError(f"{target}: the quantised model is an .onnx file", hint=f"-o {target.stem or 'model'}.onnx")
    if target.exists() and source.exists() and target.samefile(source):
        raise UsageError(f"{target} is the model itself", hint="give another file with -o")
    files.check_writable(target, files_read)
    if not is_named and target.exists() and not _is_own(target):
        raise UsageError(f"{target} is there, and mtool did not write it", hint=f"overwrite it: -o {target}")


def _is_own(path: Path) -> bool:
    """Return whether a model was written by this function."""
    try:
        return str(onnx.load(str(path), load_external_data=False).producer_name) == _PRODUCER
    except (DecodeError, OSError):
        return False


def _float_model(source: Path, options: Options) -> onnx.ModelProto:
    """Read a model as the quantiser wants it: fixed shapes, a name for each node, a new opset."""
    model = _translated(source, options) if is_tflite(source) else read_bound(source, options)
    _put_weights_in_floats(model)
    there = sorted({node.op_type for node in model.graph.node} & set(_QUANTISED))
    if there:
        raise UsageError(
            f"{source.name} is quantised already", details=[f"it has: {', '.join(there)}"], hint="give its float model"
        )
    opset = next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), OPSET)
    if opset < OPSET - 4:
        try:
            model = onnx.version_converter.convert_version(model, OPSET)
        except Exception as refused:  # the converter's own classes of errors share no base but this
            raise ModelError(
                f"{source.name} can't be converted from opset {opset} to {OPSET}", details=str(refused).splitlines()[:3]
            ) from None
    for number, node in enumerate(model.graph.node):
        node.name = node.name or f"{node.op_type}_{number}"
    return model


def _translated(source: Path, options: Options) -> onnx.ModelProto:
    """Return a TFLite model as an ONNX model.

    Raises:
        UsageError: it has states, or operators that ONNX lacks.
    """
    budget = Budget(options.limits)
    made = to_onnx(read_tflite(source, budget), source.name, replace(options, hybrid="float"), budget)
    foreign = [node.name or node.op_type for node in made.proto.graph.node if node.domain in (OWN, REFUSED)]
    if made.states or foreign:
        what = "operators that ONNX lacks" if foreign else "states, which calibration does not carry on"
        raise UsageError(
            f"{source.name} has {what}",
            details=[*foreign, *(state for state, _ in made.states)][:5],
            hint="quantize it by TensorFlow's converter",
        )
    model = onnx.ModelProto()
    model.CopyFrom(made.proto)
    for number, node in enumerate(model.graph.node):  # those of one operator share its name
        node.name = f"{node.name or node.op_type} {number}"
    return model


def _put_weights_in_floats(model: onnx.ModelProto) -> None:
    """Replace weights alone that are integers (TFLite's dynamic range quantisation) by what they stand for."""
    graph = model.graph
    there = {tensor.name: tensor for tensor in graph.initializer}
    for node in [*graph.node]:
        if node.op_type != "DequantizeLinear" or not there.keys() >= {*node.input}:
            continue
        data, scale, *zero = (onnx.numpy_helper.to_array(there[name]) for name in node.input)
        if scale.ndim > 1 or data.dtype.kind not in "iu":
            continue  # in blocks
        axis = next((attr.i for attr in node.attribute if attr.name == "axis"), 1)
        along = [-1 if scale.ndim and dim == axis % data.ndim else 1 for dim in range(data.ndim)]
        steps = data.astype(np.int64) - (zero[0].astype(np.int64).reshape(along) if zero else 0)
        graph.node.remove(node)
        values = (steps * scale.astype(np.float64).reshape(along)).astype(scale.dtype)
        graph.initializer.append(onnx.numpy_helper.from_array(values, node.output[0]))


def _data(data: str | Path | Sequence[Sample], tensors: Any, pixels: Pixels | None, labels: str | Path | None) -> Data:
    if isinstance(data, (str, Path)):
        return dataset.read(Path(data), tensors, pixels=pixels, labels=None if labels is None else Path(labels))
    if not data:
        raise UsageError("there are no samples to calibrate with")
    return Data(tuple(data))


@contextlib.contextmanager
def _without_golden() -> Iterator[None]:
    """Of what onnxruntime refuses or dies of, don't advise a file of expected outputs: it has no place here."""
    try:
        yield
    except ModelError as refused:
        refused.hint = _HINT if refused.hint.endswith(process.HINT) else refused.hint
        raise


def _prepare(model: onnx.ModelProto, prepared: Path, source: Path) -> None:
    """Write the model that is quantised: optimised, every tensor with its shape."""
    bound = prepared.with_name("bound.onnx")
    onnx.save(model, str(bound))
    process.call(ort.NAME, source, "quantizer.prepare", model=str(bound), prepared=str(prepared), title=source.name)


def _check_excluded(prepared: Path, excluded: Sequence[str]) -> None:
    names = [node.name for node in onnx.load(str(prepared)).graph.node]
    unknown = [name for name in excluded if name not in names]
    if unknown:
        near = spelling.near(unknown[0], names, most=4) or names[:4]
        raise UsageError(
            f"the model has no node {unknown[0]!r} to leave out",
            details=[f"it has, among {len(names)}: {', '.join(near)}"],
            hint="take a name from the list of layers that mtool quantize prints",
        )


def _quantise(prepared: Path, made: Path, samples: Sequence[Sample], how: Scheme, source: Path) -> None:
    """Write the quantised model."""
    process.call(
        ort.NAME,
        source,
        "quantizer.quantise",
        prepared=str(prepared),
        quantised=str(made),
        samples=samples,
        method=how.method,
        activations=how.activations,
        symmetric=how.symmetric,
        per_channel=how.per_channel,
        exclude=how.exclude,
        title=source.name,
    )
    model = onnx.load(str(made))
    if not any(node.op_type == "QuantizeLinear" for node in model.graph.node):
        ops = sorted({node.op_type for node in model.graph.node})
        raise UsageError("the model has nothing that can be quantised", details=[f"its operators: {', '.join(ops)}"])
    used = {node.domain or "" for node in model.graph.node}
    imports = [entry for entry in model.opset_import if entry.domain in used]
    del model.opset_import[:]
    model.opset_import.extend(imports)  # onnxruntime lists every domain that it knows
    model.producer_name = _PRODUCER
    onnx.save(model, str(made))


def _described(how: Scheme, data: Data) -> str:
    scales = "per channel" if how.per_channel else "per tensor"
    zero = "symmetric" if how.symmetric else "asymmetric"
    count = formatting.count(len(data.samples), "sample")
    return f"{count}, {how.method}; activations {how.activations} {zero}; weights int8 {scales}"
