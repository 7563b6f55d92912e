"""Bind states: an output that feeds an input of the next call becomes, with that input, a state of the model."""

from collections.abc import Mapping
from dataclasses import field, replace

import numpy as np

from mtool.base import spelling
from mtool.base.errors import UsageError
from mtool.base.escaping import argument
from mtool.base.frozen import frozen
from mtool.compiler.frontend.options import Pairs
from mtool.compiler.frontend.user_values import does_not_fit, limits_of, stored_as
from mtool.compiler.ir import Graph, State, TensorType
from mtool.compiler.ir.types import Array
from mtool.compiler.operators.budget import Budget


@frozen
class States:
    """Pairs of an output and an input of a model, and the inputs' initial values.

    `initial` has an input's initial value: an array, or one number for all elements. Without it, all elements are the
    number in `zeros`, a quantized input's zero point, or 0.
    """

    pairs: Pairs = ()
    initial: Mapping[str, Array] = field(default_factory=dict)
    zeros: Mapping[str, int] = field(default_factory=dict)


def bind_states(graph: Graph, states: States, title: str, budget: Budget) -> Graph:
    """Turn pairs of outputs and inputs into states.

    Args:
        graph: the imported graph, whose values have the model's own names.
        states: the pairs, and their initial values.
        title: the model's name in messages.
        budget: the limits of the import.

    Raises:
        UsageError: there is no such output or input, an input is fed twice, the types of a pair differ, or an initial
            value does not fit its input.
        ModelError: the initial values exceed the budget.
    """
    pairs = states.pairs
    strange = sorted(set(states.initial) - {value for _, value in pairs})
    if strange:
        raise UsageError(f"{title} has no state {', '.join(strange)}, but an initial value is given for it")
    if not pairs:
        return graph
    wrong = [line for output, value in pairs for line in _wrong_names(graph, output, value)]
    if wrong:
        problem = f"--state names an output or input that {title} does not have"
        raise UsageError(problem, details=wrong, hint=_candidates(graph))
    varying = [output for output, _ in pairs if output in graph.counts]
    if varying:
        raise UsageError(
            f"--state can't keep {', '.join(varying)} of {title}: its size depends on data",
            hint="a state must have a fixed size",
        )
    fed = [value for _, value in pairs]
    twice = sorted({value for value in fed if fed.count(value) > 1})
    if twice:
        raise UsageError(f"--state feeds {', '.join(twice)} of {title} from more than one output")
    types = {output: graph.types[value] for output, value in zip(graph.output_names, graph.outputs, strict=True)}
    differing = [
        line
        for output, value in pairs
        if types[output] != graph.types[value]
        for line in (f"expected  {value} {graph.types[value]}, the input", f"found     {output} {types[output]}")
    ]
    if differing:
        raise UsageError(
            f"--state pairs an output of {title} with an input of another type or shape",
            details=differing,
            hint="a symbolic dimension is set with --dim NAME=N",
        )
    sizes = [graph.types[value].bytes for value in fed if value in states.initial or states.zeros.get(value)]
    budget.afford("constants", sum(sizes), f"the initial values of the states of {title}")
    values = dict(zip(graph.output_names, graph.outputs, strict=True))
    sent = {output for output, _ in pairs}
    names = [name for name in graph.output_names if name not in sent] + [output for output, _ in pairs]
    return replace(
        graph,
        inputs=(*(value for value in graph.inputs if value not in fed), *fed),
        outputs=tuple(values[name] for name in names),
        output_names=tuple(names),
        states=tuple(State(output, value, _first(graph.types[value], value, states, title)) for output, value in pairs),
    )


def _first(kind: TensorType, value: str, states: States, title: str) -> Array | None:
    """Return a state's initial value; None: zeros.

    Raises:
        UsageError: the value does not fit the input.
    """
    if value not in states.initial:
        point = states.zeros.get(value, 0)
        return np.full(kind.shape, point, kind.dtype.numpy) if point else None
    initial = np.asarray(states.initial[value])
    data = np.broadcast_to(initial.reshape(()), kind.shape) if initial.size == 1 else initial
    stored = stored_as(data, kind.dtype.numpy)
    if data.shape != kind.shape or stored is None:
        expected = f"{kind}{limits_of(kind.dtype.numpy)}, or one number"
        raise does_not_fit(f"the initial value of the state {value!r}", title, expected, initial)
    return stored


def _wrong_names(graph: Graph, output: str, value: str) -> list[str]:
    problems = []
    for role, name, names in (("output", output, graph.output_names), ("input", value, graph.inputs)):
        if name not in names:
            near = spelling.near(name, names)
            hint = f"did you mean {', '.join(near)}?" if near else f"it has: {', '.join(names) or 'none'}"
            problems.append(f"no {role} {name!r}; {hint}")
    return problems


def _candidates(graph: Graph) -> str:
    """Return a hint with a possible pair: the first input that has an output of its type."""
    for value in graph.inputs:
        for name, output in zip(graph.output_names, graph.outputs, strict=True):
            if graph.types[output] == graph.types[value]:
                pair = argument(f"{name}:{value}")
                return f"give an output and the input that it feeds, for example --state {pair}"
    return "give an output and the input that it feeds: --state OUT:IN"
