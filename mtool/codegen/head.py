"""The head of a model whose input is streamed: its calls as a table, as each row makes a few of them possible.

All calls of an operator differ in where in the arena their rows lie. The table has a line for each call: the operator's
number in a `switch`, and the offsets. What repeats, as the rows of an image do, stands there once.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mtool.codegen.addresses import address_of
from mtool.codegen.arena import Arena
from mtool.codegen.function import Call
from mtool.codegen.functions import Functions
from mtool.escaping import comment
from mtool.ir.types import Array
from mtool.plan import Plan
from mtool.plan.memory import aliases

LONGEST = 600  # calls of what repeats
LAST = 0x8000  # in a line of the table: the next call wants another row


@dataclass(frozen=True, slots=True)
class Site:
    """A call in C that makes some of the table's: the step that it is like, and where its arguments vary.

    columns: of each argument, the place of its offset in a line of the table; None: it is always the same.
    moves: of each argument, by how many bytes it is further on in each round of what repeats.
    """

    step: int
    columns: tuple[int | None, ...]
    moves: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Head:
    """The calls that are made as rows arrive.

    Attributes:
        steps: how many there are: the model's first.
        sites: the calls in C.
        table: a line for each call: the number of its site, with `LAST` if it is the last that a row makes possible, and
            offsets in the arena.
        first, length, times: the lines from `first` on, `length` of them, stand for so many rounds.
    """

    steps: int
    sites: tuple[Site, ...]
    table: Array
    first: int
    length: int
    times: int

    @property
    def width(self) -> int:
        """The numbers in a line of the table."""
        return int(self.table.shape[1])


def head_steps(plan: Plan) -> int:
    """Return how many steps are computed as rows arrive: the model's first; 0: its inputs are whole."""
    stream = plan.graph.stream
    if stream is None:
        return 0
    return 1 + max(number for number, step in enumerate(plan.steps) if step.node.title == stream.until)


def takes_row(plan: Plan, number: int) -> bool:
    """Tell whether a step reads a row of the caller's."""
    assert plan.graph.stream is not None
    lies, value = aliases(plan.graph), plan.graph.stream.value
    return any(lies.get(each, (each, 0))[0] == value for each in plan.steps[number].node.inputs)


def head_of(plan: Plan, functions: Functions) -> Head | None:
    """Return the head of a model; None: its inputs are whole."""
    count = head_steps(plan)
    if not count:
        return None
    found = [_arguments(plan, functions.calls[number], number) for number in range(count)]
    numbers: dict[object, int] = {}
    _, *others = (number for number in range(count) if takes_row(plan, number))
    ends = {*others, count}
    lines = []
    for number, (fixed, offsets) in enumerate(found):
        site = numbers.setdefault((functions.calls[number].function.name, *fixed), len(numbers))
        lines.append((site, number + 1 in ends, offsets))
    first, length, times = _repeated(lines)
    kept = [*range(first + length), *range(first + length * times, count)]
    sites: list[Site] = []
    columns: dict[int, tuple[int | None, ...]] = {}
    for site in range(len(numbers)):
        of_it = [number for number in range(count) if lines[number][0] == site]
        offsets = [lines[number][2] for number in of_it]
        inside = next((number for number in of_it if first <= number < first + length and times > 1), None)
        moves = _moves(lines, inside, length) if inside is not None else (0,) * len(offsets[0])
        varying = [len({line[place] for line in offsets}) > 1 for place in range(len(offsets[0]))]
        columns[site] = tuple(1 + sum(varying[:place]) if varies else None for place, varies in enumerate(varying))
        sites.append(Site(of_it[0], columns[site], moves))
    width = 1 + max((column or 0 for site in sites for column in site.columns), default=0)
    wide = np.uint16 if plan.arena_bytes <= 0xFFFF else np.uint32
    table = np.zeros((len(kept), width), wide)
    for line, number in enumerate(kept):
        site, is_last, offsets_of_line = lines[number]
        table[line, 0] = site + LAST * is_last
        for column, offset in zip(columns[site], offsets_of_line, strict=True):
            if column is not None:
                table[line, column] = offset
    return Head(count, tuple(sites), table, first, length, times)


def _arguments(plan: Plan, call: Call, number: int) -> tuple[tuple[object, ...], tuple[int, ...]]:
    """Return what is the same of all calls of a site, and the arena's offset of each argument, 0 of others."""
    fixed: list[object] = []
    offsets = []
    for argument, value in zip(call.function.kernel.arguments, _values(plan, call, number), strict=True):
        offset = 0
        if value is not None:
            address = address_of(plan, value)
            fixed += [address.memory, plan.graph.types[value].dtype]
            offset = address.offset if address.memory == "arena" else 0
        elif argument.source == "scratch":
            fixed.append(plan.scratch[number])
        else:
            fixed.append(call.constants[str(argument.source[1])])
        offsets.append(offset)
    return tuple(fixed), tuple(offsets)


def _values(plan: Plan, call: Call, number: int) -> list[str | None]:
    """Return the value of each argument; None: it is scratch or a constant."""
    node = plan.steps[number].node
    found: list[str | None] = []
    for argument in call.function.kernel.arguments:
        source = ("output", 0) if argument.source == "output" else argument.source
        if isinstance(source, str) or source[0] == "constant":
            found.append(None)
        else:
            found.append((node.outputs if source[0] == "output" else node.inputs)[int(source[1])])
    return found


