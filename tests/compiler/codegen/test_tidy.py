"""The remains of templates for sizes of one are removed, and nothing else."""

import pytest

from mtool.compiler.codegen.c_text import tidied


@pytest.mark.parametrize(
    ("line", "written"),
    [
        ("o = (y * 1 + x) * 64;", "o = (y + x) * 64;"),
        ("p = input + (top * 10 + left) * 1;", "p = input + (top * 10 + left);"),
        ("row = next + 0;", "row = next;"),
        ("x = p[0 * 3 + i] - 0;", "x = p[i];"),
        ("memcpy(patch, from + g * 1, 1 * sizeof(*patch));", "memcpy(patch, from + g, sizeof(*patch));"),
        ("for (int32_t y = 0; y < 6; ++y, source += 0) {", "for (int32_t y = 0; y < 6; ++y) {"),
        ("for (int32_t y = 0; y < 6; ++y, source += 01) {", "for (int32_t y = 0; y < 6; ++y, source += 01) {"),
        ("for (int32_t x = 0; x < 6; ++x, p += 1, o += 4)", "for (int32_t x = 0; x < 6; ++x, ++p, o += 4)"),
        ("sum += row[k] * w[1 * 3 + k];", "sum += row[k] * w[3 + k];"),
        ("x = a / 1 + b;", "x = a + b;"),
        ("w = weights + 1 * 4;", "w = weights + 4;"),
        ("o = (x) * 16 + c;", "o = x * 16 + c;"),
        ("o = ((n * 2 + y)) * 2;", "o = (n * 2 + y) * 2;"),
        # what looks alike
        ("x = a + 0.5f;", "x = a + 0.5f;"),
        ("x = a * 1.0f - 0x10;", "x = a * 1.0f - 0x10;"),
        ("x = a * 16 + 01;", "x = a * 16 + 01;"),
        ("x = a / 0 * b;", "x = a / 0 * b;"),
        ("x = 8 / 1 * b;", "x = 8 * b;"),
        ("x = y + 0 * f(z);", "x = y + 0 * f(z);"),
        ("/* x + 0 */", "/* x + 0 */"),
        ("x = f(0);", "x = f(0);"),
        ("if (0)", "if (0)"),
        ("x = -1 * y;", "x = -1 * y;"),
        ("x = a + 1 * 2.5f;", "x = a + 1 * 2.5f;"),
        ("x = a * (int8_t) + b;", "x = a * (int8_t) + b;"),
        ("if ((a = f))", "if ((a = f))"),
    ],
)
def test_lines(line: str, written: str) -> None:
    assert tidied(line) == written


def test_a_loop_that_is_made_once_goes() -> None:
    body = """\
    for (int32_t m = 0; m < 1; ++m) {
        const int8_t *row = input + m * 3;
        for (int32_t i = 0; i < 3; ++i)
            output[m * 3 + i] = row[i];
    }"""
    assert (
        tidied(body)
        == """\
    const int8_t *row = input;
    for (int32_t i = 0; i < 3; ++i)
        output[i] = row[i];"""
    )


def test_what_is_compared_keeps_its_name() -> None:
    body = """\
    for (int32_t y = 0; y < 1; ++y) {
        if (y < top)
            output[y] = 0;
    }"""
    assert (
        tidied(body)
        == """\
    const int32_t y = 0;
    if (y < top)
        output[y] = 0;"""
    )


def test_a_loop_in_a_loop_without_braces_gives_it_braces() -> None:
    body = """\
    for (int32_t y = 0; y < 6; ++y)
        for (int32_t x = 0; x < 1; ++x) {
            int32_t acc = y;
            output[y + x] = acc;
        }"""
    assert (
        tidied(body)
        == """\
    for (int32_t y = 0; y < 6; ++y) {
        int32_t acc = y;
        output[y] = acc;
    }"""
    )


def test_names_that_are_taken_stay_in_a_block() -> None:
    body = """\
    for (int32_t m = 0; m < 1; ++m) {
        int32_t sum = input[m];
        output[m] = sum;
    }
    int32_t sum = 0;"""
    assert tidied(body).split("\n")[0] == "    {"


