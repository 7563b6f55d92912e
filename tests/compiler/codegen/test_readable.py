"""Generated C is readable: names of places and pointers, layouts of tables, line breaks."""

import re

import control_flow
import networks
import numpy as np
import pytest
from conventions import CONVENTIONS
from golden_model import small_model
from graphs import HOST, NO_FPU, compiled, model
from onnx import helper

from mtool.base import resources
from mtool.base.filetree import FileTree
from mtool.compiler import codegen
from mtool.compiler.codegen.c_text import WIDTH, wrapped
from mtool.compiler.kernels.conv2d.geometry import Conv
from mtool.compiler.kernels.target import Target
from mtool.project.runtime import runtime_headers

DSP = Target("cortex-m4", frozenset({"fpu", "dsp"}))
MVE = Target("cortex-m55", frozenset({"fpu", "dsp", "mve"}))


def generated(target: Target = HOST, chosen: codegen.Conventions | None = None) -> FileTree:
    plan = compiled(small_model(), target, "small")  # type: ignore[arg-type]
    return codegen.generate(plan, "small.onnx", "ab" * 32, chosen)[0]


@pytest.mark.parametrize("chosen", CONVENTIONS.values(), ids=CONVENTIONS)
def test_no_place_in_the_arena_is_a_bare_number(chosen: codegen.Conventions) -> None:
    files = generated(chosen=chosen)
    for name in (name for name in files if name.endswith(".c")):
        assert not re.search(r"_arena \+ \d", files.text(name)), name


def control_flow_c(case: str) -> str:
    """Return the functions of a model with control flow."""
    plan = compiled(control_flow.CASES[case].proto, HOST, "net")
    return codegen.generate(plan, "net.onnx", "0" * 64)[0].text("net.c").partition("MT_ALONE")[2]


@pytest.mark.parametrize("case", ["an lstm in a loop", "an if in a loop in an if", "loops four deep", "swapped"])
def test_the_scratch_of_control_flow_has_a_map_too(case: str) -> None:
    text = control_flow_c(case)
    assert not re.search(r"scratch \+ \d|\(scratch\)|, \d{2,}\);", text)
    named = re.findall(r"^ +(\w+)_offset = \d+,$", text, re.M)
    assert sorted(named) == sorted(re.findall(r"\*const (\w+) = .*scratch \+ \1_offset\)?;", text))


def test_rounds_that_nothing_counts_are_a_while() -> None:
    assert "    while (going) {" in control_flow_c("while")
    assert "for (int32_t round = 0; round < 10000; ++round) {" in control_flow_c("ten thousand rounds, with rows")


def test_a_branch_writes_over_what_it_has_read() -> None:
    assert "keep" not in control_flow_c("an if in a loop in an if")
    assert "branch_0_2" not in (text := control_flow_c("outputs that are a capture, a constant, another output"))
    assert "float *const out_a = in_x; /* in place */" not in text  # one of its outputs is the input as it was


def test_the_offsets_are_those_of_the_plan() -> None:
    plan = compiled(small_model(), HOST, "small")  # type: ignore[arg-type]
    header = codegen.generate(plan, "small.onnx", "ab" * 32)[0].text("small_operators.h")
    offsets = {name: int(number) for name, number in re.findall(r"#define SMALL_(\w+)_OFFSET (\d+)", header)}
    over = dict(re.findall(r"#define SMALL_(\w+)_OFFSET SMALL_(\w+)_OFFSET /\* in place \*/", header))
    assert over == {"DW_2": "CONV_1", "OUT_Y": "DENSE_4"}
    offsets |= {name: offsets[under] for name, under in over.items()}
    for number, step in enumerate(plan.steps):
        name = step.node.name.upper() if step.node.outputs[0] not in plan.graph.outputs else "OUT_Y"
        assert offsets.pop(name) == plan.offsets[step.node.outputs[0]]
        if plan.scratch[number] is not None:
            assert offsets.pop(f"{step.node.name.upper()}_SCRATCH") == plan.scratch[number]
    assert offsets == {"IN_X": plan.offsets["x"]}


def test_a_pointer_is_called_as_what_it_points_to() -> None:
    text = generated().text("small.c").partition("void small_calls(")[2]
    pointers = dict(re.findall(r"\*const (\w+) = .*SMALL_(\w+)_OFFSET", text))
    assert {name.upper() for name in pointers} == set(pointers.values())
    assert re.findall(r"\*const (\w+) = (\w+); /\* in place \*/", text) == [("dw_2", "conv_1"), ("out_y", "dense_4")]
    assert re.search(r"small_dw_2\(conv_1, dw_2, .*conv_1, .*dw_2_scratch\)", text)


