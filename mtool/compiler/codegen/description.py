"""Describes a model: its interface, and the contents of `mtool.json` about it and each of its operators."""

import functools
from typing import Any

from mtool.base.escaping import encodable
from mtool.base.identifiers import tensor_names
from mtool.compiler.codegen import contract, weights
from mtool.compiler.codegen.arena import Interface, address_of, pool_symbol
from mtool.compiler.codegen.calls import operands_of
from mtool.compiler.codegen.external import device_buffer_bytes
from mtool.compiler.codegen.functions import Functions
from mtool.compiler.codegen.model import CModel
from mtool.compiler.codegen.packed import function_names
from mtool.compiler.codegen.pools import bytes_in
from mtool.compiler.codegen.state_reset import states_of
from mtool.compiler.codegen.tensors import dims_of, parts_of, reshapes_of
from mtool.compiler.codegen.weights import ModelConstants
from mtool.compiler.ir import Node
from mtool.compiler.kernels.expression_cost import cost_of
from mtool.compiler.kernels.external import External
from mtool.compiler.kernels.loop import Loop
from mtool.compiler.kernels.schedule import schedule_text
from mtool.compiler.kernels.weighted_sum import as_computed
from mtool.compiler.plan import Plan, Step
from mtool.compiler.plan.pool import PlacedPool, Pool
from mtool.compiler.plan.whole import ControlSchedule, plans_in
from mtool.manifest import (
    ConstantPool,
    InnerRegion,
    Manifest,
    Operand,
    Operator,
    PoolOfArena,
    RowStream,
    SizeRange,
    Source,
    Tensor,
    Window,
)
from mtool.version import __version__

_SOFTWARE_FLOAT = 100  # instructions of a float operation that a core computes in software, at most about
_AN_ELEMENT = 20  # instructions for each element that an operator reads or writes, at least about


def _instructions(model: CModel) -> int:
    """Return a rough upper estimate of the instructions of an inference: what its schedules estimate, or more."""
    plan, graph, total = model.plan, model.graph, 0.0
    for step, cost in zip(plan.steps, model.costs, strict=True):
        kinds = [graph.types[value] for value in (*step.node.inputs, *step.node.outputs) if value]
        cost = max(cost, _AN_ELEMENT * sum(kind.count for kind in kinds))
        if isinstance(step.node.attrs, Loop):
            cost = max(cost, graph.types[step.node.outputs[0]].count * cost_of(step.node.attrs.expr))
        has_floats = any(kind.dtype.is_float for kind in kinds)
        total += cost * (1 if plan.target.has_float or not has_floats else _SOFTWARE_FLOAT)
    return round(total)


def interface_of(plan: Plan) -> Interface:
    """Return the inputs, outputs and states of a planned model."""
    graph = plan.graph
    labels = [*graph.caller_inputs, *graph.output_names[: len(graph.caller_outputs)]]
    names = tensor_names([*labels, *(state.input for state in graph.states)])
    tensors = [
        _tensor(plan, value, name, c_name)
        for value, name, c_name in zip(
            [*graph.caller_inputs, *graph.caller_outputs], labels, names[: len(labels)], strict=True
        )
    ]
    return Interface(
        tuple(tensors[: len(graph.caller_inputs)]),
        tuple(tensors[len(graph.caller_inputs) :]),
        states_of(plan, names[len(labels) :]),
    )


