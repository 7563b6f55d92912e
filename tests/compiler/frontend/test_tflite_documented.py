"""docs/tflite.md lists the supported operators, and the schema's unsupported ones."""

import re
from pathlib import Path

import tflite

from mtool.compiler.frontend.tflite.builtins import BUILTINS
from mtool.compiler.frontend.tflite.rewriting import COPY, ROW

PAGE = Path(__file__).parents[3] / "docs" / "tflite.md"
WORDS = {  # what the page says in a word
    "comparisons": {"EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL"},
    "logic": {"LOGICAL_AND", "LOGICAL_OR", "LOGICAL_NOT"},
}
NOT_OPERATORS = {"CUSTOM", "DELEGATE", "PLACEHOLDER_FOR_GREATER_OP_CODES"}


def named(text: str) -> set[str]:
    return set(re.findall(r"`([A-Za-z0-9]\w*(?:-\w+)?)`", text))


def test_every_operator_is_read_or_said_not_to_be() -> None:
    page = PAGE.read_text("utf-8")
    table = page.partition("## What is read")[2].partition("Fused activations")[0]
    reported = named(table) | {name for word, names in WORDS.items() if word in table for name in names}
    read = {name.removeprefix("CUSTOM ") for name in BUILTINS} - {COPY, ROW} | {"STABLEHLO_COMPOSITE"}
    assert reported == read
    unread = page.partition("Not read are")[2].partition("\n\n")[0]
    schema = {name for name, value in vars(tflite.BuiltinOperator).items() if isinstance(value, int)}
    others = {name for name in schema - read - NOT_OPERATORS if not name.startswith("STABLEHLO_")}
    assert named(unread) == others
    assert "STABLEHLO" in unread