@pytest.mark.parametrize("chosen", CONVENTIONS.values(), ids=CONVENTIONS)
def test_the_calls_of_an_inference_stand_once(chosen: codegen.Conventions) -> None:
    files = generated(chosen=chosen)
    calls = [
        call
        for name in files
        if name.endswith(".c") and not name.endswith("_packed.c")  # where the wrappers are
        for call in re.findall(
            r"^ +(?:OPERATOR\(\d+\) )?.*\b(small_[a-z]+_\d)(?:_packed|_pointers|_values)?\b[(,]", files.text(name), re.M
        )
    ]
    assert chosen.executor == "graph" or len(calls) == 6
    assert len(calls) == len(set(calls))


@pytest.mark.parametrize("target", [HOST, NO_FPU, DSP, MVE])
def test_each_table_describes_its_layout(target: Target) -> None:
    text = generated(target).text("small_weights.c")
    described = re.findall(r"/\* \w+ [\dx]+: [^/]+ \*/\nconst ", text)
    assert len(described) == text.count("\nconst ") > 0


def test_only_models_that_need_a_header_of_the_runtime_include_it() -> None:
    files = generated()
    headers = FileTree({path.name: path.read_bytes() for path in (resources.path("crt") / "include").glob("*.h")})
    assert runtime_headers([files], headers) == ["mt_convention.h", "mt_math.h", "mt_place.h", "mt_scalar.h", "mtool.h"]


def test_tables_describe_their_layout_and_packed_words_are_hexadecimal() -> None:
    text = generated(DSP).text("small_weights.c")
    tables = re.findall(r"/\* ([^/]*?) \*/\nconst uint32_t \w+\[\d+\] = \{([^}]*)\}", text)
    assert tables
    for comment, words in tables:
        assert re.match(r"uint32 [\dx]+: packed for mt_dsp_\w+\.h, ", comment.replace("\n * ", " "))
        assert all(re.fullmatch(r"0x[0-9A-F]{8}u", word.strip()) for word in words.strip().rstrip(",").split(","))


def test_a_row_of_packed_words_begins_a_line() -> None:
    layouts = {"w": "packed"}
    parts = codegen.weights.weights_source("", "m", {"w": np.zeros((3, 11), np.uint32)}, layouts=layouts)
    assert [line.count("0x") for part in parts for line in part.splitlines() if "0x" in line] == [8, 3] * 3


def test_a_row_of_packed_bytes_begins_a_line_and_has_a_reason() -> None:
    layouts = {"w": "packed for mt_mve.h, biases, weights"}
    text = "\n".join(codegen.weights.weights_source("", "m", {"w": np.zeros((3, 50), np.int8)}, layouts=layouts))
    assert "/* int8 3x50: packed for mt_mve.h, biases, weights. Stored as bytes: most are weights" in text
    assert [line.count("0,") for line in text.splitlines() if "0," in line] == [32, 18] * 3


def test_a_long_call_breaks_between_its_arguments() -> None:
    places = ", ".join(f"output + p * 64 + {64 * n}" for n in range(3))
    line = f"        mt_dsp_columns_turns_8(scratch, scratch + 96, weights, {places}, 32, staging + 1);"
    assert all(part.endswith((",", ";")) for part in wrapped(line).split("\n"))


@pytest.mark.parametrize(
    "line",
    [
        "    first("
        + "a" * 30
        + ", (int32_t *)(void *)(arena + OFFSET), "
        + "b" * 40
        + ", (int8_t *)(arena + OTHER));",
        "    output = clamp(one(" + "x" * 40 + ", 1, 2) * two(" + "y" * 20 + ", 3, 4) + three(" + "z" * 30 + ", 5));",
    ],
)
def test_long_lines_break_outside_of_inner_brackets(line: str) -> None:
    lines = wrapped(line).split("\n")
    assert len(lines) > 1 and max(map(len, lines)) <= WIDTH
    assert " ".join(part.strip() for part in lines) == line.strip()
    for part in lines[:-1]:
        assert part.count("(") - part.count(")") == 1


def test_calls_within_calls_break_behind_a_bracket() -> None:
    line = f"    y = {''.join(f'converted_to_a_number_{n}(' for n in range(6))}x[i] + 1{')' * 6};"
    lines = wrapped(line).split("\n")
    assert len(lines) == 2 and max(map(len, lines)) <= WIDTH
    assert lines[0].endswith("(") and lines[0] + lines[1].strip() == line


_BY_ONE = re.compile(r"[*/%] 1(?![\w.])|(?<![\w.])1 \*")
_PLUS_NONE = re.compile(r"[+-] 0(?![\w.])")
_LOOP = re.compile(r"for \(int32_t (\w+) = (\d+); \1 < (\d+); (?:\+\+\1|\1 \+= (\d+))")