def test_loops_that_are_left_or_made_more_often_stay() -> None:
    for body in (
        "    for (int32_t m = 0; m < 1; ++m) {\n        if (input[m])\n            break;\n    }",
        "    for (int32_t m = 0; m < 2; ++m)\n        output[m] = 0;",
        "    for (int32_t m = 0; m < count; ++m)\n        output[m] = 0;",
    ):
        assert tidied(body) == body


def test_what_an_inner_loop_leaves_is_no_matter() -> None:
    body = """\
    for (int32_t y = 0; y < 1; ++y) {
        const int32_t row = y * 25, column = 3;
        for (int32_t x = 0; x < 5; ++x) {
            if (input[x])
                continue;
            output[(row * 5 + column) * 2 + x] = 0;
        }
    }"""
    assert (
        tidied(body)
        == """\
    for (int32_t x = 0; x < 5; ++x) {
        if (input[x])
            continue;
        output[3 * 2 + x] = 0;
    }"""
    )


def test_an_empty_line_ends_no_inner_loop() -> None:
    inner = (
        "for (int32_t x = 0; x < 5; ++x) {\n            f(x);\n\n            if (input[x])\n                continue;"
    )
    body = f"    for (int32_t y = 0; y < 1; ++y) {{\n        {inner}\n            g(x + y);\n        }}\n    }}"
    assert tidied(body).startswith("    for (int32_t x = 0; x < 5; ++x) {\n        f(x);\n\n")


def test_a_constant_that_is_compared_or_declared_twice_keeps_its_name() -> None:
    for body in (
        "    const int32_t top = 0;\n    if (top >= 0)\n        output[top] = 0;",
        "    const int32_t top = 0;\n    output[top] = 0;\n    {\n        const int32_t top = 1;\n    }",
    ):
        assert tidied(body) == body


@pytest.mark.parametrize(("last", "loops"), [(4, 0), (3, 0), (5, 1), (8, 1)])
def test_a_loop_by_steps_that_is_made_once_goes(last: int, loops: int) -> None:
    body = f"    for (int32_t c = 0; c < {last}; c += 4) {{\n        output[c] = input[c];\n    }}"
    text = tidied(body)
    assert text.count("for (") == loops
    assert loops or text == "    output[0] = input[0];"


def test_a_loop_that_is_the_whole_of_one_at_the_same_indent_stays_in_it() -> None:
    body = """\
    for (int32_t g = 0; g < 60; ++g)
    for (int32_t p = 0; p < 1; p += 2) {
        const int8_t *column = scratch;
        for (int32_t q = p; q < p + 1; ++q)
            output[q] = column[g];
    }"""
    assert tidied(body).split("\n")[:2] == ["    for (int32_t g = 0; g < 60; ++g) {", "        const int32_t p = 0;"]
    assert tidied(body).split("\n")[-1] == "    }"


def test_a_statement_before_a_loop_is_not_a_head_of_it() -> None:
    body = "    if (done)\n        return;\n    for (int32_t p = 0; p < 1; ++p) {\n        output[p] = 1;\n    }"
    assert tidied(body) == "    if (done)\n        return;\n    output[0] = 1;"
    body = "    while (left);\n    for (int32_t p = 0; p < 1; ++p) {\n        output[p] = 1;\n    }"
    assert tidied(body) == "    while (left);\n    output[0] = 1;"


@pytest.mark.parametrize("moved", ["weights += 40", "++weights, input += step"])
def test_what_a_loop_that_is_made_once_moves_goes_if_nothing_reads_it_later(moved: str) -> None:
    body = f"    for (int32_t c = 0; c < 3; c += 4, {moved}) {{\n        output[c] = *weights + *input;\n    }}"
    assert tidied(body) == "    output[0] = *weights + *input;"
    read = tidied(f"{body}\n    last = *weights;")
    step = moved.partition(",")[0]
    assert read == f"    output[0] = *weights + *input;\n    {step};\n    last = *weights;"


