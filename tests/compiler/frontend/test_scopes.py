"""Names in bodies and functions at every depth, checked by folding constants against onnxruntime."""

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import parser

from mtool.base.errors import ModelError
from mtool.compiler.frontend import ModelOptions, from_proto
from mtool.plugins import onnx_backend

ort = pytest.importorskip("onnxruntime")

X = np.array([[-1.5, 2.0, 0.25, 3.0]], np.float32)


def parsed(text: str, opset: int = 17) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}, "f" : 1]> {text}')


def expected(proto: onnx.ModelProto) -> np.ndarray:
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": X})[0]


def nested(depth: int, condition: str) -> str:
    """An If in an If …, each of which makes a value that the innermost reads, as it does the model's input."""
    sums = " ".join(f"s{n} = Add (s{n - 1}, v{n})" for n in range(2, depth + 1))
    text = f"s1 = Identity (v1) {sums} o = Mul (s{depth}, x)"
    for level in range(depth, 0, -1):
        other = f"else_branch = e{level} () => (float[1, 4] n{level}) {{ n{level} = Neg (x) }}"
        taken = f"then_branch = t{level} () => (float[1, 4] {'o' if level == depth else f'o{level}'})"
        text = f"v{level} = Sigmoid ({f'v{level - 1}' if level > 1 else 'x'}) " + text
        text = f"o{level - 1} = If ({condition}) <{other}, {taken} {{ {text} }}>"
    return f"g (float[1, 4] x) => (float[1, 4] o0) <bool yes = {{1}}, float low = {{-9}}> {{ {text} }}"


@pytest.mark.parametrize("depth", [1, 2, 3, 4, 7])
def test_an_if_reads_what_is_around_it(depth: int) -> None:
    proto = parsed(nested(depth, "yes"))
    found = from_proto(proto, "m", ModelOptions(constants={"x": X}))
    np.testing.assert_allclose(found.constants["o0"], expected(proto), rtol=1e-6)


def test_an_if_that_is_chosen_when_it_runs() -> None:
    text = nested(4, "go").replace("{ o0", "{ least = ReduceMin <keepdims = 0> (x) go = Greater (least, low) o0")
    proto = parsed(text)
    np.testing.assert_allclose(onnx_backend.prepare(proto).run([X])[0], expected(proto), rtol=1e-6)


LOOP = """
    t = Loop (n, "", x) <body = b (int64 i, bool c, float[1, 4] a) => (bool d, float[1, 4] r) {
        d = Identity (c)
        p = Mul (a, half)
        r = Loop (n, "", p) <body = b2 (int64 i2, bool c2, float[1, 4] a2) => (bool d2, float[1, 4] r2) {
            d2 = Identity (c2)
            k = Cast <to = 1> (i)
            k2 = Cast <to = 1> (i2)
            w = Add (k, k2)
            u = Add (a2, a)
            r2 = Sub (u, w)
        }>
    }>
"""
FUNCTIONS = {
    "a function": (
        "y = f.two (x)",
        "two (p) => (q) { q = Add (p, p) }",
    ),
    "of functions": (
        "a = f.four (x) y = f.four (a)",
        "two (p) => (q) { q = Add (p, p) }",
        "four (p) => (q) { m = f.two (p) q = f.two (m) }",
    ),
    "attributes": (
        "a = f.leaky <slope = 0.5> (x) y = f.leaky (a)",
        "leaky <slope: float = 0.125> (p) => (q) { q = LeakyRelu <alpha: float = @slope> (p) }",
    ),
    "an attribute without a value": (
        "y = f.leaky (x)",
        "leaky <slope> (p) => (q) { q = LeakyRelu <alpha: float = @slope> (p) }",
    ),
    "an input that is not given": (
        'y = f.clip (x, "", half)',
        "clip (p, low, high) => (q) { q = Clip (p, low, high) }",
    ),
    "a parameter that is given back": (
        "a, y = f.both (x)",
        "both (p) => (q, r) { q = Neg (p) r = Identity (p) }",
    ),
    "a branch that reads a parameter": (
        "y = f.pick (x, yes)",
        """pick (p, c) => (q) {
            m = Exp (p)
            q = If (c) <then_branch = t () => (o) { o = Add (m, p) }, else_branch = e () => (u) { u = Neg (p) }>
        }""",
    ),
    "an attribute in a branch": (
        "y = f.pick <slope = 0.25> (x, yes)",
        """pick <slope> (p, c) => (q) {
            q = If (c) <then_branch = t () => (o) { o = LeakyRelu <alpha: float = @slope> (p) },
                        else_branch = e () => (u) { u = Neg (p) }>
        }""",
    ),
    "a loop in a function, called twice": (
        "a = f.grow (x, n, half) y = f.grow (a, n, half)",
        "grow (x, n, half) => (t) {" + LOOP + "}",
    ),
    "a function in a loop": (
        """y = Loop (n, "", x) <body = b (int64 i, bool c, float[1, 4] a) => (bool d, float[1, 4] r) {
            d = Identity (c)
            m = f.two (a)
            r = Sub (m, x)
        }>""",
        "two (p) => (q) { q = Add (p, p) }",
    ),
    "names that are those of the model": (
        "half_2 = Neg (x) p = Exp (x) y = f.two (half_2, p)",
        "two (x, half) => (p) { q = Add (x, half) p = Mul (q, x) }",
    ),
}  # fmt: skip


