"""Writes the C of a model (interface, code, constants, RPC descriptor), and its manifest."""

import functools
from dataclasses import dataclass, replace

from mtool.base.filetree import FileTree
from mtool.base.option_values import Weights
from mtool.compiler.codegen import weights
from mtool.compiler.codegen.c_text import written
from mtool.compiler.codegen.calls import calls_of
from mtool.compiler.codegen.conventions import Conventions
from mtool.compiler.codegen.description import interface_of, manifest_of
from mtool.compiler.codegen.entry import operators_header
from mtool.compiler.codegen.external import check_alignment, external_files
from mtool.compiler.codegen.functions import Stored, emit_functions, with_copies_in_pools
from mtool.compiler.codegen.graph import graph_header, graph_json, graph_source
from mtool.compiler.codegen.guard import check_guard, guarded_arena
from mtool.compiler.codegen.header import header
from mtool.compiler.codegen.model import ALONE, CModel, Place
from mtool.compiler.codegen.packed import packed_header, packed_source
from mtool.compiler.codegen.pools import section_of, with_constants_in_pools
from mtool.compiler.codegen.protect import check_protection, protection_of
from mtool.compiler.codegen.rpc import descriptor
from mtool.compiler.codegen.source import apart_sources, source
from mtool.compiler.codegen.state_reset import check_conventions, initial_constants
from mtool.compiler.codegen.streamed import head_of
from mtool.compiler.codegen.weights import ModelConstants, binary_of, weight_overheads
from mtool.compiler.plan import Plan
from mtool.compiler.plan.pools import CONSTANT_ALIGNMENT
from mtool.manifest import (
    Claim,
    Manifest,
)

_UNKNOWN = ModelConstants()  # for a plan without a model file


@dataclass(frozen=True)
class Emitted(CModel):
    """The operators of a model as C functions, from which its manifest and its files are made.

    Attributes:
        read: the model's constants as they were read.
        claims: which backend computes which operator, if backends are requested.
    """

    read: ModelConstants
    claims: tuple[Claim, ...] = ()

    @functools.cached_property
    def manifest(self) -> Manifest:
        """The model's entry in `mtool.json`; computing it writes no C."""
        manifest = manifest_of(self, self.read)
        weight_overhead = weight_overheads(self.plan, self.functions, self.read.operators)
        arena = guarded_arena(self) if self.place.guard else self.place.arena
        symbols = {**manifest.symbols, **({"arena": arena} if arena else {})}
        protection = protection_of(self, manifest.constant_bytes_in_ram)
        changes = {
            "weight_overhead": weight_overhead,
            "claims": self.claims,
            "symbols": symbols,
            "protection": protection,
        }
        return manifest.model_copy(update=changes)

    @property
    def cost(self) -> float:
        """The instructions that the plan's schedules estimate."""
        return sum(self.costs)

    @functools.cached_property
    def code(self) -> FileTree:
        """The model's files except its constants."""
        functions, target, calls = self.functions, self.plan.target, calls_of(self)
        files: dict[str, list[str]] = {
            f"{self}.h": header(self, self.manifest.constant_bytes_in_ram),
            f"{self}.c": source(self, calls),
            f"{self}_operators.h": operators_header(self, calls),
            f"{self}_weights.h": weights.weights_header(
                self.banner, str(self), functions.read, functions.in_ram, flash_is_apart=target.flash_is_apart
            ),
            f"{self}_rpc.c": descriptor(self, calls, self.manifest.protection),
        }
        files |= apart_sources(self)
        if self.conventions.forms:
            files |= {f"{self}_packed.h": packed_header(self), f"{self}_packed.c": packed_source(self)}
        others = {f"{self}.json": graph_json(self.plan)} if self.conventions.has_functions else {}
        if self.conventions.executor == "graph":
            files[f"{self}_graph.h"] = graph_header(self)
            files[f"{self}_graph.c"] = graph_source(self, others[f"{self}.json"])
        tree = written(files, target)
        return FileTree({**tree.files, **{name: text.encode() for name, text in others.items()}}, tree.outline)

    def files(self, weights_as: Weights = "auto") -> FileTree:
        """Return all files of the model.

        Args:
            weights_as: "auto": large constants go into a `.bin` file, unless flash has its own address space; "text":
                all are C.
        """
        model, constants = str(self), self.functions.constants
        as_text, in_ram = weights_as == "text" or self.plan.target.flash_is_apart, self.functions.in_ram
        as_text |= any(pool.alignment > CONSTANT_ALIGNMENT for pool in self.functions.in_pools.values())
        sections = {symbol: section_of(symbol, pool) for symbol, pool in self.functions.in_pools.items()}
        binary = binary_of(model, constants, in_ram, sections, as_text=as_text)
        layouts = self.functions.layouts
        tables = weights.weights_source(self.banner, model, constants, binary, layouts, in_ram, self.functions.in_pools)
        tree = written({f"{model}_weights.c": tables}, self.plan.target)
        large = {binary.name: binary.data} if binary.offsets else {}
        files = {**self.code.files, **tree.files, **large, **external_files(self.plan)}
        return FileTree(files, {**self.code.outline, **tree.outline})


def emit(
    plan: Plan,
    model_file: str,
    model_hash: str,
    conventions: Conventions | None = None,
    read: ModelConstants = _UNKNOWN,
    place: Place = ALONE,
    stored: Stored | None = None,
) -> Emitted:
    """Return the operators of a plan as C functions, with everything else that its files and manifest need.

    Args:
        plan: the schedules and the memory layout.
        model_file: the name of the model's file.
        model_hash: its SHA-256.
        conventions: how the model and its operators are called.
        read: the model's constants as they were read (mtool.compiler.codegen.weights).
        place: the model's place among those of its firmware.
        stored: the functions and constants of the models before it there.

    Raises:
        UsageError: the model does not support the conventions.
        FitError: the constants do not fit the pools.
    """
    chosen = conventions or Conventions()
    check_conventions(plan.graph, chosen)
    check_alignment(plan)
    initial = initial_constants(plan)
    functions = with_copies_in_pools(with_constants_in_pools(emit_functions(plan, stored), initial))
    plan = functions.plan
    graph = plan.graph
    layouts = {**functions.layouts, **dict.fromkeys(initial, "the initial value of a state, row-major")}
    head = head_of(plan, functions)
    table = {} if head is None else {f"{graph.name}_head": head.table}
    layouts |= dict.fromkeys(table, "the calls that rows of the input make possible: which one, offsets in the arena")
    functions = replace(functions, constants={**functions.constants, **initial, **table}, layouts=layouts)
    emitted = Emitted(plan, functions, interface_of(plan), chosen, model_file, model_hash, place, read)
    check_protection(emitted)
    check_guard(emitted)
    return emitted


def generate(
    plan: Plan,
    model_file: str,
    model_hash: str,
    conventions: Conventions | None = None,
    weights_as: Weights = "auto",
    read: ModelConstants = _UNKNOWN,
) -> tuple[FileTree, Manifest]:
    """Return the model's files and manifest; the arguments are those of `emit`. Equal arguments give equal bytes."""
    emitted = emit(plan, model_file, model_hash, conventions, read)
    return emitted.files(weights_as), emitted.manifest
