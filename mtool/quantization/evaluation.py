"""Evaluation: a model's metrics on labelled samples, run on the host or on a device.

The results of each sample are kept in the project's build folder under a hash of its inputs, so that an interrupted
evaluation continues, and only new samples run if there are more. They are valid for one firmware.
"""

import contextlib
import hashlib
import io
import itertools
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from mtool.base import checked, files, locks, plural
from mtool.base.errors import UsageError
from mtool.boards import Board
from mtool.device.build.build import BUILD_FOLDER
from mtool.manifest import Manifest, Tensor
from mtool.quantization import dataset
from mtool.quantization.dataset import Data, Pixels
from mtool.quantization.metrics import Figures, Output, Scoring, check, doubts_of_labels, figures, output_of
from mtool.stages import formatting
from mtool.stages import samples as sampling
from mtool.stages.building import HOST_DRIVEN, BuiltProject
from mtool.stages.compiling import CompiledModel
from mtool.stages.deployment import DEFAULT, HOST, Deployment, infer_all
from mtool.stages.job import Job
from mtool.stages.options import Options
from mtool.stages.samples import Array, Sample
from mtool.verification import reference

log = logging.getLogger(__name__)
Listener = Callable[[int, int], None]
"""Called with the numbers of samples that are done and of all samples."""