_Line = tuple[int, bool, tuple[int, ...]]


def _moves(lines: Sequence[_Line], number: int, length: int) -> tuple[int, ...]:
    return tuple(b - a for a, b in zip(lines[number][2], lines[number + length][2], strict=True))


def _repeated(lines: Sequence[_Line]) -> tuple[int, int, int]:
    """Return which lines are repeated, with all offsets of a site moved alike: the first, how many, how often."""
    best, saved = (0, len(lines), 1), 0
    for length in range(1, min(LONGEST, len(lines) // 2) + 1):
        start, moves = 0, dict[int, tuple[int, ...]]()
        for number in range(len(lines) - length + 1):
            ends = number == len(lines) - length or lines[number][:2] != lines[number + length][:2]
            if not ends:
                moved = _moves(lines, number, length)
                ends = moves.setdefault(lines[number][0], moved) != moved
            if ends:
                times = (number - start) // length + 1
                if (times - 1) * length > saved:
                    best, saved = (start, length, times), (times - 1) * length
                start, moves = number, {}
                if number < len(lines) - length and lines[number][:2] == lines[number + length][:2]:
                    moves[lines[number][0]] = _moves(lines, number, length)
                else:
                    start = number + 1
    return best


def head_function(plan: Plan, head: Head, functions: Functions, arena: Arena) -> list[str]:
    """Return the C that makes one call of the head, by its number."""
    model, called = plan.graph.name, [_called(plan, functions, arena, site) for site in head.sites]
    c_type = "uint16_t" if head.table.dtype == np.uint16 else "uint32_t"
    lines = [
        comment(
            "One call of the part that is computed as rows arrive; not 0: it is the last that these make possible."
        ),
        f"static int32_t head(uint16_t number, {rows_declared(plan)})",
        "{",
        "    uint32_t line = number;",
        *_line_of(head, is_moved=any(moved for _, moved in called)),
        f"    {c_type} call[{head.width}];",
        f"    MT_FLASH_COPY(call, {model}_head + line * {head.width}, sizeof(call));",
        f"    switch (call[0] & {LAST - 1}u) {{",
    ]
    for number, (text, _) in enumerate(called):
        title = plan.steps[head.sites[number].step].node.title
        label = f"case {number}:" if number < len(called) - 1 else "default:"
        lines += [f"    {label} {comment(title)}", f"        {text}", "        break;"]
    return [*lines, "    }", f"    return (call[0] & {LAST}u) != 0;", "}", ""]


def _line_of(head: Head, *, is_moved: bool) -> list[str]:
    """Return the C that makes the line of the table of a call's number, and `n` where calls depend on the round."""
    if head.times == 1:
        return []
    first, length, end = head.first, head.length, head.first + head.length * head.times
    lines = ["    uint32_t n = 0; /* rounds of what repeats */"] * is_moved
    lines += [f"    if (line >= {end})", f"        line -= {length * (head.times - 1)};"]
    since = f"(line - {first})" if first else "line"
    condition = f"else if (line >= {first})" if first else "else"
    if not is_moved:
        return [*lines, f"    {condition}", f"        line = {first or ''}{' + ' if first else ''}{since} % {length};"]
    return [*lines, f"    {condition} {{", f"        n = {since} / {length};", f"        line -= n * {length};", "    }"]


def _called(plan: Plan, functions: Functions, arena: Arena, site: Site) -> tuple[str, bool]:
    """Return the C of a call, and whether it depends on how often the repeated lines came before."""
    call, model = functions.calls[site.step], plan.graph.name
    arguments, is_moved = [], False
    values = _values(plan, call, site.step)
    for place, (argument, value) in enumerate(zip(call.function.kernel.arguments, values, strict=True)):
        if value is None and argument.source == "scratch":
            spot = arena.scratch.get(site.step)
            arguments.append(arena.pointer(argument.c_type, spot) if spot else arena.no_scratch(argument.c_type))
            continue
        if value is None:
            arguments.append(call.constants[str(argument.source[1])])
            continue
        address, c_type = address_of(plan, value), plan.graph.types[value].dtype.c
        if address.memory != "arena":
            arguments.append("rows")
            continue
        column, move = site.columns[place], site.moves[place]
        offset = f"call[{column}]" if column is not None else str(address.offset)
        if column is not None and move:
            is_moved = True
            offset += f" {'-' if move < 0 else '+'} n * {abs(move)}"
        arguments.append(_pointer(model, c_type, offset))
    return f"{call.function.name}({', '.join(arguments)});", is_moved


def _pointer(model: str, c_type: str, offset: str) -> str:
    place = f"{model}_arena + {offset}"
    return place if c_type == "uint8_t" else f"({c_type} *)(void *)({place})"


def rows_declared(plan: Plan) -> str:
    """Return the C declaration of the pointer to a row of the caller's."""
    assert plan.graph.stream is not None
    return f"const {plan.graph.types[plan.graph.stream.value].dtype.c} *rows"
