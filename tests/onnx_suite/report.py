"""docs/operators.md, written from a run of the suite: `python -m tests.onnx_suite.report`."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from mtool.compiler.operators import operators
from mtool.compiler.operators.problems import CLASSICAL
from tests.onnx_suite.cases import GROUPS, Case, all_cases, is_narrow
from tests.onnx_suite.expectations import NOT_PASSED
from tests.onnx_suite.running import Outcome, run_all

PAGE = Path(__file__).parents[2] / "docs" / "operators.md"

INTRODUCTION = """# Operators

Written from a run of the tests in the `onnx` package (`python -m tests.onnx_suite.report`); don't edit it. A test
counts here if all its inputs and outputs are tensors of bool, integers (2 and 4 bits too), float16, bfloat16, float32,
float64, float8 or float4, and nothing in it is random or trains. Each model is compiled to C as
`mtool.plugins.onnx_backend` does, with nothing given from outside, built with the warnings as errors and the address
and undefined-behaviour sanitizers, run on the host, and compared at the suite's own tolerances. A case of
each operator, and 200 of the node tests in `make test-all`, run on an emulated Cortex-M4 as well (`mps2_an386`). `make
onnx-backend` runs the node tests by onnx's own runner (`onnx.backend.test.BackendTest`), one model at a time.

What the suite leaves to the run and a microcontroller's C has to know:

- *Values that shape the code* (the axes of a reduction, the starts of a slice). mtool names such an input and
  refuses; it becomes a constant with `--const`. `onnx_backend.prepare` waits for the first run, makes constants of
  exactly the inputs that are asked for, and makes another program for a run with other values.
- *Shapes that depend on data* (NonZero, Unique, Compress, NonMaxSuppression, TopK with a computed k). The most that
  there may be is stated with `--max NAME=N`, by the name of the operator's output or of its dimension: that is the
  shape in C, more is left out, and for each output `y` of the model whose size follows from it there is another,
  `y_count`, that says how many elements are there. `onnx_backend` takes the shape that the model declares, or else
  as many elements as there can be, and gives the outputs their true size.
- *Symbolic dimensions* are bound with `--dim`, or stay open up to a largest size with `--max`
  ([run-time-sizes.md](run-time-sizes.md)); those that are -1 count as symbolic. `onnx_backend` takes the sizes of
  the run's inputs.
- *Images* (ImageDecoder) are decoded when the model is compiled, by Pillow: they are constants, as values that shape
  the code are.
- *Classical models* (ai.onnx.ml) give tensors only: of a ZipMap, the tensor of its values in the order of the labels.
- *Declared shapes* count where a shape depends on an input that is known only when it runs (Reshape, Tile): the C has
  the declared shape, whatever that input says then. Elsewhere what the operators' own rules say counts, and a model
  whose nodes contradict them is refused.
- *Loops* are loops in C, of any number of rounds ([control-flow.md](control-flow.md)). Where an output has a row for
  each round and their number depends on data, `--max NAME=N` states the most, by the name of an output of the loop.

Where the standard leaves something open, or its reference evaluator and onnxruntime differ, results are onnxruntime's,
with which `mtool verify` compares:

- *Resize* takes the whole number of elements for the length of its result (align_corners, tf_crop_and_resize,
  pytorch_half_pixel), and float32 coordinates decide which neighbour is nearest.
- *Pools* with ceil_mode have no window that begins in the padding at the end, in any opset; with auto_pad SAME,
  dilations do not count for the padding, and count_include_pad counts it.
- *Tensors without elements*: a sum or mean of nothing is 0, a product 1, a maximum the lowest number (-inf of floats),
  an integer product over nothing 0. A tensor without elements has a pointer in the interface, which is not read.
- *NaN* is quantised to the lowest integer.
- *A function of the model's own* that has the domain and name of an operator is not called: the operator is, if the
  model's opset has it, or if it is one of com.microsoft's that mtool knows.

And where they are not onnxruntime's: with tf_crop_and_resize, onnxruntime leaves out the region of interest along axes
that keep their size; a recurrent layer of no steps returns its initial state, not 0; MeanVarianceNormalization of
equal values (a channel that a coarse grid made constant) is 0, where onnxruntime divides 0 by 0 and the rounding of
ONNX's reference decides; softplus, sigmoid and Mish keep their relative precision far below 0.

With *NaN*, onnxruntime's result may depend on its place among the elements. Here a maximum or minimum (ReduceMax,
ReduceMin, pools) of values among which is a NaN is NaN, as in ONNX's reference; ArgMax, ArgMin and Hardmax take the
first place (the last, if that is asked for); which elements TopK takes is open; a NaN coordinate of GridSample reads 0,
an edge, or gives NaN, by its padding mode. A constant NaN bounds nothing in a Clip, as in onnxruntime; one that comes
with the data makes the result NaN, as in ONNX's reference.
"""


def page(cases: Sequence[Case], outcomes: Sequence[Outcome]) -> str:
    """Return the text of the page."""
    lines = [INTRODUCTION, "| tests | pass | of |", "|---|--:|--:|"]
    pairs = zip(cases, outcomes, strict=True)
    narrow = [(case, outcome) for case, outcome in pairs if case.group == "node" and is_narrow(case)]
    for group in GROUPS:
        results = [not outcome.reason for case, outcome in zip(cases, outcomes, strict=True) if case.group == group]
        lines.append(f"| {group} | {sum(results):,} | {len(results):,} |")
        if group == "node":
            results = [not outcome.reason for case, outcome in narrow]
            lines.append(f"| node, of elements up to bfloat16 and int4 | {sum(results):,} | {len(results):,} |")
    lines += [
        "",
        "## By operator",
        "",
        "Node tests; those of a function written out count for the operator itself.",
        "",
    ]
    lines += ["| operator | pass | of |", "|---|--:|--:|"]
    passed, total = Counter[str](), Counter[str]()
    for case, outcome in zip(cases, outcomes, strict=True):
        if case.group == "node":
            total[case.subject] += 1
            passed[case.subject] += not outcome.reason
    lines += [f"| {name} | {passed[name]} | {total[name]} |" for name in sorted(total)]
    lines += ["", "## What does not pass", "", "| test | why |", "|---|---|"]
    lines += [f"| {name} | {why} |" for name, why in sorted(NOT_PASSED.items())]
    lines += ["", "## Beyond ai.onnx", "", "Their tests, against onnxruntime, are in tests/compiler/kernels.", ""]
    others = sorted(key for key, operator in operators().items() if operator.expand or operator.domain == CLASSICAL)
    for domain in ("ai.onnx.ml", "com.microsoft"):
        lines += [f"{domain}: " + ", ".join(name for owner, name in others if owner == domain) + ".", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    found = all_cases()
    PAGE.write_text(page(found, run_all(found)))
