"""The entry points of a model with a streamed input: begin, feed and finish, and their declarations."""

import textwrap
from collections.abc import Sequence

import numpy as np

from mtool.base.escaping import comment
from mtool.base.frozen import frozen
from mtool.compiler.codegen import contract
from mtool.compiler.codegen.arena import address_of, pointer_to
from mtool.compiler.codegen.c_text import WIDTH, function, structure
from mtool.compiler.codegen.functions import Functions, described
from mtool.compiler.codegen.model import CModel
from mtool.compiler.ir.types import Array
from mtool.compiler.plan import Plan
from mtool.compiler.plan.memory import aliases
from mtool.manifest import Tensor

# The head of a model with a streamed input: a table of calls, because each row makes a few of them possible.
#
# The calls of an operator differ in the arena offsets of their rows. The table has a line for each call: the
# operator's number in a `switch`, and the offsets. Repeated lines, as for the rows of an image, are stored once.


LONGEST = 600  # calls of what repeats
SITE_BITS = {2: 9, 4: 16}  # of a line's first number, by its bytes; the others report rows


@frozen
class Site:
    """A call in C that makes several of the table's calls: its step, and which of its arguments vary.

    columns: for each argument, the column of its offset in the table; None: it is always the same.
    moves: for each argument, by how many bytes it advances in each round of the repeated lines.
    """

    step: int
    columns: tuple[int | None, ...]
    moves: tuple[int, ...]


@frozen
class Head:
    """The calls that are made as rows arrive.

    Attributes:
        skipped: the unused rows at the beginning.
        sites: the calls in C.
        table: a line for each call: the number of its site, and in the bits above how many more rows the next call
            needs (0: none, it follows at once); then offsets in the arena.
        first, length, times: the `length` lines from `first` on are repeated `times` times.
    """

    skipped: int
    sites: tuple[Site, ...]
    table: Array
    first: int
    length: int
    times: int


@frozen
class _Line:
    """A call: its site, how many more rows the next one needs, the arena offset of each argument (0: none)."""

    site: int
    wait: int
    offsets: tuple[int, ...]

    def moved(self, other: "_Line") -> tuple[int, ...] | None:
        """Return by how many bytes another line's arguments are further on; None: it is a different call."""
        if (self.site, self.wait) != (other.site, other.wait):
            return None
        return tuple(after - before for before, after in zip(self.offsets, other.offsets, strict=True))


def head_steps(plan: Plan) -> int:
    """Return how many of the model's first steps are computed as rows arrive; 0: no input is streamed."""
    stream = plan.graph.stream
    if stream is None:
        return 0
    return 1 + max(number for number, step in enumerate(plan.steps) if step.node.title == stream.until)


def head_of(plan: Plan, functions: Functions) -> Head | None:
    """Return the head of a model; None: no input is streamed."""
    count = head_steps(plan)
    if not count:
        return None
    lines = _lines(plan, functions, count)
    first, length, times = _repeated(lines)
    distinct = [line for number, line in enumerate(lines) if not first + length <= number < first + length * times]
    sites = []
    for site in range(1 + max(line.site for line in lines)):
        numbers = [number for number, line in enumerate(lines) if line.site == site]
        varies = [len({*place}) > 1 for place in zip(*(lines[number].offsets for number in numbers), strict=True)]
        columns = tuple(1 + sum(varies[:place]) if varying else None for place, varying in enumerate(varies))
        inside = next((number for number in numbers if times > 1 and first <= number < first + length), None)
        moves = lines[inside].moved(lines[inside + length]) if inside is not None else None
        sites.append(Site(numbers[0], columns, moves or (0,) * len(columns)))
    table = _table(distinct, sites, plan.arena_bytes)
    return Head(next(iter(_arrived_rows(plan).values())), tuple(sites), table, first, length, times)


