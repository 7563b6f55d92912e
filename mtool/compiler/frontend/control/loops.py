"""Loop: rounds that the run makes, or a few that are known, written out."""

from functools import partial

import onnx

from mtool.compiler.frontend.control.bodies import alias, body_named
from mtool.compiler.frontend.control.repetition import NeverEnds, NothingOfTheRun, Repetition
from mtool.compiler.frontend.control.rounds import import_rounds, is_short
from mtool.compiler.frontend.control.written_out import loop_written_out, single
from mtool.compiler.frontend.importer import Importer, NotThisWay
from mtool.compiler.frontend.problems import Unsupported
from mtool.compiler.frontend.scope import Bodies, Opsets


def import_loop(state: Importer, proto: onnx.NodeProto, origin: str, opsets: Opsets, bodies: Bodies) -> None:
    """Import a Loop.

    Raises:
        Unsupported: its body does not fit to it, or how many rows it writes is neither known nor stated.
        ModelError: it can only be written out, and exceeds the budget.
    """
    trips, condition, *values = [*proto.input, "", ""][: max(len(proto.input), 2)]
    body = body_named(bodies, "body", 2 + len(values), 1 + max(len(values), len(proto.output)))
    if len(body.graph.output) < 1 + len(values):
        raise Unsupported(f"its body has {len(body.graph.output)} outputs, for {len(values)} values that it carries on")
    limit = max(int(single(state.constants[trips], "M")), 0) if trips in state.constants else None
    going = bool(single(state.constants[condition], "cond")) if condition in state.constants else not condition
    may_be_written_out = going and limit != 0 and (limit is not None or not trips)  # they are the same in each run
    written_out = partial(loop_written_out, state, proto, body, values, limit, origin, opsets)
    is_better = limit is not None and not state.keeps_rounds and is_short(body, limit)
    if may_be_written_out and is_better and written_out():
        return
    asked = Repetition(
        body, trips, condition, values, (), proto.output[: len(values)],
        [(output, False) for output in proto.output[len(values) :]],
        [name for name in (*proto.output, proto.name) if name], ends=True,
    )  # fmt: skip
    in_rounds = partial(import_rounds, state, asked, origin, lambda old, new: alias(state, old, new, opsets))
    try:
        with state.attempt():
            in_rounds()
    except NotThisWay as failed:
        constant = isinstance(failed.reason, NothingOfTheRun)
        may_be_written_out &= not isinstance(failed.reason, NeverEnds)
        if may_be_written_out and written_out(tries=constant):
            return
        if constant:
            in_rounds(constant=True)
        else:
            state.give_up(failed, proto.output)