def with_functions(body: str, functions: Sequence[str]) -> onnx.ModelProto:
    constants = "float half = {0.5}, int64 n = {3}, bool yes = {1}"
    found = "".join(f'<domain: "f", opset_import: ["" : 17, "f" : 1]> {one} ' for one in functions)
    return parsed(f"g (float[1, 4] x) => (float[1, 4] y) <{constants}> {{ {body} }} {found}")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    body, *functions = FUNCTIONS[name]
    proto = with_functions(body, functions)
    found = from_proto(proto, "m", ModelOptions(constants={"x": X}))
    np.testing.assert_allclose(found.constants["y"], expected(proto), rtol=1e-6)
    assert from_proto(proto, "m").nodes


def test_a_function_is_compiled_without_the_inliner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(onnx, "inliner", raising=False)
    assert (
        len(from_proto(with_functions(*[FUNCTIONS["of functions"][0], FUNCTIONS["of functions"][1:]]), "m").nodes) == 4
    )


def test_a_loop_in_a_loop_reads_what_is_around_it() -> None:
    proto = with_functions(LOOP.replace("t = Loop", "y = Loop", 1), [])
    found = from_proto(proto, "m", ModelOptions(constants={"x": X}))
    np.testing.assert_allclose(found.constants["y"], expected(proto), rtol=1e-6)


def test_a_scan_in_a_branch() -> None:
    proto = parsed("""
        g (float[1, 4] x) => (float[4] y) <bool yes = {1}, float[1] zero = {0}, int64[1] first = {0}> {
            row = Squeeze (x, first)
            y = If (yes) <then_branch = t () => (float[4] o) {
                last, o = Scan <num_scan_inputs = 1, body = b (float[1] s, float e) => (float[1] s2, float q) {
                    m = ReduceMax <keepdims = 0> (x)
                    p = Mul (e, m)
                    s2 = Add (s, p)
                    q = Squeeze (s2, first)
                }> (zero, row)
            }, else_branch = n () => (float[4] u) { u = Neg (row) }>
        }
    """)
    found = from_proto(proto, "m", ModelOptions(constants={"x": X}))
    np.testing.assert_allclose(found.constants["y"], expected(proto), rtol=1e-6)


def test_a_function_does_not_read_the_models_values() -> None:
    proto = with_functions("y = f.two (x)", ["two (p) => (q) { q = Add (p, half) }"])
    with pytest.raises(ModelError):
        from_proto(proto, "m")


def test_a_value_whose_name_looks_like_one_of_a_body() -> None:
    proto = parsed(nested(2, "yes"))
    plain = from_proto(proto, "m", ModelOptions(constants={"x": X})).constants["o0"]
    inner = next(name for name in from_proto(proto, "m").types if "/" in name)
    proto.graph.node[0].output[0] = "made"
    proto.graph.node.add(op_type="Neg", input=["x"], output=[inner])
    proto.graph.node.add(op_type="Sub", input=["made", inner], output=["o0"])
    found = from_proto(proto, "m", ModelOptions(constants={"x": X})).constants["o0"]
    np.testing.assert_allclose(found, plain + X, rtol=1e-6)


@pytest.mark.parametrize("op", ["GreaterOrEqual", "LessOrEqual"])
@pytest.mark.parametrize("opset", [12, 13, 15, 16])
def test_comparisons_that_older_opsets_infer_nothing_of(op: str, opset: int) -> None:
    proto = parsed(
        f"""g (float[1, 4] x) => (float[1, 4] y) <float[4] other = {{-1.5, 1, 0.25, 4}}, float none = {{0}}> {{
            c = {op} (x, other)
            y = Where (c, x, none)
        }}""",
        opset,
    )
    np.testing.assert_array_equal(
        from_proto(proto, "m", ModelOptions(constants={"x": X})).constants["y"], expected(proto)
    )
    assert [node.op for node in from_proto(proto, "m").nodes] == [op, "Where"]


def test_functions_of_onnx_whose_shapes_nothing_infers() -> None:
    proto = parsed(
        "g (float[1, 2, 2, 2] x) => (float[a, b, c, d] y) { m = MeanVarianceNormalization (x) y = Neg (m) }", 13
    )
    assert str(from_proto(proto, "m").types["y"]) == "float32[1,2,2,2]"
