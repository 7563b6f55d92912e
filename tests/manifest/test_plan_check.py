"""The checker of memory plans catches every wrong plan: those of real models, each with one fault."""

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import convolutional
import numpy as np
import onnx
import pytest
import stateful
from graphs import model
from onnx import helper

from mtool.base import resources
from mtool.base.errors import MtoolError
from mtool.boards import get
from mtool.compiler.codegen.conventions import Conventions
from mtool.compiler.compilation import compile_models
from mtool.compiler.request import Request
from mtool.manifest import Manifest, Operand, Operator
from mtool.manifest.plan_check import check_plans

MUTANTS = 200
DIGITS = resources.path("examples/digits") / "digits_int8.onnx"
BOARD = "nucleo_l4r5zi"


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> list[Manifest]:
    """Manifests with scratch, states, line buffers, and a long-lived tensor; and two models that share an arena."""
    folder = tmp_path_factory.mktemp("models")
    stream, pairs = stateful.stream(quantized=True, channels=8)
    onnx.save(stream, folder / "stream.onnx")
    onnx.save(convolutional.images()[0], folder / "images.onnx")
    nodes = [helper.make_node("Softmax", [a], [b]) for a, b in ("xa", "ab", "bc")]
    nodes.append(helper.make_node("Add", ["a", "c"], ["y"]))
    onnx.save(model(nodes, {"x": (np.float32, (4, 25))}, ["y"]), folder / "residual.onnx")
    board = get(BOARD)
    requests = {
        DIGITS: Request(),
        folder / "stream.onnx": Request(states=tuple(pairs)),
        folder / "images.onnx": Request(partial="always"),
        folder / "residual.onnx": Request(),
    }
    alone = [compile_models([one], board).manifest for one in requests.items()]
    steps = Conventions(interface="step")
    both = [(path, replace(request, conventions=steps)) for path, request in [*requests.items()][:2]]
    return [*alone, *compile_models(both, board, "interleaved").manifests[:1]]


def _changed(plan: Manifest, change: Callable[[Operator], dict[str, Any]]) -> Manifest:
    return plan.model_copy(update={"operators": tuple(one.model_copy(update=change(one)) for one in plan.operators)})


def _moved(plan: Manifest, tensor: str, offset: int) -> Manifest:
    """Return a plan with a tensor at another place, for all operators that access it."""

    def moved(operands: tuple[Operand, ...]) -> tuple[Operand, ...]:
        own = {"offset": offset}
        return tuple(one.model_copy(update=own) if one.value == tensor else one for one in operands)

    return _changed(plan, lambda one: {"reads": moved(one.reads), "writes": moved(one.writes)})


def _uses(plan: Manifest) -> dict[str, tuple[int, int, Operand]]:
    """Return the tensors in the arena that are written and later read as a whole: by which operators, and where."""
    found = {}
    for writer in plan.operators:
        for tensor in writer.writes:
            readers = [one.index for one in plan.operators for read in one.reads if read.value == tensor.value]
            views = {part for one in plan.operators for read in one.reads for part in read.parts}
            if tensor.memory == "arena" and tensor.bytes and readers and tensor.value not in views:
                found[tensor.value] = writer.index, max(readers), tensor
    return found


def _mutants(plan: Manifest, chance: random.Random) -> Iterator[tuple[str, Manifest]]:
    """Yield plans with one fault each, and what it is."""
    uses, operators = _uses(plan), [*plan.operators]
    tensor, (writer, reader, at) = chance.choice([*uses.items()])
    end = max(at.offset + at.bytes for _, _, at in uses.values())
    others = [one for one in uses.values() if one[0] < writer < one[1] and one[2].value != tensor]
    if others:
        yield "over a live tensor", _moved(plan, tensor, chance.choice(others)[2].offset)
    yield "behind the arena", _moved(plan, tensor, plan.arena_bytes - at.bytes + 4 * chance.randrange(1, 9))
    yield "before the arena", _moved(plan, tensor, -4 * chance.randrange(1, 9))
    yield "too small an arena", plan.model_copy(update={"arena_bytes": chance.randrange(end)})

    def one_read_moved(one: Operator) -> dict[str, Any]:
        moved = {"offset": at.offset + 4 * chance.choice([-1, 1])}
        own = one.index == reader
        reads = (read.model_copy(update=moved) if own and read.value == tensor else read for read in one.reads)
        return {"reads": tuple(reads)}

    yield "read elsewhere", _changed(plan, one_read_moved)
    left = operators[:writer] + operators[writer + 1 :]
    yield "never written", plan.model_copy(update={"operators": tuple(left)})
    late = [*left[:reader], operators[writer], *left[reader:]]
    yield "written too late", plan.model_copy(update={"operators": tuple(late)})
    grown = at.model_copy(update={"bytes": at.bytes + 1})
    yield "too long", _changed(plan, lambda one: {"writes": (grown,)} if one.index == writer else {})
    shared = [one for one in operators for w in one.writes for r in one.reads if one.in_place and w.offset == r.offset]
    if shared:
        forbidden = chance.choice(shared).index
        yield "in place without leave", _changed(plan, lambda one: {"in_place": ()} if one.index == forbidden else {})
    scratch = [one for one in operators if one.scratch_bytes]
    if scratch:
        user = chance.choice(scratch)
        live = [use[2].offset for use in uses.values() if use[0] <= user.index <= use[1]]
        if live:
            place = {"scratch_offset": chance.choice(live)}
            yield "scratch over a tensor", _changed(plan, lambda one: place if one.index == user.index else {})
    for kept in plan.states[:1]:
        begin = {"arena_offset": plan.arena_bytes - kept.bytes + 1}
        yield "a state elsewhere", plan.model_copy(update={"states": (kept.model_copy(update=begin), *plan.states[1:])})
    if plan.outputs[0].arena_offset is not None:
        begin = {"arena_offset": plan.outputs[0].arena_offset + 4}
        output = plan.outputs[0].model_copy(update=begin)
        yield "an output elsewhere", plan.model_copy(update={"outputs": (output, *plan.outputs[1:])})


def test_every_wrong_plan_is_caught(plans: list[Manifest]) -> None:
    chance, kinds, tried = random.Random(0), set[str](), 0
    for plan in plans:
        check_plans([plan])
    while tried < MUTANTS:
        for kind, mutant in _mutants(chance.choice(plans[:4]), chance):
            kinds.add(kind)
            tried += 1
            with pytest.raises(MtoolError, match="the memory plan of"):
                check_plans([mutant])
                pytest.fail(f"{mutant.model}: {kind}")
    assert len(kinds) == 12, sorted(kinds)


def test_models_that_share_an_arena_keep_out_of_each_others_states(plans: list[Manifest]) -> None:
    digits, stream = plans[4].models
    check_plans([digits, stream])
    moved = [one.model_copy(update={"arena_offset": digits.operators[0].writes[0].offset}) for one in stream.states]
    with pytest.raises(MtoolError, match=r"is written over model_stream's state cache0"):
        check_plans([digits, stream.model_copy(update={"states": tuple(moved)})])
    everywhere = tuple(range(1, len(stream.operators)))
    with pytest.raises(MtoolError, match="where a tensor of digits_int8 was written"):
        check_plans([digits, _shifted(stream.model_copy(update={"pauses": everywhere}), digits)])


def _shifted(plan: Manifest, onto: Manifest) -> Manifest:
    """Return a plan whose first tensor lies where another model writes."""
    tensor = next(iter(_uses(plan)))
    return _moved(plan, tensor, onto.operators[0].writes[0].offset)
