"""Write the C of a model: the interface, the code, the constants, the RPC descriptor; and its manifest."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from mtool.codegen import weights
from mtool.codegen.addresses import address_of
from mtool.codegen.arena import PARAMETER, Interface, arena_of, pool_symbol
from mtool.codegen.binary import binary_of
from mtool.codegen.calls import calls_of, operands_of
from mtool.codegen.constant_pools import bytes_in, section_of, with_constants_in_pools
from mtool.codegen.conventions import Conventions
from mtool.codegen.device import devices_of
from mtool.codegen.external import check_alignment, external_files
from mtool.codegen.flash import qualified
from mtool.codegen.functions import Functions, Stored, emit_functions, with_copies_in_pools
from mtool.codegen.graph import graph_header, graph_source
from mtool.codegen.graph_json import graph_json
from mtool.codegen.growth import ModelConstants, grown_constants
from mtool.codegen.head import head_of
from mtool.codegen.header import header
from mtool.codegen.lent import lent_bytes
from mtool.codegen.operators import operators_header
from mtool.codegen.packed import function_names, packed_header, packed_source
from mtool.codegen.place import ALONE, Place
from mtool.codegen.protect import check_fence, protection_of
from mtool.codegen.rpc import descriptor
from mtool.codegen.sized import dims_of, reshapes_of
from mtool.codegen.source import level_sources, source
from mtool.codegen.state_reset import check_conventions, initial_constants, states_of
from mtool.escaping import comment, encodable, short_name
from mtool.filetree import FileTree
from mtool.identifiers import tensor_names
from mtool.ir import Graph, Node, RunTimeSize, Stream
from mtool.kernels.schedule import schedule_text
from mtool.kernels.weighted_sum import as_computed
from mtool.manifest import (
    Claim,
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
)
from mtool.ops.external.node import External
from mtool.option_values import Weights
from mtool.plan import Plan, Step
from mtool.plan.constant_pools import ALIGNMENT
from mtool.plan.control import ControlSchedule, plans_in
from mtool.plan.interleaved import costs_of
from mtool.plan.pool import PlacedPool, Pool
from mtool.version import __version__

_UNKNOWN = ModelConstants()  # of a plan that was not made of a file


@dataclass(frozen=True)
class Emitted:
    """The operators of a model as C functions; its manifest and its files are made of them.

    Attributes:
        plan: what is computed how, and where all lies; its constants without their elements.
        functions: the operators' C, and the constants.
        interface: the model's inputs, outputs and states.
        conventions: how the model and its operators are called.
        model_file: the name of the model's file.
        model_hash: its SHA-256.
        read: the model's constants as they were read.
        claims: who computes which operator, if backends were asked for.
        place: the model's among those of its firmware.
    """

    plan: Plan
    functions: Functions
    interface: Interface
    conventions: Conventions
    model_file: str
    model_hash: str
    read: ModelConstants
    claims: tuple[Claim, ...] = ()
    place: Place = ALONE

    @functools.cached_property
    def manifest(self) -> Manifest:
        """What `mtool.json` says of the model; no C is written for it."""
        manifest = _manifest(
            self.plan, self.functions, self.interface, self.conventions, self.model_file, self.model_hash, self.read
        )
        grown = grown_constants(self.plan, self.functions, self.read.operators)
        symbols = {**manifest.symbols, **({"arena": self.place.arena} if self.place.arena else {})}
        fence = protection_of(self.plan, self.interface, self.place, manifest.constant_bytes_in_ram)
        changes = {"grown": grown, "claims": self.claims, "symbols": symbols, "protection": fence}
        return manifest.model_copy(update=changes)

    @functools.cached_property
    def costs(self) -> tuple[float, ...]:
        """The instructions of each operator, as its schedule estimates them."""
        return tuple(costs_of(self.plan))

    @property
    def cost(self) -> float:
        """The instructions that the plan's schedules estimate."""
        return sum(self.costs)

    @functools.cached_property
    def code(self) -> FileTree:
        """The model's files without its constants."""
        plan, functions, interface, chosen, banner = (
            self.plan, self.functions, self.interface, self.conventions, self._banner
        )  # fmt: skip
        model = plan.graph.name
        symbol = PARAMETER if chosen.context else self.place.arena
        arena = arena_of(plan, interface, symbol, functions.copied)
        calls = calls_of(plan, functions, interface, arena, chosen)
        files = {
            f"{model}.h": header(plan, interface, arena, chosen, banner),
            f"{model}.c": source(plan, functions, calls, interface, arena, chosen, banner, self.place),
            f"{model}_operators.h": operators_header(plan, banner, functions, calls, arena, chosen),
            f"{model}_weights.h": weights.weights_header(
                banner, model, functions.read, functions.in_ram, flash_is_apart=plan.target.flash_is_apart
            ),
            f"{model}_rpc.c": descriptor(
                plan, calls, interface, arena, chosen, banner, self.model_hash, self.place, self.manifest.protection
            ),
        }
        files |= level_sources(plan, functions, banner)
        if chosen.forms:
            files[f"{model}_packed.h"] = packed_header(plan, chosen, banner)
            files[f"{model}_packed.c"] = packed_source(plan, functions, interface, arena, chosen, banner)
        if chosen.has_functions:
            files[f"{model}.json"] = graph_json(plan)
        if chosen.executor == "graph":
            files[f"{model}_graph.h"] = graph_header(plan, banner)
            files[f"{model}_graph.c"] = graph_source(plan, interface, arena, chosen, banner, files[f"{model}.json"])
        return FileTree({name: self._encoded(text) for name, text in files.items()})

    def files(self, weights_as: Weights = "auto") -> FileTree:
        """Return all files of the model.

        Args:
            weights_as: "auto": large constants lie in a `.bin` file, unless flash is apart; "text": all are C.
        """
        model, constants = self.plan.graph.name, self.functions.constants
        as_text, in_ram = weights_as == "text" or self.plan.target.flash_is_apart, self.functions.in_ram
        as_text |= any(pool.alignment > ALIGNMENT for pool in self.functions.in_pools.values())
        binary = binary_of(model, constants, in_ram, self._sections, as_text=as_text)
        layouts = self.functions.layouts
        tables = self._encoded(
            weights.weights_source(self._banner, model, constants, binary, layouts, in_ram, self.functions.in_pools)
        )
        large = {binary.name: binary.data} if binary.offsets else {}
        return FileTree({**self.code.files, f"{model}_weights.c": tables, **large, **external_files(self.plan)})

    @property
    def _sections(self) -> dict[str, str]:
        """The sections of constants that lie in memories by name."""
        return {symbol: section_of(symbol, pool) for symbol, pool in self.functions.in_pools.items()}

    @property
    def _banner(self) -> str:
        hashed = f"(sha256 {self.model_hash[:12]})"
        return comment(f"Generated by mtool {__version__} from {short_name(self.model_file)} {hashed}. Do not edit.")

    def _encoded(self, text: str) -> bytes:
        return qualified(text, self.plan.target).encode()