@pytest.mark.parametrize(
    ("kind", "seed", "target"),
    [
        ("floats", 3, HOST),
        ("floats", 15, MVE),
        ("floats", 17, HOST),
        ("floats", 8, HOST),
        ("integers", 0, DSP),
        ("integers", 1, HOST),
        ("integers", 1, MVE),
    ],
)
def test_nothing_is_multiplied_by_one_nor_repeated_once(kind: str, seed: int, target: Target) -> None:
    """Random networks, whose sizes are often 1."""
    plan = compiled(getattr(networks, kind)(seed), target, "net")
    counted: dict[str, int] = {}  # where loops from a number on end, by variable
    for line in codegen.generate(plan, "net.onnx", "0" * 64)[0].text("net.c").splitlines():
        code = re.sub(r"^ *(/?\*|#).*|/\*.*?\*/", "", line)
        assert not _BY_ONE.search(code) and not _PLUS_NONE.search(code), line
        for variable in re.findall(r"for \(int32_t (\w+)", code):
            counted.pop(variable, None)
        for match in _LOOP.finditer(code):
            counted[match[1]] = int(match[3])
            assert int(match[3]) - int(match[2]) > int(match[4] or 1), line
        for variable, end in re.findall(r"\b([i-n]) (?:>= (?=0\b)|< (\d+)\b(?! *;))", code):
            known = variable in counted
            assert not known or (end and int(end) < counted[variable]), f"always true: {line}"
        assert len(code) <= WIDTH + 1, line


def _padded(pads: tuple[int, int, int, int]) -> str:
    """Return the C of a convolution of 3x3 with padding at the top, left, bottom, right."""
    filters = np.ones((4, 3, 3, 3), np.float32)
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], pads=pads)]
    plan = compiled(model(nodes, {"x": (np.float32, (1, 3, 8, 8))}, ["y"], {"w": filters}), HOST, "net")
    return codegen.generate(plan, "net.onnx", "0" * 64)[0].text("net.c")


def test_padding_that_no_window_meets_is_not_looked_for() -> None:
    assert "if (y < 0 || y >= 8)" in _padded((1, 1, 1, 1)) and "left < 0 || left > 5" in _padded((1, 1, 1, 1))
    assert " y < 0" not in (text := _padded((0, 1, 0, 0))) and " y >= 8" not in text and "if (left < 0)" in text
    assert "if (y >= 8)" in (text := _padded((0, 0, 1, 1))) and "if (left > 5)" in text


def test_the_sides_of_an_image_that_windows_reach_beyond() -> None:
    conv = Conv(1, (8, 6), 4, (4, 6), 4, (3, 3), (2, 1), (0, 1), (1, 1), 1, 0)
    assert conv.outside(0, "y") == ["y >= 8"]
    assert conv.outside(1, "x") == ["x < 0", "x >= 6"] and conv.outside(1, "x", 3) == ["x < 0", "x > 3"]
    assert Conv(1, (8, 6), 4, (7, 6), 4, (1, 1), (1, 1), (-1, 0), (1, 1), 1, 0).outside(0, "y") == []


def _alone(
    op: str, shape: tuple[int, ...], constants: dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float32]]]
) -> str:
    """Return the files of an operator, whose other operands are constants."""
    nodes = [helper.make_node(op, ["x", *constants], ["y"], "only")]
    plan = compiled(model(nodes, {"x": (np.float32, shape)}, ["y"], constants), HOST, "net")
    files, _ = codegen.generate(plan, "net.onnx", "0" * 64)
    return files.text("net.c") + files.text("net_weights.c")


@pytest.mark.parametrize(
    ("op", "shape", "weights"), [("MatMul", (1, 600), (600, 5)), ("Conv", (1, 3, 5, 5), (4, 3, 2, 2))]
)
def test_a_layer_without_a_bias_reads_none(op: str, shape: tuple[int, ...], weights: tuple[int, ...]) -> None:
    assert "bias" not in _alone(op, shape, {"w": np.ones(weights, np.float32)})


def test_a_sum_is_added_to() -> None:
    assert re.search(r"total \+= input\[\w\];", _alone("ReduceSum", (7,), {}))


def test_recurrent_operators_have_nothing_of_lengths_that_are_not_given() -> None:
    text = control_flow_c("an lstm in a loop")
    assert "length" not in text and "[(" not in text and "* (tanhf" not in text


def test_functions_say_what_their_parameters_are_in_the_model() -> None:
    assert ' * input0 "x"; input1 "limit"; output0 "y"; output1 "count" */' in control_flow_c("while")
    assert "-> float32[6], int64[]" in control_flow_c("while")