def _arrived_rows(plan: Plan) -> dict[int, int]:
    """Return the caller's row that each step takes, for the steps that take one."""
    stream, lies, rows = plan.graph.stream, aliases(plan.graph), dict[int, int]()
    assert stream is not None
    row_bytes = plan.graph.types[stream.value].bytes // stream.rows
    for number, step in enumerate(plan.steps):
        for root, offset in (lies[value] for value in step.node.inputs):
            if root == stream.value:
                rows[number] = offset // row_bytes
    return rows


def _lines(plan: Plan, functions: Functions, count: int) -> list[_Line]:
    rows, row = _arrived_rows(plan), 0
    sites: dict[object, int] = {}
    lines = []
    for number in range(count):
        call = described(plan, functions.calls[number], number)
        row = rows.get(number, row)
        wait = 1 if number + 1 == count else rows.get(number + 1, row) - row if number >= min(rows) else 0
        names = functions.calls[number].operands(plan.steps[number].node)
        is_inside = (kind == "value" and address_of(plan, name).memory == "arena" for kind, name in names)
        offsets = tuple(offset * inside for offset, inside in zip(call.offsets, is_inside, strict=True))
        lines.append(_Line(sites.setdefault(call.same, len(sites)), wait, offsets))
    return lines


def _table(lines: Sequence[_Line], sites: Sequence[Site], arena_bytes: int) -> Array:
    width = 1 + max((column or 0 for site in sites for column in site.columns), default=0)
    bits = SITE_BITS[2]
    is_small = len(sites) <= 1 << bits and max(line.wait for line in lines) < 1 << 16 - bits and arena_bytes < 1 << 16
    table = np.zeros((len(lines), width), np.uint16 if is_small else np.uint32)
    for row, line in zip(table, lines, strict=True):
        row[0] = line.site + (line.wait << SITE_BITS[table.itemsize])
        for column, offset in zip(sites[line.site].columns, line.offsets, strict=True):
            if column is not None:
                row[column] = offset
    return table


