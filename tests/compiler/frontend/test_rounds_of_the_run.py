"""Errors of loops: a run-time number of rounds is not ignored, a custom operator is not taken for Identity."""

import numpy as np
import onnx
import onnx.parser
import pytest

from mtool.base.errors import ModelError, NeedsValues
from mtool.compiler.frontend import ModelOptions
from mtool.plugins import onnx_backend
from mtool.plugins.onnx_backend import batch

ort = pytest.importorskip("onnxruntime")

X = np.linspace(-1, 1, 6, dtype=np.float32)
BODY = "b (int64 i, bool c, float[m] a) => (bool d, float[k] r)"


def model(text: str, others: str = "", functions: str = "") -> onnx.ModelProto:
    proto = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17{others}]> {text} {functions}')
    onnx.checker.check_model(proto)
    return proto


def grows(condition: str) -> onnx.ModelProto:
    """A loop that appends x to what it carries: of as many rounds as the run says."""
    return model(
        f"""g (float[6] x, int64 n) => (float[l] y) <int64 two = {{2}}> {{
            y = Loop (n, "", x) <body = {BODY} {{ d = {condition} r = Concat <axis = 0> (a, x) }}> }}"""
    )


def test_rounds_that_only_the_run_knows_are_not_written_out_because_the_body_would_end_them() -> None:
    with pytest.raises(NeedsValues) as caught:
        batch.to_c(grows("Less (i, two)"), "m")
    assert caught.value.inputs == ("n",)


@pytest.mark.parametrize("rounds", [0, 1, 2, 9])
def test_rounds_known_at_compile_time_are_unrolled(rounds: int) -> None:
    proto, feeds = grows("Less (i, two)"), [X, np.array(rounds, np.int64)]
    wanted = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = wanted.run(None, {"x": feeds[0], "n": feeds[1]})
    found = onnx_backend.run_model(proto, feeds, constants={"n": feeds[1]})
    np.testing.assert_array_equal(found[0], expected[0])


def test_what_has_to_be_known_is_named_and_no_limit_that_would_not_help() -> None:
    with pytest.raises(NeedsValues) as caught:
        batch.to_c(grows("Identity (c)"), "m")
    assert "from float32[6] to float32[12] in a round; its input 'M' must be a constant" in caught.value.details[0]
    assert "--const n=" in str(caught.value.hint)


@pytest.mark.parametrize("condition", ["Identity (c)", "Not (no)", "Or (c, c)"])
def test_a_loop_that_visibly_never_ends(condition: str) -> None:
    proto = model(
        f"""g (float[6] x) => (float[6] y) <bool yes = {{1}}, bool no = {{0}}> {{
            y = Loop ("", yes, x) <body = {BODY} {{ d = {condition} r = Sin (a) }}> }}"""
    )
    with pytest.raises(ModelError) as caught:
        batch.to_c(proto, "m")
    assert "it never ends" in caught.value.details[0]


def test_a_function_called_identity() -> None:
    proto = model(
        f"""g (float[6] x, int64 n) => (float[6] y) {{
            y = Loop (n, "", x) <body = {BODY} {{ d = Identity (c) r = acme.Identity (a) }}> }}""",
        ', "acme" : 1',
        '<domain: "acme", opset_import: ["" : 17]> Identity (p) => (q) { q = Add (p, p) }',
    )
    found = onnx_backend.run_model(proto, [X, np.array(3, np.int64)])
    np.testing.assert_array_equal(found[0], 8 * X)


def test_branches_whose_sizes_depend_on_data_have_one_largest_size() -> None:
    proto = model(
        """g (bool c, float[2,3] x, float[2,4] z) => (int64[2,k] y) {
            y = If (c) <then_branch = t () => (int64[2,p] a) { a = NonZero (x) },
                        else_branch = e () => (int64[2,q] b) { b = NonZero (z) }> }"""
    )
    with pytest.raises(ModelError) as caught:
        batch.to_c(proto, "m", ModelOptions(maxima={"y/a": 6, "y.1/b": 8}))
    assert "types, int64[2,6] and int64[2,8]; give the same --max in both" in caught.value.details[0]
    assert batch.to_c(proto, "m", ModelOptions(maxima={"y/a": 8, "y.1/b": 8}))


def test_rows_of_no_round_have_nothing_whose_number_depends_on_data() -> None:
    proto = model(
        """g (float[2,3] x) => (int64[r,2,k] y) <int64 trips = {2}, bool no = {0}> {
            y = Loop (trips, no) <body = b (int64 i, bool c) => (bool d, int64[2,p] r) {
                d = Identity (c) r = NonZero (x) }> }"""
    )
    x = np.ones((2, 3), np.float32)
    (expected,) = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"]).run(
        None, {"x": x}
    )
    found = onnx_backend.run_model(proto, [x], maxima={"y/r": 4})
    assert found[0].shape == expected.shape == (0, 2, 0)
