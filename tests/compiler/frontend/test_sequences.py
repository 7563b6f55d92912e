"""Sequences through loops and branches, against onnxruntime."""

import numpy as np
import onnx
import onnx.parser
import pytest

from mtool.base.errors import ModelError
from mtool.plugins import onnx_backend

ort = pytest.importorskip("onnxruntime")
X = np.linspace(-1, 1, 6, dtype=np.float32)
ROUND = "int64 i, bool c"

MODELS = {
    "appended to in each round": f"""g (float[6] x, bool yes) => (float[6, 4] y) <int64 n = {{4}}> {{
        s0 = SequenceEmpty <dtype = 1> ()
        s = Loop (n, "", s0) <body = b ({ROUND}, seq(float[6]) a) => (bool d, seq(float[6]) r) {{
            d = Identity (c) f = Cast <to = 1> (i) v = Mul (x, f) r = SequenceInsert (a, v) }}>
        y = ConcatFromSequence <axis = 1, new_axis = 1> (s) }}""",
    "passed on": f"""g (float[6] x, bool yes) => (float[12] y) <int64 n = {{3}}> {{
        e = Exp (x) s0 = SequenceConstruct (x, e) s1 = Identity (s0)
        s = Loop (n, "", s1) <body = b ({ROUND}, seq(float[6]) a) => (bool d, seq(float[6]) r) {{
            d = Identity (c) r = Identity (a) }}>
        y = ConcatFromSequence <axis = 0> (s) }}""",
    "of a branch": """g (float[6] x, bool yes) => (float[12] y, float[6] z) {
        s, z = If (yes) <
            then_branch = t () => (seq(float[6]) a, float[6] p) {
                e = Exp (x) a = SequenceConstruct (x, e) p = Sin (x) },
            else_branch = q () => (seq(float[6]) b, float[6] r) {
                n = Neg (x) b = SequenceConstruct (n, x) r = Cos (x) }>
        y = ConcatFromSequence <axis = 0> (s) }""",
}


def model(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')


@pytest.mark.parametrize("name", MODELS)
def test_it_computes_what_onnxruntime_does(name: str) -> None:
    proto = model(MODELS[name])
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    for yes in (True, False):
        feeds = {"x": X, "yes": np.array(yes)}
        wanted = session.run(None, {value.name: feeds[value.name] for value in session.get_inputs()})
        for found, expected in zip(onnx_backend.run_model(proto, [*feeds.values()]), wanted, strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_sequences_of_different_lengths() -> None:
    with pytest.raises(ModelError) as caught:
        onnx_backend.run_model(model(MODELS["of a branch"].replace("(n, x)", "(n)")), [X, np.array(True)])
    assert "its branches return sequences of different lengths, 2 and 1" in caught.value.details[0]