def manifest_of(model: CModel, read: ModelConstants) -> Manifest:
    """Return the manifest of a model, without its claims, memory protection and grown constants."""
    plan, functions, interface, graph = model.plan, model.functions, model.interface, model.graph
    conventions = model.conventions
    live = sum(step.op.macs(as_computed(step.node), graph) for step in plan.steps)
    operand = functools.cache(functools.partial(_operand, plan))
    operators = tuple(
        Operator(
            index=number,
            name=step.node.name,
            whole=step.node.whole,
            function=functions.calls[number].function.name,
            label=step.op.label(step.node, graph),
            schedule=schedule_text(step.schedule),
            calls=_called(step, functions),
            origins=step.node.origins,
            shape=shape_text(plan, number),
            macs=step.op.macs(step.node, graph),
            reads=tuple(map(operand, reads)),
            writes=tuple(map(operand, writes)),
            in_place=tuple(
                (reads.index(read), writes.index(step.node.outputs[written]))
                for read, written in (
                    (step.node.inputs[place], over) for place, over in step.schedule.overwrites(step.node, graph)
                )
                if read in reads
            ),
            constant_bytes=sum(functions.read[name].nbytes for name in functions.calls[number].constants.values()),
            scratch_offset=plan.place(plan.scratch[number] or 0)[1],
            scratch_pool=plan.place(plan.scratch[number] or 0)[0],
            constants_in=_memory_of_constants(functions, number),
            scratch_bytes=step.scratch_bytes,
            **_backend(step.node),
        )
        for number, step in enumerate(plan.steps)
        for reads, writes in [operands_of(plan, step.node)]
    )
    macs = sum(operator.macs for operator in operators)
    in_ram = weights.total_bytes({name: data for name, data in functions.constants.items() if name in functions.in_ram})
    return Manifest(
        mtool_version=__version__,
        model=graph.name,
        model_file=encodable(model.model_file),
        model_hash=model.model_hash,
        io=plan.io,
        inputs=interface.inputs,
        outputs=interface.outputs,
        states=interface.states,
        macs=macs,
        live_macs=live if live < macs else 0,
        instructions=_instructions(model),
        parameters=read.parameters,
        arena_bytes=plan.arena_bytes,
        arena_bound_bytes=plan.arena_bound_bytes,
        constant_bytes=weights.total_bytes(functions.read),
        constants=tuple(functions.read),
        shared_constant_bytes=weights.total_bytes(functions.borrowed),
        constant_bytes_in_ram=in_ram,
        symbols={
            "run": f"{graph.name}_{'run' if graph.stream is None else 'finish'}",
            "arena": next((pool_symbol(graph.name, p.pool.name) for p in plan.pools if p.pool.is_arena), "")
            if plan.pools
            else f"{graph.name}_arena",
            **({"reset": f"{graph.name}_reset"} if graph.states else {}),
        },
        operators=operators,
        interface_api=conventions.interface,
        operators_api=conventions.operators,
        executor=conventions.executor,
        caller_has_arena=conventions.context,
        entry_points=contract.entry_points(model),
        in_ram=contract.variables(model, in_ram),
        uses_fpu=plan.target.has_float,
        functions=function_names(plan, conventions),
        graph=f"{graph.name}.json" if conventions.has_functions else "",
        device_buffers=device_buffer_bytes(plan),
        pools=tuple(_pool(graph.name, placed) for placed in plan.pools),
        constant_pools=tuple(_constant_pool(functions, pool) for pool in plan.constant_pools),
        inner_regions=tuple(
            InnerRegion(
                key=key, name=node.name, backend=External.of(node).backend, operator=number, origins=node.origins
            )
            for key, number, node in model.devices.regions
            if key >= len(plan.steps)
        ),
    )