def _repeated(lines: Sequence[_Line]) -> tuple[int, int, int]:
    """Return the repeated lines, where all offsets of a site advance alike: the first, their number, the rounds."""
    best, saved = (0, len(lines), 1), 0
    for length in range(1, min(LONGEST, len(lines) // 2) + 1):
        start, moves = 0, dict[int, tuple[int, ...]]()
        for number in range(len(lines) - length + 1):
            line = lines[number] if number < len(lines) - length else None
            moved = line.moved(lines[number + length]) if line else None
            if line and moved is not None and moves.setdefault(line.site, moved) == moved:
                continue
            times = (number - start) // length + 1
            if (times - 1) * length > saved:
                best, saved = (start, length, times), (times - 1) * length
            start, moves = number, {} if line is None or moved is None else {line.site: moved}
            start += moved is None
    return best


def head_function(model: CModel, head: Head) -> list[str]:
    """Return the function that makes one call of the head, by its number."""
    called = [_called(model, site) for site in head.sites]
    wide, bits = f"uint{8 * head.table.itemsize}_t", SITE_BITS[head.table.itemsize]
    width = head.table.shape[1]
    note = "One call of the part that is computed as rows arrive; returns how many more rows the next one needs."
    lines = [
        "    uint32_t line = number;",
        *_line_of(head, is_moved=any(moved for _, moved in called)),
        f"    {wide} call[{width}];",
        f"    MT_FLASH_COPY(call, {model}_head + line * {width}, sizeof(call));",
        f"    switch (call[0] & {(1 << bits) - 1}u) {{",
    ]
    for number, (text, _) in enumerate(called):
        title = model.plan.steps[head.sites[number].step].node.title
        label = f"case {number}:" if number < len(called) - 1 else "default:"
        lines += [f"    {label} {comment(title)}", f"        {text}", "        break;"]
    lines += ["    }", f"    return (int32_t)(call[0] >> {bits});"]
    head_call = f"static int32_t {model}_head_call(uint16_t number, {rows_declared(model.plan)})"
    return [comment(note), function(head_call, *lines)]


def _line_of(head: Head, *, is_moved: bool) -> list[str]:
    """Return the C that finds a call's line in the table, and `n` if calls depend on the round."""
    if head.times == 1:
        return []
    first, length, end = head.first, head.length, head.first + head.length * head.times
    since, plus = (f"(line - {first})", f"{first} + ") if first else ("line", "")
    inside = f"else if (line >= {first})" if first else "else"
    lines = ["    uint32_t n = 0; /* rounds of what repeats */"] * is_moved
    lines += [f"    if (line >= {end})", f"        line -= {length * (head.times - 1)};"]
    if not is_moved:
        return [*lines, f"    {inside}", f"        line = {plus}{since} % {length};"]
    lines += [f"    {inside} {{", f"        n = {since} / {length};"]
    return [*lines, f"        line -= n * {length};", "    }"]


def _called(model: CModel, site: Site) -> tuple[str, bool]:
    """Return the C of a call, and whether it depends on the round of the repeated lines."""
    plan, arena, call = model.plan, model.arena, model.functions.calls[site.step]
    node = plan.steps[site.step].node
    arguments, is_moved = [], False
    varying = zip(call.function.kernel.arguments, call.operands(node), site.columns, site.moves, strict=True)
    for argument, (kind, name), column, move in varying:
        if kind == "scratch":
            arguments.append(arena.scratch_of(site.step, argument.c_type))
        elif kind == "constant":
            arguments.append(arena.constant(name))
        elif (address := address_of(plan, name)).memory != "arena":
            arguments.append("rows")
        else:
            offset = str(address.offset) if column is None else f"call[{column}]"
            if column is not None and move:
                is_moved = True
                offset += f" {'-' if move < 0 else '+'} n * {abs(move)}"
            arguments.append(pointer_to(plan.graph.types[name].dtype.c, f"{arena.base(address.index)} + {offset}"))
    return f"{call.function.name}({', '.join(arguments)});", is_moved


def rows_declared(plan: Plan) -> str:
    """Return the C declaration of the pointer to the caller's rows."""
    assert plan.graph.stream is not None
    return f"const {plan.graph.types[plan.graph.stream.value].dtype.c} *rows"


_MOST = 0xFFFF  # rows, and operators
_PLANES = ", with the channels of a pixel adjacent"  # if the model stores them one after the other
_STATUSES = (
    "Each returns MT_OK or, without doing anything, from mtool.h: MT_BAD_ORDER, no inference has begun, or rows",
    "are missing at the end; MT_BAD_RANGE, more rows than are left.",
)
_BEGINS = "; the other inputs are copied then, unless they lie in the arena"


def streamed(model: CModel) -> Tensor:
    """Return the tensor whose rows are streamed."""
    assert model.graph.stream is not None
    return model.interface.inputs[model.graph.caller_inputs.index(model.graph.stream.value)]


def whole_inputs(model: CModel) -> tuple[Tensor, ...]:
    """Return the inputs that are not streamed."""
    stream = model.graph.stream
    return tuple(
        tensor
        for value, tensor in zip(model.graph.caller_inputs, model.interface.inputs, strict=True)
        if stream is None or value != stream.value
    )


def entry_points(model: CModel, head: Head, begin: Sequence[str], work: Sequence[str], end: Sequence[str]) -> list[str]:
    """Return the C of begin, feed and finish.

    Args:
        model: the model.
        head: the calls that are made as rows arrive.
        begin: the C that copies the other inputs in.
        work: the C that computes the rest.
        end: the C that copies the outputs out.
    """
    plan, now = model.plan, f"{model}_inference"
    rows = f"{model}_{streamed(model).c_name}_ROW".upper()
    begins, feeds, finishes = prototypes(model)
    assert len(plan.steps) <= _MOST and plan.graph.stream is not None and plan.graph.stream.rows <= _MOST
    inputs = [] if begin or not whole_inputs(model) else ["    (void)inputs;"]
    outputs = [] if end else ["    (void)outputs;"]
    return [
        "/* The inference in progress. */",
        structure(
            now,
            [
                "uint16_t next; /* call of the head */",
                "uint16_t rows; /* received so far */",
                "uint16_t wait; /* rows to skip before the next call */",
                "uint8_t has_begun;",
            ],
        ),
        "",
        function(
            begins,
            *inputs,
            *begin,
            f"    {now}.next = 0;",
            f"    {now}.rows = 0;",
            f"    {now}.wait = {head.skipped};",
            f"    {now}.has_begun = 1;",
            "    return MT_OK;",
        ),
        function(
            feeds,
            f"    if (!{now}.has_begun)",
            "        return MT_BAD_ORDER;",
            f"    if (count < 0 || count > {rows}S - {now}.rows)",
            "        return MT_BAD_RANGE;",
            f"    for (; count > 0; --count, ++{now}.rows, rows += {rows}_COUNT) {{",
            f"        if ({now}.wait > 0) {{",
            f"            --{now}.wait;",
            "            continue;",
            "        }",
            "        int32_t wait = 0;",
            f"        while (wait == 0 && {now}.next < {head_steps(plan)})",
            f"            wait = {model}_head_call({now}.next++, rows);",
            f"        {now}.wait = (uint16_t)(wait > 0 ? wait - 1 : 0);",
            "    }",
            "    return MT_OK;",
        ),
        function(
            finishes,
            f"    if (!{now}.has_begun || {now}.rows != {rows}S)",
            "        return MT_BAD_ORDER;",
            f"    {now}.has_begun = 0;",
            *outputs,
            *work,
            *end,
            "    return MT_OK;",
        ),
    ]


def prototypes(model: CModel) -> tuple[str, str, str]:
    """Return the declarations of begin, feed and finish, without semicolons."""
    others = f"const struct {model}_inputs *inputs" if whole_inputs(model) else "void"
    return (
        f"int32_t {model}_begin({others})",
        f"int32_t {model}_feed({rows_declared(model.plan)}, int32_t count)",
        f"int32_t {model}_finish(const struct {model}_outputs *outputs)",
    )


def declared(model: CModel) -> list[str]:
    """Return the part of the header that declares the entry points, with comments for the caller."""
    tensor, stream = streamed(model), model.graph.stream
    assert stream is not None
    kind, upper = model.graph.types[stream.value], f"{model}_{tensor.c_name}".upper()
    row = kind.count // stream.rows
    begin, feed, finish = prototypes(model)
    others = whole_inputs(model)
    pixels = _PLANES if stream.order and kind.shape[-1] > 1 else ""
    does = [
        f"{model}_begin starts an inference and drops one in progress{_BEGINS if others else ''}.",
        f"{model}_feed takes the next `count` rows, one after the other: {kind.dtype.label}, {row} elements each"
        f"{pixels}. It computes what these rows allow, up to {stream.until}, and does not read them again.",
        f"{model}_finish computes the rest after the last row, and copies outputs that lie outside the arena.",
        f"After {model}_finish, begin again. {contract.NOT_REENTRANT}",
    ]
    return [
        f"#define {upper}_ROWS {stream.rows}",
        f"#define {upper}_ROW_COUNT {row}",
        "",
        comment(
            f"One inference on rows of {tensor.c_name}, as they arrive; it is never stored as a whole:",
            "",
            f"    {model}_begin({'&inputs' if others else ''});",
            f"    for (int32_t row = 0; row < {upper}_ROWS; ++row) {{",
            "        ... a camera's next line, the features of the next window ...",
            f"        {model}_feed(line, 1);",
            "    }",
            f"    {model}_finish(&outputs);",
            "",
            *textwrap.wrap(" ".join(does), WIDTH - 10),
            "",
            *textwrap.wrap(" ".join(_STATUSES), WIDTH - 10),
            apart=True,
        ),
        f"{begin};",
        f"{feed};",
        f"{finish};",
    ]
