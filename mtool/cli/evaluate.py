"""`mtool evaluate`: the accuracy of models on labelled samples."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from mtool import commands
from mtool.base import plural
from mtool.cli import parameters
from mtool.cli.output import Output, table

if TYPE_CHECKING:
    from mtool.commands import Evaluation

_MOST_CLASSES = 20  # of a confusion matrix that is printed


def evaluate(
    out: Output,
    models: list[Path],
    data: Path,
    labels: Path | None = None,
    board: str = parameters.HOST,
    metrics: str = "",
    top_k: int = 5,
    threshold: float = 0.5,
    scores: str = "",
    samples: int | None = None,
    scale: float = 1 / 255,
    offset: float = 0.0,
    reference: bool = False,
    *,
    on: Path | None = None,
    options: parameters.FirmwareOptions,
    deployment: parameters.ProjectDeployment,
) -> None:
    """Measure models' accuracy on labelled samples.

    mtool's C computes the outputs, on this computer or on a board. After Ctrl-C the same command continues: outputs
    are kept in the project's build folder, for this firmware.
    """
    from mtool.quantization.evaluation import Labelled, evaluations
    from mtool.stages.job import Job, board_of, own_firmware

    scoring = commands.Scoring(tuple(filter(None, metrics.replace(",", " ").split())), top_k, threshold, scores)
    on = on or own_firmware(models[0], deployment)
    board = board if on is None else board_of(on, board)
    names = [option.name or path.stem for option, path in zip(options, models, strict=True)]
    if len(models) > 1 and on is None:
        begins = (f"{after}_".startswith(f"{name}_") for name, after in itertools.permutations(names, 2))
        if any(begins):  # C could not tell their symbols apart
            numbered = zip(options, names, strict=True)
            options = [replace(option, name=f"m{number}_{name}") for number, (option, name) in enumerate(numbered)]
        deployment = deployment.with_models(models, board=board, options=options)
    labelled = Labelled(data, labels, commands.Pixels(scale, offset), samples, scoring)
    jobs = [Job.of(model, board, option, deployment, on=on) for model, option in zip(models, options, strict=True)]
    with out.progress() as progress:
        results = [*evaluations(jobs, labelled, by_reference=reference, listener=progress)]
    documents = [evaluation.as_json() for evaluation in results]
    entries = [{"name": name, **document} for name, document in zip(names, documents, strict=True)]
    out.result(documents[0] if len(documents) == 1 else {"models": entries})
    _print(out, results, names, with_confusion=len(results) == 1 or bool(scoring.metrics))


def _print(out: Output, results: Sequence["Evaluation"], names: Sequence[str], *, with_confusion: bool) -> None:
    from mtool.quantization.metrics import rows

    first = results[0].figures
    over = plural.count(first.samples, "sample") + (f", {first.classes} classes" if first.kind == "classes" else "")
    out.text("", f"{over}, " + (f"by {results[0].reference}" if results[0].reference else f"on {results[0].board}"))
    heads = names if len({run.model for run in results}) < len(results) else [run.model for run in results]
    out.text(table(("", *heads), rows([run.figures for run in results]), right=range(1, len(results) + 1)))
    for run in results:
        if with_confusion and "confusion" in run.figures.by_name:
            _print_confusion(out, run)
    if first.missing and None in first.by_name.values():
        some = ", ".join(map(str, first.missing[:8])) + " …" * (len(first.missing) > 8)
        out.text(f"not defined: without a sample of each class; missing: {some}")


def _print_confusion(out: Output, evaluation: "Evaluation") -> None:
    matrix = evaluation.figures.by_name["confusion"]
    size = len(matrix)
    if evaluation.figures.kind == "binary" and isinstance(matrix[0][0], list):
        out.text(f"{evaluation.model}: --json has the confusion matrices of {size} labels")
        return
    if size > _MOST_CLASSES:
        out.text(f"{evaluation.model}: --json has the confusion matrix of {size} classes")
        return
    out.text("", f"{evaluation.model}: rows are labels, columns predictions")
    lines = [[f"  {label}", *(str(number or "·") for number in row)] for label, row in enumerate(matrix)]
    out.text(table(("", *map(str, range(size))), lines, right=range(size + 1)))
