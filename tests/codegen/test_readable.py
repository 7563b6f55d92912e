"""Generated C says what things are: names of places and pointers, layouts of tables, where long lines break."""

import re

import numpy as np
import pytest
from golden_model import small_model
from graphs import HOST, compiled

from mtool import codegen
from mtool.codegen.wrap import WIDTH, wrapped
from mtool.filetree import FileTree
from mtool.kernels.target import Target

DSP = Target("cortex-m4", frozenset({"fpu", "dsp"}))
CONVENTIONS = [
    codegen.conventions(),
    codegen.conventions("packed", "packed"),
    codegen.conventions("step", "pointers"),
    codegen.conventions(executor="graph"),
]


def generated(target: Target = HOST, chosen: codegen.Conventions | None = None) -> FileTree:
    plan = compiled(small_model(), target, "small")  # type: ignore[arg-type]
    return codegen.generate(plan, "small.onnx", "ab" * 32, chosen)[0]


@pytest.mark.parametrize("chosen", CONVENTIONS)
def test_no_place_in_the_arena_is_a_bare_number(chosen: codegen.Conventions) -> None:
    files = generated(chosen=chosen)
    for name in (name for name in files if name.endswith(".c")):
        assert not re.search(r"_arena \+ \d", files.text(name)), name


def test_the_offsets_are_those_of_the_plan() -> None:
    plan = compiled(small_model(), HOST, "small")  # type: ignore[arg-type]
    header = codegen.generate(plan, "small.onnx", "ab" * 32)[0].text("small_operators.h")
    offsets = {name: int(number) for name, number in re.findall(r"#define SMALL_(\w+)_OFFSET (\d+)", header)}
    for number, step in enumerate(plan.steps):
        name = step.node.name.upper() if step.node.outputs[0] not in plan.graph.outputs else "OUT_Y"
        assert offsets.pop(name) == plan.offsets[step.node.outputs[0]]
        if plan.scratch[number] is not None:
            assert offsets.pop(f"{step.node.name.upper()}_SCRATCH") == plan.scratch[number]
    assert offsets == {"IN_X": plan.offsets["x"]}


def test_a_pointer_is_called_as_what_it_points_to() -> None:
    text = generated().text("small.c").partition("int32_t small_run(")[2]
    pointers = dict(re.findall(r"\*const (\w+) = .*SMALL_(\w+)_OFFSET", text))
    assert {name.upper() for name in pointers} == set(pointers.values())
    assert re.search(r"small_dw_2\(conv_1, dw_2, .*conv_1, .*dw_2_scratch\)", text)


def test_tables_say_what_stands_where_and_packed_words_are_hexadecimal() -> None:
    text = generated(DSP).text("small_weights.c")
    tables = re.findall(r"/\* ([^/]*?) \*/\nconst uint32_t \w+\[\d+\] = \{([^}]*)\}", text)
    assert len(tables) >= 2
    for comment, words in tables:
        assert re.match(r"uint32 [\dx]+: packed for mt_dsp_\w+\.h, ", comment.replace("\n * ", " "))
        assert all(re.fullmatch(r"0x[0-9A-F]{8}u", word.strip()) for word in words.strip().rstrip(",").split(","))


def test_a_row_of_packed_words_begins_a_line() -> None:
    layouts = {"w": "packed"}
    text = codegen.weights.weights_source("", "m", {"w": np.zeros((3, 11), np.uint32)}, layouts=layouts)
    assert [line.count("0x") for line in text.splitlines() if "0x" in line] == [8, 3] * 3


def test_an_argument_is_not_broken_where_there_is_a_comma() -> None:
    line = (
        "        columns(" + "s" * 50 + ", weights, output + p * 64, output + p * 64 + 64, output + p * 64 + 128, 32);"
    )
    first, second = wrapped(line).split("\n")
    assert first.endswith(", output + p * 64 + 64,") and second.strip() == "output + p * 64 + 128, 32);"


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
