"""Models with data-dependent control flow, each with inputs for both ways."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnx.checker
import onnx.parser

F, LONG = np.float32, np.int64
X = np.linspace(-1, 1, 6, dtype=F)
WEIGHTS = "float[6, 8] W = {" + ",".join(f"{n * 37 % 19 / 19 - 0.5:.3f}" for n in range(48)) + "}"
BACK = "float[8, 6] V = {" + ",".join(f"{n * 23 % 17 / 17 - 0.5:.3f}" for n in range(48)) + "}"
ROUND = "int64 i, bool c"


@dataclass(frozen=True)
class Case:
    """A model as text, its runs, and what is stated besides."""

    text: str
    feeds: tuple[dict[str, Any], ...]
    maxima: dict[str, int] = field(default_factory=dict)
    opset: int = 17

    @property
    def proto(self) -> onnx.ModelProto:
        """The model, checked."""
        made = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {self.opset}]> {self.text}')
        onnx.checker.check_model(made)
        return made


def yes_and_no(**others: Any) -> tuple[dict[str, Any], ...]:
    """Return runs with either condition."""
    return tuple({"x": X, "yes": np.array(yes), **others} for yes in (True, False))


def trips(*numbers: int) -> tuple[dict[str, Any], ...]:
    """Return runs with these numbers of rounds."""
    return tuple({"x": X, "n": np.array(number, LONG)} for number in numbers)


def _nested(depth: int) -> str:
    """Ifs inside one another that read what each makes, and what is outside of all."""
    inner = "y0 = Mul (x, v0)"
    for level in range(depth):
        inner = f"""v{level} = Add ({f"v{level + 1}" if level + 1 < depth else "x"}, x)
            y{level + 1} = If (c{level}) <
                then_branch = t{level} () => (float[6] y{level}) {{ {inner} }},
                else_branch = e{level} () => (float[6] e{level}) {{ e{level} = Sub (v{level}, x) }}>"""
    conditions = " ".join(f"b{n} = Gather (x, k{n}) c{n} = Greater (b{n}, zero)" for n in range(depth))
    numbers = ", ".join(f"int64 k{n} = {{{n}}}" for n in range(depth))
    return (
        f"g (float[6] x) => (float[6] y) <float zero = {{0}}, {numbers}> {{ {conditions} {inner} y = Neg (y{depth}) }}"
    )


_LSTM = ", ".join(
    f"float[1, 12, 3] {name} = {{" + ",".join(f"{n * step % 13 / 13 - 0.5:.3f}" for n in range(36)) + "}"
    for name, step in (("LW", 5), ("LR", 7))
)


def _on_grid(name: str, output: str, scale: str = "s") -> str:
    """Quantize a value and dequantize it again."""
    return f"{output}_q = QuantizeLinear ({name}, {scale}, z) {output} = DequantizeLinear ({output}_q, {scale}, z)"


def _integers(kind: str, zero: int) -> Case:
    """An If, a Loop and a Loop with rows in QDQ form; what is dequantized outside of them is quantized inside."""
    row, q = "float[1, 6]", _on_grid
    return Case(
        f"""g ({row} x, bool yes, int64 n) => ({row} y, float[12, 1, 6] rows)
            <float s = {{0.0213}}, {kind} z = {{{zero}}}, float t = {{0.0317}}, int8 zw = {{0}}, {WEIGHTS}, {BACK},
             int64 twelve = {{12}}, {row} none = {{0, 0, 0, 0, 0, 0}}> {{
            wq = QuantizeLinear (W, s, zw) w = DequantizeLinear (wq, s, zw)
            vq = QuantizeLinear (V, s, zw) v = DequantizeLinear (vq, s, zw)
            {q("x", "h", "t")}
            f0 = If (yes) <
                then_branch = tb () => ({row} p) {{ a = MatMul (h, w) {q("a", "b")} c = MatMul (b, v) {q("c", "p")} }},
                else_branch = eb () => ({row} e) {{ d = Add (h, h) {q("d", "e")} }}>
            {q("f0", "f")}
            l = Loop (n, "", f) <body = lb ({ROUND}, {row} a) => (bool d, {row} r) {{
                d = Identity (c) {q("a", "b")} m = MatMul (b, w) {q("m", "o")} p = MatMul (o, v) u = Add (p, f)
                {q("u", "r")} }}>
            {q("l", "k")}
            y, last, rows = Loop (twelve, "", k, none) <body = sb ({ROUND}, {row} a, {row} b)
                => (bool d, {row} r, {row} u, {row} o) {{
                d = Identity (c) m = MatMul (a, w) {q("m", "mq")} p = MatMul (mq, v) {q("p", "r")} g = Add (b, r)
                {q("g", "u")} i1 = Relu (u) {q("i1", "o")} }}> }}""",
        tuple({"x": x * X.reshape(1, 6), "yes": np.array(yes), "n": np.array(n, LONG)}
              for x, yes, n in ((F(1), True, 0), (F(0.7), False, 3), (F(1.3), True, 9))),
    )  # fmt: skip


CASES: dict[str, Case] = {
    "an if": Case(
        f"""g (float[6] x, bool yes) => (float[6] y) <{WEIGHTS}, {BACK}> {{
            y0 = If (yes) <
                then_branch = t () => (float[6] p) {{ a = MatMul (x, W) b = Relu (a) p = MatMul (b, V) }},
                else_branch = e () => (float[6] q) {{ q = Tanh (x) }}>
            y = Neg (y0) }}""",
        yes_and_no(),
    ),
    "a condition of one element": Case(
        """g (float[6] x, bool[1] yes) => (float[6] y) {
            y = If (yes) <
            then_branch = t () => (float[6] p) { p = Exp (x) },
                else_branch = e () => (float[6] q) { q = Abs (x) }> }""",
        tuple({"x": X, "yes": np.array([yes])} for yes in (True, False)),
    ),
    "outputs that are a capture, a constant, another output": Case(
        """g (float[6] x, bool yes) => (float[6] a, float[2] b, float[6] c)
            <float[2] one = {1, 2}, float[2] two = {3, 4}> {
            a, b, c = If (yes) <
                then_branch = t () => (float[6] ta, float[2] tb, float[6] tc)
                    { ta = Identity (x) tb = Identity (one) tc = Identity (x) },
                else_branch = e () => (float[6] ea, float[2] eb, float[6] ec)
                    { ea = Neg (x) eb = Identity (two) ec = Identity (ea) }> }""",
        yes_and_no(),
    ),
    "an output that nothing reads": Case(
        """g (float[6] x, bool yes) => (float[6] y) {
            y, z = If (yes) <
                then_branch = t () => (float[6] ta, float[6] tb) { ta = Sin (x) tb = Cos (x) },
                else_branch = e () => (float[6] ea, float[6] eb) { ea = Neg (x) eb = Exp (x) }> }""",
        yes_and_no(),
    ),
    "tensors without elements": Case(
        """g (float[6] x, bool yes) => (float[0, 3] y, float[6] z) <float[0, 3] none = {}> {
            y, z = If (yes) <
                then_branch = t () => (float[0, 3] ta, float[6] tb) { ta = Identity (none) tb = Identity (x) },
                else_branch = e () => (float[0, 3] ea, float[6] eb) { ea = Neg (none) eb = Exp (x) }> }""",
        yes_and_no(),
    ),
    "quantized in both branches": Case(
        f"""g (float[1, 6] x, bool yes) => (float[1, 6] y) <{WEIGHTS}, {BACK}, float s = {{0.01}}, int8 z = {{3}}> {{
            xq = QuantizeLinear (x, s, z)
            xf = DequantizeLinear (xq, s, z)
            y0 = If (yes) <
                then_branch = t () => (float[1, 6] p) {{
                    wq = QuantizeLinear (W, s, z) w = DequantizeLinear (wq, s, z)
                    a = MatMul (xf, w) aq = QuantizeLinear (a, s, z) b = DequantizeLinear (aq, s, z)
                    vq = QuantizeLinear (V, s, z) v = DequantizeLinear (vq, s, z) p = MatMul (b, v) }},
                else_branch = e () => (float[1, 6] q) {{ q = Add (xf, xf) }}>
            yq = QuantizeLinear (y0, s, z)
            y = DequantizeLinear (yq, s, z) }}""",
        tuple({**feeds, "x": X.reshape(1, 6)} for feeds in yes_and_no()),
    ),
    "integers across all borders": _integers("int8", 3),
    "unsigned integers across all borders": _integers("uint8", 130),
    "four deep": Case(_nested(4), tuple({"x": np.where(np.arange(6) == n, -X - 2, X + 2).astype(F)} for n in range(5))),
    "how many in each branch": Case(
        """g (float[6] x, bool yes) => (int64[2, n] y) {
            y = If (yes) <
                then_branch = t () => (int64[2, m] p) { a = Reshape <allowzero = 0> (x, s) p = NonZero (a) },
                else_branch = e () => (int64[2, k] q) { b = Relu (x) r = Reshape (b, s) q = NonZero (r) }> }""".replace(
            "{\n            y", "<int64[2] s = {2, 3}> {\n            y"
        ),
        yes_and_no(),
        {"y/p": 6, "y.1/q": 6},
    ),
    "rounds that the run knows": Case(
        f"""g (float[6] x, int64 n) => (float[6] y) <float k = {{0.9}}> {{
            y = Loop (n, "", x) <body = b ({ROUND}, float[6] a) => (bool d, float[6] r) {{
                d = Identity (c) f = Cast <to = 1> (i) p = Mul (a, k) q = Add (p, f) r = Sin (q) }}> }}""",
        trips(0, 1, 7, 10_000),
    ),
    "ten thousand rounds, with rows": Case(
        f"""g (float[6] x) => (float[6] y, float[10000, 2] rows) <float k = {{0.9}}, int64 n = {{10000}},
            int64[1] zero = {{0}}, int64[1] two = {{2}}> {{
            y, rows = Loop (n, "", x) <body = b ({ROUND}, float[6] a) => (bool d, float[6] r, float[2] row) {{
                d = Identity (c) p = Mul (a, k) q = Add (p, k) r = Sin (q) row = Slice (r, zero, two) }}> }}""",
        ({"x": X},),
    ),
    "while": Case(
        f"""g (float[6] x, float limit) => (float[6] y, int64 count)
            <bool yes = {{1}}, int64 zero = {{0}}, int64 one = {{1}}, int64 never = {{9223372036854775807}},
            float k = {{1.25}}> {{
            y, count = Loop (never, yes, x, zero) <body = b ({ROUND}, float[6] a, int64 t)
                => (bool d, float[6] r, int64 u) {{
                r = Mul (a, k) m = ReduceMax <keepdims = 0> (r) d = Less (m, limit) u = Add (t, one) }}> }}""",
        tuple({"x": X, "limit": np.array(limit, F)} for limit in (-1, 2, 1e9)),
    ),
    "a condition that is false at first": Case(
        f"""g (float[6] x, bool yes, int64 n) => (float[6] y) {{
            y = Loop (n, yes, x) <body = b ({ROUND}, float[6] a) => (bool d, float[6] r) {{
                d = Identity (c) r = Add (a, a) }}> }}""",
        yes_and_no(n=np.array(3, LONG)),
    ),
    "as many rows as the data say": Case(
        f"""g (float[6] x, float limit) => (float[6] y, float[n, 6] rows) <bool yes = {{1}}, float k = {{1.5}}> {{
            y, rows = Loop ("", yes, x) <body = b ({ROUND}, float[6] a) => (bool d, float[6] r, float[6] row) {{
                r = Mul (a, k) m = ReduceMax <keepdims = 0> (r) d = Less (m, limit) row = Sin (r) }}> }}""",
        tuple({"x": X, "limit": np.array(limit, F)} for limit in (0, 2, 50)),
        {"rows": 12},
    ),
    "swapped": Case(
        f"""g (float[6] x, int64 n) => (float[6] y, float[6] z) {{
            w = Exp (x)
            y, z = Loop (n, "", x, w) <body = b ({ROUND}, float[6] a, float[6] b) => (bool d, float[6] r, float[6] s) {{
                d = Identity (c) r = Identity (b) s = Identity (a) }}> }}""",
        trips(0, 1, 2, 5),
    ),
    "turned round by three": Case(
        f"""g (float[6] x, int64 n) => (float[6] y, float[6] z, float[6] v) {{
            w = Exp (x) u = Neg (x)
            y, z, v = Loop (n, "", x, w, u) <body = b ({ROUND}, float[6] a, float[6] b, float[6] e)
                => (bool d, float[6] r, float[6] s, float[6] t) {{
                d = Identity (c) r = Add (b, e) s = Identity (a) t = Identity (b) }}> }}""",
        trips(0, 1, 2, 5),
    ),
    "passed on, dropped, constant": Case(
        f"""g (float[6] x, int64 n) => (float[6] y, float[6] z, float[6] v) <float[6] one = {{1, 2, 3, 4, 5, 6}}> {{
            w = Exp (x)
            y, z, v, dropped = Loop (n, "", x, w, one, x) <
                body = b ({ROUND}, float[6] a, float[6] b, float[6] e, float[6] f)
                => (bool d, float[6] r, float[6] s, float[6] t, float[6] h) {{
                d = Identity (c) r = Add (a, b) s = Identity (b) t = Mul (e, a) h = Sin (f) }}> }}""",
        trips(0, 1, 4),
    ),
    "a carried value that becomes a constant or what is outside": Case(
        f"""g (float[6] x, int64 n) => (float[6] y, float[6] z) <float[6] one = {{1, 2, 3, 4, 5, 6}}> {{
            w = Exp (x)
            y, z = Loop (n, "", x, x) <body = b ({ROUND}, float[6] a, float[6] b) => (bool d, float[6] r, float[6] s) {{
                d = Identity (c) r = Identity (one) s = Identity (w) }}> }}""",
        trips(0, 1, 2),
    ),
    "an lstm in a loop": Case(
        f"""g (float[2, 1, 3] x, int64 n) => (float[2, 1, 3] y) <{_LSTM}, float[1, 1, 3] zeros = {{0, 0, 0}},
            int64[1] one = {{1}}> {{
            y, h, m = Loop (n, "", x, zeros, zeros) <
                body = b ({ROUND}, float[2, 1, 3] a, float[1, 1, 3] h0, float[1, 1, 3] c0)
                => (bool d, float[2, 1, 3] r, float[1, 1, 3] h1, float[1, 1, 3] c1) {{
                d = Identity (c)
                o, h1, c1 = LSTM <hidden_size = 3> (a, LW, LR, "", "", h0, c0)
                r = Squeeze (o, one) }}> }}""",
        tuple({"x": X.reshape(2, 1, 3), "n": np.array(n, LONG)} for n in (1, 9)),
    ),
    "an if in a loop in an if": Case(
        f"""g (float[6] x, bool yes, int64 n) => (float[6] y) <float zero = {{0.1}}, float k = {{0.5}}> {{
            v = Exp (x)
            y = If (yes) <
                then_branch = t () => (float[6] p) {{
                    p = Loop (n, "", x) <body = b ({ROUND}, float[6] a) => (bool d, float[6] r) {{
                        d = Identity (c) s = ReduceSum <keepdims = 0> (a) up = Greater (s, zero)
                        r = If (up) <
                            then_branch = t2 () => (float[6] p2) {{ h = Sub (a, v) p2 = Mul (h, k) }},
                            else_branch = e2 () => (float[6] q2) {{ q2 = Add (a, v) }}> }}> }},
                else_branch = e () => (float[6] q) {{ q = Neg (v) }}> }}""",
        (*yes_and_no(n=np.array(6, LONG)), {"x": X, "yes": np.array(True), "n": np.array(0, LONG)}),
    ),
    "loops four deep": Case(
        """g (float[6] x, int64 n) => (float[6] y) <float k = {0.3}> {
            y = Loop (n, "", x) <body = b0 (int64 i0, bool c0, float[6] a0) => (bool d0, float[6] r0) {
                d0 = Identity (c0) f0 = Cast <to = 1> (i0)
                r0 = Loop (n, "", a0) <body = b1 (int64 i1, bool c1, float[6] a1) => (bool d1, float[6] r1) {
                    d1 = Identity (c1)
                    r1 = Loop (n, "", a1) <body = b2 (int64 i2, bool c2, float[6] a2) => (bool d2, float[6] r2) {
                        d2 = Identity (c2) f2 = Cast <to = 1> (i2)
                        r2 = Loop (n, "", a2) <body = b3 (int64 i3, bool c3, float[6] a3) => (bool d3, float[6] r3) {
                            d3 = Identity (c3) u = Mul (a3, k) v = Add (u, f0) w = Add (v, f2) z = Sub (w, a1)
                            r3 = Sin (z) }> }> }> }> }""",
        trips(0, 1, 3),
    ),
    "a scan both ways": Case(
        """g (float[40, 6] x, float[6] h) => (float[6] y, float[40, 6] rows, float[6, 40] turned) {
            y, rows, turned = Scan <num_scan_inputs = 2, scan_input_directions = [0, 1], scan_output_axes = [0, 1],
                scan_output_directions = [1, 0], body = b (float[6] a, float[6] p, float[6] q)
                => (float[6] r, float[6] s, float[6] t) {
                    u = Add (a, p) v = Mul (u, q) r = Sin (v) s = Add (r, p) t = Identity (r) }> (h, x, x) }""",
        ({"x": np.linspace(-1, 1, 240, dtype=F).reshape(40, 6), "h": X},),
    ),
    "a scan along another dimension": Case(
        """g (float[6, 40] x) => (float[40] y) {
            y = Scan <num_scan_inputs = 1, scan_input_axes = [1],
                body = b (float[6] p) => (float r) { q = Exp (p) t = Mul (q, p) u = Add (t, q)
                    r = ReduceSum <keepdims = 0> (u) }> (x) }""",
        ({"x": np.linspace(-1, 1, 240, dtype=F).reshape(6, 40)},),
    ),
    "the same in all rounds": Case(
        f"""g (float[6] x, int64 n) => (float[6] y, float[20, 6] rows, float[6] z)
            <{WEIGHTS}, {BACK}> {{
            w = Exp (x)
            y, z, rows = Loop (n, "", x, w) <body = b ({ROUND}, float[6] a, float[6] b)
                => (bool d, float[6] r, float[6] s, float[6] row) {{
                d = Identity (c) u = MatMul (w, W) v = Tanh (u) t = MatMul (v, V) f = Sigmoid (w) g = Mul (f, a)
                r = Add (g, t) s = Sin (t) row = Cos (w) }}> }}""",
        trips(0, 1, 20),
        {"rows": 20},
    ),
    "the same in all rounds of a loop in a branch in a loop": Case(
        f"""g (float[6] x, int64 n, bool yes) => (float[6] y, float[6] z) <int64 three = {{3}}, float k = {{0.5}}> {{
            w = Exp (x)
            y = Loop (n, "", x) <body = b ({ROUND}, float[6] a) => (bool d, float[6] r) {{
                d = Identity (c) e = Cos (a)
                p = If (yes) <
                    then_branch = t () => (float[6] t2) {{
                        h = Sin (w) h2 = Tanh (h) t1 = Mul (h2, a) t2 = Mul (t1, k) }},
                    else_branch = e () => (float[6] e2) {{
                        e2 = Loop (n, "", a) <body = b2 (int64 i2, bool c2, float[6] a2) => (bool d2, float[6] r2) {{
                            d2 = Identity (c2) s = Sin (w) s2 = Exp (e) s3 = Mul (s, a2) s4 = Sub (s3, s2)
                            r2 = Mul (s4, k) }}> }}>
                q = Mul (p, k) r = Sin (q) }}>
            z = Loop (three, "", x) <body = b3 ({ROUND}, float[6] a) => (bool d, float[6] r) {{
                d = Identity (c)
                v = Loop (n, "", w) <body = b2 (int64 i2, bool c2, float[6] a2) => (bool d2, float[6] r2) {{
                    d2 = Identity (c2) r2 = Sin (a2) }}>
                r = Sub (a, v) }}> }}""",
        tuple(feeds | {"yes": np.array(yes)} for feeds in trips(0, 1, 9) for yes in (True, False)),
    ),
    "a division by zero that no round makes": Case(
        f"""g (float[6] x, int64 n, int64[6] k) => (int64[6] y) {{
            y = Loop (n, "", k) <body = b ({ROUND}, int64[6] a) => (bool d, int64[6] r) {{
                d = Identity (c) q = Div (k, k) p = Mul (q, q) r = Add (a, p) }}> }}""",
        tuple({**feeds, "k": np.arange(6, dtype=LONG) + n} for n, feeds in enumerate(trips(0, 3))),
    ),
    "counted in 64 bits, from a constant": Case(
        f"""g (float[6] x, int64 n) => (int64 last, double[3] z)
            <int64 big = {{1099511627776}}, double[3] w = {{1, 2, 3}}, int64 k = {{3}}> {{
            last, z = Loop (n, "", big, w) <body = b ({ROUND}, int64 t, double[3] e)
                => (bool d, int64 u, double[3] v) {{
                d = Identity (c) p = Mul (i, k) u = Add (t, p) v = Mul (e, e) }}> }}""",
        trips(0, 1, 6),
    ),
    "a long loop that reads nothing of the run": Case(
        f"""g (float[6] x) => (float[6] y, float[1000] rows) <int64 n = {{1000}}, float[6] w = {{1, 2, 3, 4, 5, 6}}> {{
            z, rows = Loop (n, "", w) <body = b ({ROUND}, float[6] e) => (bool d, float[6] v, float row) {{
                d = Identity (c) v = Sin (e) row = ReduceSum <keepdims = 0> (v) }}>
            y = Add (x, z) }}""",
        ({"x": X},),
    ),
    "the largest of what a loop makes": Case(
        f"""g (float[6] x) => (float y) <int64 n = {{100}}, float[3] w = {{0, 0, 0}}> {{
            a, rows = Loop (n, "", w) <body = b ({ROUND}, float[3] e) => (bool d, float[3] v, float row) {{
                d = Identity (c) g = Gather (x, m) h = Sin (g) v = Add (e, h) s = Cast <to = 1> (i) t = Mul (s, h)
                row = Add (t, h) }}>
            y = ReduceMax <keepdims = 0> (rows) }}""".replace("w = {0, 0, 0}>", "w = {0, 0, 0}, int64 m = {4}>"),
        ({"x": X},),
    ),
}  # fmt: skip