def emit(
    plan: Plan,
    model_file: str,
    model_hash: str,
    conventions: Conventions | None = None,
    read: ModelConstants = _UNKNOWN,
    place: Place = ALONE,
    stored: Stored | None = None,
) -> Emitted:
    """Return the operators of a plan as C functions, and what the files and the manifest are made of besides.

    Args:
        plan: what is computed how, and where all lies.
        model_file: the name of the model's file.
        model_hash: its SHA-256.
        conventions: how the model and its operators are called.
        read: the model's constants as they were read (mtool.codegen.growth).
        place: the model's among those of its firmware.
        stored: the functions and constants of the models before it there.

    Raises:
        UsageError: the model and the conventions do not go together.
    """
    chosen = conventions or Conventions()
    check_conventions(plan, chosen)
    check_alignment(plan)
    check_fence(plan, chosen, place)
    initial = initial_constants(plan)
    functions = with_copies_in_pools(with_constants_in_pools(emit_functions(plan, stored), initial))
    plan = functions.plan
    graph = plan.graph
    layouts = {**functions.layouts, **dict.fromkeys(initial, "the initial value of a state, row-major")}
    head = head_of(plan, functions)
    table = {} if head is None else {f"{graph.name}_head": head.table}
    layouts |= dict.fromkeys(table, "the calls that rows of the input make possible: which one, offsets in the arena")
    functions = replace(functions, constants={**functions.constants, **initial, **table}, layouts=layouts)
    interface = interface_of(plan)
    return Emitted(plan, functions, interface, chosen, model_file, model_hash, read, place=place)


def interface_of(plan: Plan) -> Interface:
    """Return the inputs, outputs and states of a model whose plan is made."""
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


def generate(
    plan: Plan,
    model_file: str,
    model_hash: str,
    conventions: Conventions | None = None,
    weights_as: Weights = "auto",
    read: ModelConstants = _UNKNOWN,
) -> tuple[FileTree, Manifest]:
    """Return the model's files and its manifest, as `emit` has them; the same bytes for the same arguments."""
    emitted = emit(plan, model_file, model_hash, conventions, read)
    return emitted.files(weights_as), emitted.manifest


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
        scale=quant.scale if quant else None,
        zero_point=quant.zero_point if quant else None,
        axis=quant.axis if quant else None,
        count=count,
        count_axis=count_axis,
        dims=dims_of(graph, value),
        range=next((_range(size) for size in graph.sizes if size.value == value), None),
        stream=None if stream is None else _stream(stream, kind.bytes),
    )