def test_what_such_a_loop_moves_stays_if_a_loop_around_it_reads_it_again() -> None:
    inner = "        for (int32_t k = 0; k < 1; ++k, ++y) {\n            output[y] = 1;\n        }"
    outer = "    for (int32_t q = 0; q < 5; ++q) {"
    kept = tidied(f"    int32_t y = 3;\n{outer}\n{inner}\n    }}")
    assert kept == f"    int32_t y = 3;\n{outer}\n        output[y] = 1;\n        ++y;\n    }}"
    declared = tidied(f"{outer}\n        int32_t y = 3;\n{inner}\n    }}")
    assert declared == f"{outer}\n        int32_t y = 3;\n        output[y] = 1;\n    }}"


def test_a_loop_that_is_made_once_may_go_on_as_the_loop_around_it_does() -> None:
    inner = [
        "        for (int32_t x = 0; x < 1; ++x) {",
        "            if (++filled < 3)",
        "                continue;",
        "            filled = 0;",
        "        }",
    ]
    outer = "    for (int32_t y = 0; y < 9; ++y) {"
    text = tidied("\n".join([outer, *inner, "    }"]))
    assert text.count("for (") == 1 and "        if (++filled < 3)\n            continue;" in text
    for after in ("        ++output;\n    }", "    }"):
        whole = "\n".join([outer, *inner, after]) if "++" in after else "\n".join(["    {", *inner, after])
        assert "x < 1" in tidied(whole)


def test_what_such_a_loop_moves_stays_if_a_loop_at_the_same_indent_repeats_it() -> None:
    loop = "    for (int32_t p = 0; p < 1; ++p, ++input) {\n        use(*input);\n    }"
    body = f"    for (int32_t g = 0; g < 9; ++g)\n{loop}"
    assert tidied(body).endswith("{\n        use(*input);\n        ++input;\n    }")


def test_what_stands_behind_a_continue_of_a_loop_that_is_made_once_is_its_else() -> None:
    body = """\
    for (int32_t ky = 0; ky < 1; ++ky) {
        if (left >= 0) {
            copy(left);
            continue;
        }
        fill(left);
    }
    next();"""
    assert (
        tidied(body)
        == """\
    if (left >= 0) {
        copy(left);
    } else {
        fill(left);
    }
    next();"""
    )


def test_a_loop_that_is_made_once_stays_if_it_is_left_elsewhere() -> None:
    body = """\
    for (int32_t ky = 0; ky < 1; ++ky) {
        if (left >= 0)
            continue;
        fill(left);
    }
    next();"""
    assert tidied(body) == body


def test_a_block_that_nothing_needs_goes() -> None:
    body = """\
    for (int32_t c = 0; c < 2; ++c) {
        const float *w0 = weights + c;
    }
    {
        const float *w0 = weights;
        output[2] = *w0;
    }"""
    assert tidied(body).splitlines()[-2:] == ["    const float *w0 = weights;", "    output[2] = *w0;"]


@pytest.mark.parametrize("other", ["    const float *w0 = bias;", "    next(w0);"])
def test_a_block_stays_if_its_names_are_those_of_others(other: str) -> None:
    block = "    {\n        const float *w0 = weights;\n        output[2] = *w0;\n    }"
    for body in (f"{other}\n{block}", f"{block}\n{other}"):
        assert tidied(body) == body


def test_the_brace_of_a_loop_stands_on_its_line() -> None:
    body = "    for (int32_t n0 = 0; n0 < 4; ++n0)\n    {\n        first(n0);\n        second(n0);\n    }"
    assert tidied(body) == body.replace(")\n    {", ") {")


def test_a_block_that_is_all_of_a_loop_is_none() -> None:
    body = "    for (int32_t i = 0; i < 3; ++i) {\n        {\n            f(i);\n        }\n    }"
    declared = body.replace("f(i);", "int32_t a = i;")
    assert tidied(body) == "    for (int32_t i = 0; i < 3; ++i) {\n        f(i);\n    }"
    assert tidied(declared + "\n    g(a);").count("{") == 1
    shadowing = body.replace("f(i);", "int32_t i = g();")
    assert tidied(shadowing) == shadowing


def test_a_remainder_of_one_is_none_and_a_name_needs_no_parentheses() -> None:
    assert tidied("    y = a * x % 1;\n    z = x % 1 + 3;") == "    y = a * x % 1;\n    z = 3;"
    assert tidied("    f(a + (b), c > 0 ? (c) * 9 : (int32_t)d);") == "    f(a + b, c > 0 ? c * 9 : (int32_t)d);"
