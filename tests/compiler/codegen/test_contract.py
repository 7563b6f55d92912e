"""What a header and mtool.json say of RAM, the FPU, re-entrancy, interrupts and the stack."""

import re

import pytest

from mtool import commands
from mtool.base import resources
from mtool.commands import CompiledModel, Options
from mtool.compiler.codegen import Conventions, conventions

DIGITS = resources.path("examples/digits") / "digits_int8.onnx"
EACH = {
    "c": conventions(),
    "caller": conventions(context=True),
    "packed": conventions("packed", "packed"),
    "step": conventions("step"),
    "feed": conventions("feed"),
    "graph": conventions(executor="graph"),
}
IN_RAM = {"caller": (), "step": ("arena", "inference in progress"), "feed": ("arena", "inference in progress")}


def compiled(board: str, chosen: Conventions) -> CompiledModel:
    return commands.compile(DIGITS, board=board, options=Options(conventions=chosen, optimize="size"))


@pytest.mark.parametrize("name", EACH)
def test_each_function_of_the_header_is_described(name: str) -> None:
    model = compiled("mps2_an385", EACH[name])
    found = model.manifest.entry_points
    header = model.files.text("digits_int8.h")
    code = re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL)
    declared = {*re.findall(r"(?<=[ *])(digits_int8_\w+)\(", code), *re.findall(r"mt_packed (\w+);", code)}
    assert {one.name for one in found} == declared
    by_arena = name == "caller"
    assert {one.reentrant for one in found} == {"by_arena" if by_arena else "no"}
    assert ("Calls with different arenas may run at the same time" in header) == by_arena
    assert ("Not re-entrant, as there is one arena" in header) != by_arena
    in_ram = model.manifest.in_ram
    assert in_ram == IN_RAM.get(name, ("arena",) if name != "graph" else ("arena", "graph's tables"))
    listed = ", ".join(f"the {one}" for one in in_ram) or "nothing but what the caller passes"
    assert f"In RAM: {listed}.\n" in header
    assert "mtool bench --elf FILE reads it from your linked file" in header


@pytest.mark.parametrize(("board", "has_fpu"), [("mps2_an385", False), ("mps2_an386", True)])
def test_the_fpu_is_named(board: str, has_fpu: bool) -> None:
    model = compiled(board, EACH["c"])
    header = model.files.text("digits_int8.h")
    assert model.manifest.uses_fpu == has_fpu == ("Uses the FPU" in header) != ("Uses no FPU" in header)