def _stream(stream: Stream, size: int) -> RowStream:
    return RowStream(rows=stream.rows, row_bytes=size // stream.rows, order=stream.order, until=stream.until)


def _range(size: RunTimeSize) -> SizeRange:
    return SizeRange(dimension=size.name, symbol=size.symbol, least=size.least, most=size.most)


def _manifest(
    plan: Plan,
    functions: Functions,
    interface: Interface,
    conventions: Conventions,
    model_file: str,
    model_hash: str,
    read: ModelConstants,
) -> Manifest:
    graph = plan.graph
    live = sum(step.op.macs(as_computed(step.node), graph) for step in plan.steps)
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
            reads=_operands(plan, operands_of(plan, step.node)[0]),
            writes=_operands(plan, operands_of(plan, step.node)[1]),
            constant_bytes=sum(functions.read[name].nbytes for name in functions.calls[number].constants.values()),
            scratch_offset=plan.place(plan.scratch[number] or 0)[1],
            scratch_pool=plan.place(plan.scratch[number] or 0)[0],
            constants_in=_memory_of_constants(functions, number),
            scratch_bytes=step.scratch_bytes,
            **_backend(step.node),
        )
        for number, step in enumerate(plan.steps)
    )
    macs = sum(operator.macs for operator in operators)
    return Manifest(
        mtool_version=__version__,
        model=graph.name,
        model_file=encodable(model_file),
        model_hash=model_hash,
        io=plan.io,
        inputs=interface.inputs,
        outputs=interface.outputs,
        states=interface.states,
        macs=macs,
        live_macs=live if live < macs else 0,
        parameters=read.parameters,
        arena_bytes=plan.arena_bytes,
        arena_bound_bytes=plan.arena_bound_bytes,
        constant_bytes=weights.total_bytes(functions.read),
        constants=tuple(functions.read),
        shared_constant_bytes=weights.total_bytes(functions.borrowed),
        constant_bytes_in_ram=weights.total_bytes({name: functions.constants[name] for name in functions.in_ram}),
        symbols={
            "run": f"{graph.name}_{'run' if graph.stream is None else 'finish'}",
            "arena": f"{graph.name}_arena" if not plan.pools else _arena_pool(plan),
            **({"reset": f"{graph.name}_reset"} if graph.states else {}),
        },
        operators=operators,
        interface_api=conventions.interface,
        operators_api=conventions.operators,
        executor=conventions.executor,
        caller_has_arena=conventions.context,
        functions=function_names(plan, conventions),
        graph=f"{graph.name}.json" if conventions.has_functions else "",
        lent=lent_bytes(plan),
        pools=tuple(_pool(graph.name, one) for one in plan.pools),
        constant_pools=tuple(_constant_pool(functions, one) for one in plan.constant_pools),
        inner_regions=_inner_regions(plan),
    )


def _memory_of_constants(functions: Functions, number: int) -> str:
    """Return the pool that holds copies of all constants of a step; empty: there are none."""
    symbols = {*functions.calls[number].constants.values()}
    if not symbols or not symbols <= {*functions.copied}:
        return ""
    return functions.plan.pools[functions.copied[min(symbols)].pool].pool.name


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
    own = (symbol for symbol, one in functions.in_pools.items() if one.name == pool.name)
    return ConstantPool(
        name=pool.name,
        bytes=bytes_in(functions, pool),
        limit_bytes=pool.bytes,
        waits=pool.speed,
        section=pool.section,
        constants={symbol: functions.constants[symbol].nbytes for symbol in own},
    )


def _arena_pool(plan: Plan) -> str:
    """Return the symbol of the pool that lies where the board's arena is; empty: there is none."""
    return next((pool_symbol(plan.graph.name, one.pool.name) for one in plan.pools if one.pool.is_arena), "")


def _inner_regions(plan: Plan) -> tuple[InnerRegion, ...]:
    """Return the regions of branches and loops that may fail."""
    return tuple(
        InnerRegion(key=key, name=node.name, backend=External.of(node).backend, operator=number, origins=node.origins)
        for key, number, node in devices_of(plan).regions
        if key >= len(plan.steps)
    )


def _backend(node: Node) -> dict[str, Any]:
    """Return who computes an operator, if it is not mtool's own C."""
    attrs = node.attrs
    return {"backend": attrs.backend, "device_cycles": attrs.cycles} if isinstance(attrs, External) else {}


def _operands(plan: Plan, values: Sequence[str]) -> tuple[Operand, ...]:
    graph = plan.graph
    found = []
    for value in values:
        kind, address = graph.types[value], address_of(plan, value)
        assert address.memory != "states", f"{value} lies outside of the arena"
        operand = Operand(
            value=value,
            dtype=kind.dtype.label,
            shape=kind.shape,
            bytes=kind.bytes,
            memory=address.memory,
            index=address.index,
            offset=address.offset,
            source=_source(graph, value),
            dims=dims_of(graph, value),
        )
        found.append(operand)
    return tuple(found)


def _source(graph: Graph, value: str) -> Source | None:
    source = graph.sources.get(value)
    if source is None:
        return None
    return Source(tensor=source.tensor, moves=source.moves, reshapes=reshapes_of(graph, value))


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
