"""The entry points of a model with a streamed input: begin, feed and finish, and what the header says of them."""

import textwrap
from collections.abc import Sequence

from mtool.base.escaping import comment
from mtool.compiler.codegen.arena import Interface
from mtool.compiler.codegen.streamed_prefix import Head, head_steps, rows_declared
from mtool.compiler.codegen.wrap import WIDTH
from mtool.compiler.plan import Plan
from mtool.manifest import Tensor

_MOST = 0xFFFF  # rows, and operators
_PLANES = ", the channels of a pixel side by side"  # where the model has them one after the other
_STATUSES = (
    "Each returns MT_OK or, with nothing done, of mt_status.h: MT_BAD_ORDER, no inference has begun, or rows are",
    "missing at the end; MT_BAD_RANGE, these are more rows than are left.",
)
_BEGINS = "; the other inputs are copied then, unless they lie in the arena"


def streamed(plan: Plan, interface: Interface) -> Tensor:
    """Return the tensor whose rows are streamed."""
    assert plan.graph.stream is not None
    return interface.inputs[plan.graph.caller_inputs.index(plan.graph.stream.value)]


def given(plan: Plan, interface: Interface) -> tuple[Tensor, ...]:
    """Return the inputs that are given as a whole: all, if none is streamed."""
    stream = plan.graph.stream
    return tuple(
        tensor
        for value, tensor in zip(plan.graph.caller_inputs, interface.inputs, strict=True)
        if stream is None or value != stream.value
    )


def entry_points(
    plan: Plan,
    head: Head,
    interface: Interface,
    begin: Sequence[str],
    work: Sequence[str],
    end: Sequence[str],
) -> list[str]:
    """Return the C of begin, feed and finish.

    Args:
        plan: of the model.
        head: what is computed as rows arrive.
        interface: its inputs and outputs.
        begin: what copies the other inputs in.
        work: what computes the rest.
        end: what copies the outputs out.
    """
    model = plan.graph.name
    rows = f"{model}_{streamed(plan, interface).c_name}_ROW".upper()
    begins, feeds, finishes = prototypes(plan, interface)
    now = f"{model}_inference"
    assert len(plan.steps) <= _MOST and plan.graph.stream is not None and plan.graph.stream.rows <= _MOST
    inputs = [] if begin or not given(plan, interface) else ["    (void)inputs;"]
    outputs = [] if end else ["    (void)outputs;"]
    return [
        "/* The inference that is under way. */",
        "static struct {",
        "    uint16_t next; /* call of the head */",
        "    uint16_t rows; /* that have come */",
        "    uint16_t wait; /* rows that nobody reads, before the next call */",
        "    uint8_t has_begun;",
        f"}} {now};",
        "",
        begins,
        "{",
        *inputs,
        *begin,
        f"    {now}.next = 0;",
        f"    {now}.rows = 0;",
        f"    {now}.wait = {head.skipped};",
        f"    {now}.has_begun = 1;",
        "    return MT_OK;",
        "}",
        "",
        feeds,
        "{",
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
        "}",
        "",
        finishes,
        "{",
        f"    if (!{now}.has_begun || {now}.rows != {rows}S)",
        "        return MT_BAD_ORDER;",
        f"    {now}.has_begun = 0;",
        *outputs,
        *work,
        *end,
        "    return MT_OK;",
        "}",
        "",
    ]


def prototypes(plan: Plan, interface: Interface) -> tuple[str, str, str]:
    """Return the declarations of begin, feed and finish, without semicolons."""
    model = plan.graph.name
    others = f"const struct {model}_inputs *inputs" if given(plan, interface) else "void"
    return (
        f"int32_t {model}_begin({others})",
        f"int32_t {model}_feed({rows_declared(plan)}, int32_t count)",
        f"int32_t {model}_finish(const struct {model}_outputs *outputs)",
    )


def declared(plan: Plan, interface: Interface) -> list[str]:
    """Return the part of the header that declares the entry points, with what a caller has to know."""
    model, tensor, stream = plan.graph.name, streamed(plan, interface), plan.graph.stream
    assert stream is not None
    kind, upper = plan.graph.types[stream.value], f"{model}_{tensor.c_name}".upper()
    row = kind.count // stream.rows
    begin, feed, finish = prototypes(plan, interface)
    others = given(plan, interface)
    pixels = _PLANES if stream.order and kind.shape[-1] > 1 else ""
    does = [
        f"{model}_begin starts an inference, and forgets one that is under way{_BEGINS if others else ''}.",
        f"{model}_feed takes the next `count` rows, one behind the other: {kind.dtype.label}, {row} elements each"
        f"{pixels}. It computes what they make possible, as far as {stream.until}, and needs them no more.",
        f"{model}_finish computes the rest, after the last row; outputs that do not lie in the arena are copied.",
        f"After {model}_finish begin again. Not re-entrant: there is one arena.",
    ]
    return [
        f"#define {upper}_ROWS {stream.rows}",
        f"#define {upper}_ROW_COUNT {row}",
        "",
        comment(
            f"One inference on rows of {tensor.c_name}, as they arrive; the whole of it is nowhere:",
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