def _tensor(plan: Plan, value: str, name: str, c_name: str) -> Tensor:
    graph = plan.graph
    kind, quant = graph.types[value], graph.quant.get(value) or graph.quant.get(name)
    count, count_axis = graph.counts.get(name, (None, None)) if value not in graph.inputs else (None, None)
    stream = graph.stream if graph.stream is not None and graph.stream.value == value else None
    return Tensor(
        name=name,
        c_name=c_name,
        dtype=kind.dtype.label,
        shape=kind.shape if stream is None else stream.of_model(kind.shape),
        bytes=kind.bytes,
        arena_offset=None if value not in plan.offsets else plan.place(plan.offsets[value])[1],
        pool=plan.place(plan.offsets[value])[0] if value in plan.offsets else 0,
        parts=parts_of(graph, value) or (() if value == name else (value,)),
        scale=quant.scale if quant else None,
        zero_point=quant.zero_point if quant else None,
        axis=quant.axis if quant else None,
        count=count,
        count_axis=count_axis,
        dims=dims_of(graph, value),
        range=next(
            (
                SizeRange(dimension=size.name, symbol=size.symbol, least=size.least, most=size.most)
                for size in graph.sizes
                if size.value == value
            ),
            None,
        ),
        window=next((Window(axis=s.axis or 0, rows=s.rows) for s in graph.slides if s.value == value), None),
        stream=None
        if stream is None
        else RowStream(rows=stream.rows, row_bytes=kind.bytes // stream.rows, order=stream.order, until=stream.until),
    )


def _memory_of_constants(functions: Functions, number: int) -> str:
    """Return the pool that holds copies of all constants of a step; empty: there are none."""
    symbols = {*functions.calls[number].constants.values()}
    if not symbols or not symbols <= {*functions.copied}:
        return ""
    return functions.plan.pools[functions.copied[min(symbols)].spot.pool].pool.name


def _pool(model: str, placed: PlacedPool) -> PoolOfArena:
    pool = placed.pool
    return PoolOfArena(
        name=pool.name,
        symbol=pool_symbol(model, pool.name),
        bytes=placed.bytes,
        constant_bytes=placed.constant_bytes,
        limit_bytes=pool.bytes,
        alignment=placed.alignment,
        waits=pool.speed,
        section=pool.section,
        is_arena=pool.is_arena,
    )


def _constant_pool(functions: Functions, pool: Pool) -> ConstantPool:
    symbols = (symbol for symbol, other in functions.in_pools.items() if other.name == pool.name)
    return ConstantPool(
        name=pool.name,
        bytes=bytes_in(functions, pool),
        limit_bytes=pool.bytes,
        waits=pool.speed,
        section=pool.section,
        constants={symbol: functions.constants[symbol].nbytes for symbol in symbols},
    )


def _backend(node: Node) -> dict[str, Any]:
    """Return the backend that computes an operator, if it is not mtool's own C."""
    attrs = node.attrs
    return {"backend": attrs.backend, "device_cycles": attrs.cycles} if isinstance(attrs, External) else {}


def _operand(plan: Plan, value: str) -> Operand:
    graph = plan.graph
    kind, address, source = graph.types[value], address_of(plan, value), graph.sources.get(value)
    assert address.memory != "states", f"{value} lies outside of the arena"
    return Operand(
        value=value,
        dtype=kind.dtype.label,
        shape=kind.shape,
        bytes=kind.bytes,
        memory=address.memory,
        index=address.index,
        offset=address.offset,
        parts=parts_of(graph, value),
        source=None
        if source is None
        else Source(tensor=source.tensor, moves=source.moves, reshapes=reshapes_of(graph, value)),
        dims=dims_of(graph, value),
    )


def _called(step: Step, functions: Functions) -> dict[str, str]:
    """Return the functions that a control node calls, and the schedule of each."""
    if not isinstance(step.schedule, ControlSchedule):
        return {}
    inside = {id(plan) for body in step.schedule.plans for plan in plans_in(body)}
    return {
        function.name: schedule_text(use.plan.steps[use.number].schedule)
        for function in functions.functions
        for use in function.uses[:1]
        if id(use.plan) in inside
    }


def shape_text(plan: Plan, number: int) -> str:
    """Return "int8[49,10,1] -> int8[25,5,64]" for a step."""
    node, graph = plan.steps[number].node, plan.graph
    inputs = [str(graph.types[value]) for value in node.inputs if value not in graph.constants]
    return f"{', '.join(dict.fromkeys(inputs))} -> {graph.types[node.outputs[0]]}"
