"""`mtool quantize`: quantize a float model to integers."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from mtool import commands
from mtool.base import plural, spelling
from mtool.base.errors import UsageError
from mtool.base.option_values import Integer, Method, WeightType
from mtool.cli import parameters
from mtool.cli.output import Output, table

if TYPE_CHECKING:
    from mtool.commands import QuantizationResult

_WORST = 5  # layers that are printed


def quantize(
    out: Output,
    model: Path,
    data: Path,
    output: Path | None = None,
    board: str = parameters.HOST,
    method: Method = "minmax",
    weights: WeightType | None = None,
    budget: str | None = None,
    recipe: Path | None = None,
    activations: Integer = "int8",
    symmetric: bool = False,
    per_tensor: bool = False,
    exclude: list[str] | None = None,
    integer_io: bool = False,
    scale: float = 1 / 255,
    offset: float = 0.0,
    evaluate: Path | None = None,
    labels: Path | None = None,
    *,
    options: parameters.ShapeOptions,
) -> None:
    """Quantize a float model to integers, and report what that loses and saves.

    The ranges of its activations come from --data; the result is an ONNX model in QDQ form, also for a .tflite model.
    """
    if recipe is not None and weights is not None:
        raise UsageError("a recipe has the whole scheme", hint="leave out --weights, or --recipe")
    excluded, kind = tuple(exclude or ()), weights or "int8"
    scheme = commands.Scheme(method, activations, symmetric, not per_tensor, excluded, integer_io, kind)
    with out.progress() as progress:
        quantized = commands.quantize(
            model,
            data,
            output=output,
            board=board,
            scheme=scheme,
            budget=budget,
            recipe=recipe,
            evaluate=evaluate,
            labels=labels,
            pixels=commands.Pixels(scale, offset),
            options=options,
            listener=progress,
        )
    accuracy = [figures.as_json() for figures in quantized.accuracy]
    plain = dataclasses.asdict(dataclasses.replace(quantized, accuracy=(), front=()))
    paths = {"path": str(quantized.path), "recipe": quantized.recipe and str(quantized.recipe)}
    out.result({**plain, **paths, "accuracy": accuracy, "front": [row.model_dump() for row in quantized.front]})
    _print(out, quantized)


def _print(out: Output, done: "QuantizationResult") -> None:
    from mtool.quantization import metrics, recipes
    from mtool.quantization.budget import FLOAT, WIDE
    from mtool.quantization.quantizing import side_by_side

    over = plural.count(done.compared_over, "sample")
    out.text("", f"difference from the float model over {over}")
    rows = [
        [f"  {row.name}", f"{row.max_abs:.4g}", f"{row.mean_abs:.4g}", decibels(row.sqnr_db), cosine(row.cosine)]
        for row in done.outputs
    ]
    out.text(table(("  output", "max abs", "mean abs", "SQNR", "cosine"), rows, right=(1, 2, 3, 4)))
    if done.classes is not None:
        out.text(f"  top-1 the same for {done.classes.same} of {done.classes.samples}")
    if done.accuracy:
        out.text("", "against the labels")
        out.text(table(("", "float", "quantized"), metrics.rows(done.accuracy), right=(1, 2)))
    has_few = any(layer.bits not in (WIDE, None) for layer in done.layers)
    worst = [layer for layer in done.layers if layer.bits is not None] if has_few else done.layers[:_WORST]
    if worst:
        out.text("", f"worst of {plural.count(len(done.layers), 'layer')}; --exclude keeps one in float")
        # Not a table, which cuts text to the terminal's width: --exclude needs a part of the name that is the only one.
        names, width = [layer.node for layer in done.layers], max(len("operator"), *(len(layer.op) for layer in worst))
        out.text(f"  {'output SQNR':>11}  {'weights' if has_few else 'weights SQNR':>12}  {'operator':<{width}}  node")
        for layer in worst:
            bits = "float" if layer.bits == FLOAT else f"{layer.bits} bits"
            of_weights = bits if has_few else decibels(layer.weights_sqnr_db)
            node = spelling.shortest_part(layer.node, names)
            out.text(f"  {decibels(layer.sqnr_db):>11}  {of_weights:>12}  {layer.op:<{width}}  {node}")
    out.text("")
    is_board = done.board != parameters.HOST
    rows = side_by_side(done.before, done.after, is_board=is_board)
    out.text(table((f"on {done.board}" if is_board else "", "float", "quantized"), rows, right=(1, 2)))
    if not is_board:
        out.text("the arena is for this computer; --board BOARD shows a board's flash and RAM")
    for label, footprint in (("float", done.before), ("quantized", done.after)):
        if footprint.note:
            out.text(f"  {label}: {footprint.note}")
    if done.front:
        out.text("", f"bits by layer; accuracy: {done.measure}")
        headings, models = recipes.table(done.front)
        out.text(table(headings, models, right=range(2, len(headings))))
    beside = f", and its recipe {done.recipe}" if done.recipe else ""
    out.text("", f"wrote {done.path}{beside}; try it: mtool verify {done.path} --board {done.board}")


def decibels(value: float | None) -> str:
    """Write a ratio in decibels; empty for None."""
    return "" if value is None else f"{value:.1f} dB"


def cosine(value: float | None) -> str:
    """Write a cosine; empty for None."""
    return "" if value is None else f"{value:.5f}"
