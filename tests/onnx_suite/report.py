"""Write docs/operators.md from a run of the suite: `python -m tests.onnx_suite.report`."""

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

Which of ONNX's tests pass, what mtool needs for operators whose shapes or code depend on data, and where results may
differ from ONNX's reference. `python -m tests.onnx_suite.report` writes this page from a run of the tests in the
`onnx` package; don't edit it.

A test counts here if its inputs and outputs are tensors of numbers or bool, and if it uses neither random numbers nor
training. Each model is compiled to C without further options, run on the host with sanitizers, and compared at the
suite's tolerances. One test of each operator, and 200 of the node tests in `make test-all`, also run on an emulated
Cortex-M4 (`mps2_an386`).
"""
NOTES = """
## What the compiler needs in advance

The suite leaves the following to the run, but the C code for a microcontroller needs it at compile time
(`mtool.plugins.onnx_backend` takes it from the first run):

- *Values that determine the code*, such as a reduction's axes or a slice's starts: mtool refuses the model and names
  the input, which `--const` turns into a constant.
- *Data-dependent shapes* (NonZero, Unique, Compress, NonMaxSuppression, TopK with a computed k): `--max NAME=N`
  states the maximum, where NAME is the operator's output or its dimension. Further elements are dropped. Each model
  output `y` with such a size has a second output `y_count` with the number of elements.
- *Symbolic dimensions* (also -1): bind them with `--dim`, or keep them variable up to a maximum with `--max`
  ([run-time sizes](run-time-sizes.md)).
- *Images* (ImageDecoder): Pillow decodes them at compile time, so they are constants.
- *Classical models* (ai.onnx.ml) return only tensors: a ZipMap returns the tensor of its values in the order of the
  labels.
- *Declared shapes*: if a shape depends on an input that is known only at run time (Reshape, Tile), the C uses the
  declared shape. Otherwise the operators' own rules apply, and mtool refuses a model whose nodes contradict them.
- *Loops* are C loops with any number of iterations ([control flow](control-flow.md)).

## Where the standard is ambiguous

If the standard leaves something open, or its reference evaluator and onnxruntime differ, mtool computes onnxruntime's
result, with which `mtool verify` compares:

- *Resize* calculates with the result's actual, integer length (align_corners, tf_crop_and_resize,
  pytorch_half_pixel), and with float32 coordinates to find the nearest neighbor.
- *Pools* with ceil_mode have no window that starts in the padding at the end, in any opset. With auto_pad SAME, the
  padding ignores dilations, and count_include_pad includes it.
- *Empty tensors*: the sum or mean of no elements is 0, their product 1, and their maximum the lowest number (-inf for
  floats). An empty tensor has a pointer in the interface, which is not read.
- *NaN* is quantized to the lowest integer.
- *A model's own function* with the domain and name of an operator is ignored if the model's opset has that operator,
  or if it is one of mtool's com.microsoft operators.

mtool differs from onnxruntime in these cases:

- With tf_crop_and_resize, onnxruntime ignores the region of interest along axes that keep their size.
- MatMulNBits multiplies floats, whatever its accuracy_level: with 4, onnxruntime rounds activations to int8.
  `mtool verify` compares with level 0.
- A recurrent layer with zero steps returns its initial state instead of 0.
- MeanVarianceNormalization of equal values (a channel that coarse quantization made constant) is 0. onnxruntime
  divides 0 by 0; in ONNX's reference, the result depends on rounding.
- Softplus, sigmoid and Mish keep their relative precision far below 0.

With *NaN*, onnxruntime's result may depend on the position of the NaN. mtool computes:

| operators | result |
|---|---|
| ReduceMax, ReduceMin, pools | NaN if any value is NaN, as in ONNX's reference |
| ArgMax, ArgMin, Hardmax | the position of the first NaN, or of the last if the operator selects the last |
| TopK | unspecified |
| GridSample with a NaN coordinate | 0, an edge value or NaN, depending on the padding mode |
| Clip | a constant NaN bound has no effect; a NaN bound from data makes the result NaN, as in ONNX's reference |
"""


def page(cases: Sequence[Case], outcomes: Sequence[Outcome]) -> str:
    """Return the text of the page."""
    lines = [INTRODUCTION, "## Results", "", "| tests | pass | of |", "|---|--:|--:|"]
    pairs = zip(cases, outcomes, strict=True)
    narrow = [(case, outcome) for case, outcome in pairs if case.group == "node" and is_narrow(case)]
    for group in GROUPS:
        results = [not outcome.reason for case, outcome in zip(cases, outcomes, strict=True) if case.group == group]
        lines.append(f"| {group} | {sum(results):,} | {len(results):,} |")
        if group == "node":
            results = [not outcome.reason for case, outcome in narrow]
            lines.append(f"| node, without 2-bit integers, float8 and float4 | {sum(results):,} | {len(results):,} |")
    lines += [
        NOTES,
        "## By operator",
        "",
        "Node tests. Tests of an operator that is expanded into its function count for the operator.",
        "",
    ]
    lines += ["| operator | pass | of |", "|---|--:|--:|"]
    passed, total = Counter[str](), Counter[str]()
    for case, outcome in zip(cases, outcomes, strict=True):
        if case.group == "node":
            total[case.subject] += 1
            passed[case.subject] += not outcome.reason
    lines += [f"| {name} | {passed[name]} | {total[name]} |" for name in sorted(total)]
    lines += ["", "## Tests that fail", "", "| test | reason |", "|---|---|"]
    lines += [f"| {name} | {why} |" for name, why in sorted(NOT_PASSED.items())]
    lines += ["", "## Beyond ai.onnx", ""]
    lines += ["The tests in tests/compiler/kernels compare these operators with onnxruntime.", ""]
    others = sorted(key for key, operator in operators().items() if operator.expand or operator.domain == CLASSICAL)
    for domain in ("ai.onnx.ml", "com.microsoft", "qonnx.custom_op.general"):
        lines += [f"{domain}: " + ", ".join(name for owner, name in others if owner == domain) + ".", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    found = all_cases()
    PAGE.write_text(page(found, run_all(found)))
