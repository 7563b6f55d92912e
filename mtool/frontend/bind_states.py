"""Bind states: pairs of an output and the input of the next call that it feeds leave the interface of a model."""

from collections.abc import Mapping
from dataclasses import replace

from mtool import spelling
from mtool.errors import ModelError, UsageError
from mtool.escaping import argument
from mtool.frontend.options import Pairs
from mtool.ir import Graph, State
from mtool.ir.types import Array


def bind_states(graph: Graph, pairs: Pairs, initial: Mapping[str, Array], title: str) -> Graph:
    """Make states of pairs of outputs and inputs.

    Args:
        graph: as imported: its values have the model's own names.
        pairs: of an output and an input.
        initial: values of inputs at the first call; those that are not in it begin as zeros.
        title: the model's name in messages.

    Raises:
        UsageError: there is no such output or input, an input is fed twice, or the two are of different types.
        ModelError: an initial value has another shape than its input.
    """
    if not pairs:
        return graph
    wrong = [line for output, value in pairs for line in _wrong_names(graph, output, value)]
    if wrong:
        raise UsageError(f"--state names what {title} has not", details=wrong, hint=_candidates(graph))
    varying = [output for output, _ in pairs if output in graph.counts]
    if varying:
        raise UsageError(
            f"--state keeps {', '.join(varying)} of {title}, whose size depends on data",
            hint="a state is of one size throughout",
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
    for value, data in initial.items():
        if data.shape != graph.types[value].shape:
            raise ModelError(
                f"the initialiser of {value!r} in {title} has another shape than the input",
                details=[f"expected  {graph.types[value]}", f"found     [{','.join(map(str, data.shape))}]"],
            )
    values = dict(zip(graph.output_names, graph.outputs, strict=True))
    sent = {output for output, _ in pairs}
    names = [name for name in graph.output_names if name not in sent] + [output for output, _ in pairs]
    return replace(
        graph,
        inputs=(*(value for value in graph.inputs if value not in fed), *fed),
        outputs=tuple(values[name] for name in names),
        output_names=tuple(names),
        states=tuple(State(output, value, initial.get(value)) for output, value in pairs),
    )


def _wrong_names(graph: Graph, output: str, value: str) -> list[str]:
    found = []
    for what, name, names in (("output", output, graph.output_names), ("input", value, graph.inputs)):
        if name not in names:
            near = spelling.near(name, names)
            known = f"near: {', '.join(near)}" if near else f"it has: {', '.join(names) or 'none'}"
            found.append(f"no {what} {name!r}; {known}")
    return found


def _candidates(graph: Graph) -> str:
    """Return a pair that would do: the first input with an output of its type."""
    for value in graph.inputs:
        for name, output in zip(graph.output_names, graph.outputs, strict=True):
            if graph.types[output] == graph.types[value]:
                pair = argument(f"{name}:{value}")
                return f"--state OUT:IN, an output and the input that it feeds, for instance: --state {pair}"
    return "--state OUT:IN, an output and the input that it feeds"