@dataclass(frozen=True, slots=True)
class Labelled:
    """Labelled samples, and how a model's outputs for them are judged.

    data: a .npz or .npy file, or a folder of .npy files or images (`mtool.quantization.dataset.read`).
    labels: a .npy or text file with the labels; None: they are in the data.
    pixels: how the pixels of images become values; None: the default.
    most: the number of samples to run; None: all.
    scoring: the metrics.
    """

    data: Path
    labels: Path | None = None
    pixels: Pixels | None = None
    most: checked.Count | None = None
    scoring: Scoring = field(default_factory=Scoring)

    def __post_init__(self) -> None:
        """Check that the files exist, before any work.

        Raises:
            UsageError: one is missing or malformed, or a value has the wrong type.
        """
        checked.fields(self, {})
        dataset.check(self.data, self.labels)

    def read(self, manifest: Manifest) -> Data:
        """Return the samples for a model; they have labels.

        Raises:
            UsageError: they don't suit the model or the metrics, or there are no labels.
        """
        data = dataset.read(self.data, manifest.inputs, pixels=self.pixels, labels=self.labels)
        if data.labels is None:
            raise UsageError(
                f"{self.data} has no labels",
                details=["expected an array `labels` with a class, or a row of numbers, for each sample"],
                hint="add it: np.savez(..., labels=[3, 0, ...]); or give a file: --labels FILE",
            )
        tensor = _scores(manifest, self.scoring.output)
        output, doubts = output_of(tensor), data.doubts
        if more := doubts_of_labels(data.labels, output):
            rebuilt = _rebuilt(manifest, tensor)
            note = f"all labels are 0 or 1, and {tensor.name} has an input's shape: the score is the mean square error"
            output, doubts = (_ERROR, (*doubts, note)) if rebuilt else (output, (*doubts, *more))
        _, labels = check(data.labels, len(data.samples), self.scoring, output)
        for doubt in doubts:
            log.warning("%s", doubt)
        return Data(data.samples[: self.most], labels[: self.most])


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The metrics of a model.

    model: the file's name.
    board: the board that computed the outputs; empty: the reference did.
    figures: the metrics.
    reused: the number of samples whose outputs were kept from an earlier run of the same firmware.
    reference: the reference's name; empty: mtool's C computed the outputs.
    """

    model: str
    board: str
    figures: Figures
    reused: int = 0
    reference: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        labels = {"model": self.model, "board": self.board or None, "reference": self.reference or None}
        return {**labels, "reused": self.reused, **self.figures.as_json()}


@locks.keep_locks()
def evaluate(
    path: str | Path,
    data: str | Path,
    *,
    board: str | Board = HOST,
    labels: str | Path | None = None,
    pixels: Pixels | None = None,
    samples: checked.Count | None = None,
    scoring: Scoring | None = None,
    by_reference: bool = False,
    options: Options | None = None,
    deployment: Deployment = DEFAULT,
    on: Path | None = None,
    listener: Listener = lambda done, total: None,
) -> Evaluation:
    """Run a model on labelled samples, and compute the metrics that suit the labels.

    Labels are integers (a class for each sample, or 0 or 1 for each score) or floats (values to be predicted). Outputs
    of a sample are kept: the same evaluation continues after Ctrl-C.

    Args:
        path: the ONNX or TFLite model.
        data: samples: a .npz or .npy file, or a folder of .npy files or images (`mtool.quantization.dataset.read`).
            Real values for an integer input are quantized by its scale.
        board: a board or its name; default: this computer, which runs the same C.
        labels: a .npy or text file with the labels; default: `labels` in the data.
        pixels: how the pixels of images become values.
        samples: the number of samples to run; default: all.
        scoring: the metrics; default: all that suit the labels.
        by_reference: run the model with onnxruntime, or LiteRT for a TFLite model, in place of mtool's C.
        options: how to compile and which template to use.
        deployment: the project folder, and the device that runs it.
        on: the project whose firmware has the model as a module, or the package in firmware of your own; nothing is
            built or flashed then.
        listener: called with the numbers of samples that are done and of all samples.

    Raises:
        UsageError: the labels are missing, or don't suit the outputs or the metrics.
        MtoolError: of the failed stage's class, see mtool.errors.
    """
    labelled = Labelled(Path(data), None if labels is None else Path(labels), pixels, samples, scoring or Scoring())
    jobs = [Job.of(path, board, options, deployment, on=on)]
    return next(evaluations(jobs, labelled, by_reference=by_reference, listener=listener))


def evaluations(
    jobs: Sequence[Job],
    labelled: Labelled,
    *,
    by_reference: bool = False,
    listener: Listener = lambda done, total: None,
) -> Iterator[Evaluation]:
    """Evaluate several models on the same data, which are checked for all of them before the first runs.

    Raises:
        MtoolError: as `evaluate`.
    """
    models = [job.compile() for job in jobs]
    data = [labelled.read(model.manifest) for model in models]
    for job, model, read in zip(jobs, models, data, strict=True):
        if not by_reference:
            yield run(
                model, job.build(model), read, labelled.scoring, job.deployment, listener, keeps=not job.is_module
            )
            continue
        start = time.monotonic()
        name, outputs = reference.computed_by(model.path, read.samples, options=model.options)
        figures = judged(model.manifest, outputs, read, labelled.scoring)
        yield _logged(Evaluation(model.path.name, "", figures, reference=name), start)


def run(
    model: CompiledModel,
    prepared: BuiltProject,
    data: Data,
    scoring: Scoring,
    deployment: Deployment,
    listener: Listener = lambda done, total: None,
    *,
    keeps: bool = True,
) -> Evaluation:
    """Run a built model on labelled samples, and compute its metrics, as `evaluate`.

    With states, the samples are one sequence, and nothing is kept.
    """
    start, tensor, total = time.monotonic(), _scores(model.manifest, scoring.output), len(data.samples)
    is_sequence = bool(model.manifest.states)
    with _results(prepared, tensor, keeps=keeps and not is_sequence) as (results, add):
        numbered = ((sample, number if is_sequence else 0) for number, sample in enumerate(data.samples))
        keys = [dataset.hash_of([sample], b"%d" % number).digest()[:_KEY_BYTES] for sample, number in numbered]
        missing = [number for number, key in enumerate(keys) if key not in results]
        reused = total - len(missing)
        listener(reused, total)
        numbers = itertools.count(reused + 1)

        def keep(number: int, outputs: Sample) -> None:
            add(keys[missing[number]], outputs[tensor.name])
            listener(next(numbers), total)

        if missing:
            with deployment.open(prepared) as device:
                infer_all(device, prepared, [data.samples[number] for number in missing], deployment, keep)
        outputs = [{tensor.name: results[key]} for key in keys]
    metrics = judged(model.manifest, outputs, data, scoring)
    return _logged(Evaluation(model.path.name, prepared.board.name, metrics, reused), start)


def _logged(evaluation: Evaluation, start: float) -> Evaluation:
    note = f", {evaluation.reused:,} of them kept from an earlier run" if evaluation.reused else ""
    where = f"by {evaluation.reference}" if evaluation.reference else f"on {evaluation.board}"
    what = f"{evaluation.model} {where}, {plural.count(evaluation.figures.samples, 'sample')}{note}"
    log.info("  %-9s %4.1f s   %s", "evaluate", time.monotonic() - start, what)
    return evaluation


def judged(manifest: Manifest, outputs: Sequence[Sample], data: Data, scoring: Scoring) -> Figures:
    """Compute the metrics of a model's outputs for labelled samples; integers are dequantized first.

    If each sample has a label of 0 or 1 instead of a class, and the output is an input's reconstruction, its error is
    the score.

    Raises:
        UsageError: the labels don't suit the output or the metrics, or it is not clear which output has the scores.
        ModelError: an output is not finite.
    """
    assert data.labels is not None
    tensor = _scores(manifest, scoring.output)
    rows = np.stack([sampling.real(np.asarray(output[tensor.name]), tensor).reshape(-1) for output in outputs])
    rebuilt = _rebuilt(manifest, tensor) if data.labels.shape[1:] == (1,) else None
    if rebuilt is None:
        return figures(rows, data.labels, scoring, output_of(tensor))
    inputs = [sampling.real(np.asarray(sample[rebuilt.name]), rebuilt).reshape(-1) for sample in data.samples]
    errors = np.square(rows - inputs).mean(axis=1, keepdims=True)
    return figures(errors, data.labels, replace(scoring, metrics=scoring.metrics or ("auc", "map")), _ERROR)


_ERROR = Output("the mean square error", 1)


def _rebuilt(manifest: Manifest, tensor: Tensor) -> Tensor | None:
    """Return the input that an output of several values reconstructs: it has the same shape."""
    same = (input for input in manifest.inputs if input.shape == tensor.shape)
    return next(same, None) if output_of(tensor).size > 1 else None


def _scores(manifest: Manifest, name: str) -> Tensor:
    """Return the output that has the scores or values.

    Raises:
        UsageError: there are several and none is named, or the size of its results varies.
    """
    counts = {output.count for output in manifest.outputs}
    outputs = [output for output in manifest.outputs if output.name not in counts and name in ("", output.name)]
    if len(outputs) != 1:
        what = f"the model has no output {name!r}" if name else f"the model has {len(outputs)} outputs"
        rows = [f"{output.name} {formatting.tensor(output)}" for output in manifest.outputs]
        raise UsageError(what, details=rows, hint=f"name the one with the scores: --scores {manifest.outputs[-1].name}")
    if outputs[0].count is not None or outputs[0].dims is not None:
        raise UsageError(
            f"the size of {outputs[0].name} varies, and labels need the same number of scores for each sample",
            details=[formatting.tensor(outputs[0])],
        )
    return outputs[0]


# The outputs of samples in a file: what identifies the firmware and the output, then a record for each sample.


_KEY_BYTES = 16


@contextlib.contextmanager
def _results(
    prepared: BuiltProject, tensor: Tensor, *, keeps: bool
) -> Iterator[tuple[Mapping[bytes, Array], Callable[[bytes, Array], None]]]:
    """Yield the outputs that are known, by the hash of a sample's inputs, and a function that adds one.

    With `keeps`, they are those in the file, of this firmware; each new one is appended to it. A record that was cut
    off is removed, another firmware's are replaced.
    """
    path = prepared.folder / BUILD_FOLDER / f"{prepared.manifest.model}.results"
    kind = np.dtype([("key", f"V{_KEY_BYTES}"), ("output", np.dtype(tensor.dtype), tensor.shape)])
    head = hashlib.sha256(_identity(prepared) + f"{tensor.name} {tensor.dtype} {tensor.shape}".encode()).digest()
    data = path.read_bytes() if keeps and path.is_file() else b""
    records = data[len(head) :] if data.startswith(head) else b""
    stored = np.frombuffer(records, kind, len(records) // kind.itemsize)
    outputs = {row["key"].tobytes(): row["output"] for row in stored}
    if keeps and data != (whole := head + stored.tobytes()):
        files.write(path, whole)
    with files.open_to_append(path) if keeps else io.BytesIO() as file:

        def add(key: bytes, output: Array) -> None:
            record = np.array((key, output), kind)
            file.write(record.tobytes())
            file.flush()
            outputs[key] = record["output"]

        try:
            yield outputs, add
        except BaseException:
            if keeps and outputs:
                samples = plural.count(len(outputs), "sample")
                log.info("the results of %s are kept: the same command continues", samples)
            raise


def _identity(prepared: BuiltProject) -> bytes:
    """Return a hash of the firmware: of its file, if it is here, else of what it was built from."""
    firmware = prepared.built.firmware.get(HOST_DRIVEN)
    if firmware is not None and firmware.is_file():
        return hashlib.sha256(firmware.read_bytes()).digest()
    return prepared.manifest.in_project.build_hash.encode()
