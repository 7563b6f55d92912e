"""Write the C of a model: the interface, the code, the constants, the RPC descriptor; and its manifest."""

import functools
from dataclasses import dataclass, replace

from mtool.base.escaping import comment, short_name
from mtool.base.filetree import FileTree
from mtool.base.option_values import Weights
from mtool.compiler.codegen import weights
from mtool.compiler.codegen.arena import PARAMETER, Interface, arena_of
from mtool.compiler.codegen.c_text import written
from mtool.compiler.codegen.calls import calls_of
from mtool.compiler.codegen.conventions import Conventions
from mtool.compiler.codegen.description import interface_of, manifest_of
from mtool.compiler.codegen.entry import operators_header
from mtool.compiler.codegen.external import check_alignment, external_files
from mtool.compiler.codegen.functions import Functions, Stored, emit_functions, with_copies_in_pools
from mtool.compiler.codegen.graph import graph_header, graph_json, graph_source
from mtool.compiler.codegen.header import header
from mtool.compiler.codegen.packed import packed_header, packed_source
from mtool.compiler.codegen.pools import section_of, with_constants_in_pools
from mtool.compiler.codegen.protect import ALONE, Place, check_fence, protection_of
from mtool.compiler.codegen.rpc import descriptor
from mtool.compiler.codegen.source import level_sources, source
from mtool.compiler.codegen.state_reset import check_conventions, initial_constants
from mtool.compiler.codegen.streamed import head_of
from mtool.compiler.codegen.weights import ModelConstants, binary_of, grown_constants
from mtool.compiler.plan import Plan
from mtool.compiler.plan.pools import CONSTANT_ALIGNMENT
from mtool.compiler.plan.shared_arena import costs_of
from mtool.manifest import (
    Claim,
    Manifest,
)
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
        manifest = manifest_of(
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
        files: dict[str, list[str]] = {
            f"{model}.h": header(plan, interface, arena, chosen, banner, self.manifest.constant_bytes_in_ram),
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
        others = {f"{model}.json": graph_json(plan)} if chosen.has_functions else {}
        if chosen.executor == "graph":
            files[f"{model}_graph.h"] = graph_header(plan, banner)
            files[f"{model}_graph.c"] = graph_source(plan, interface, arena, chosen, banner, others[f"{model}.json"])
        tree = written(files, plan.target)
        return FileTree({**tree.files, **{name: text.encode() for name, text in others.items()}}, tree.outline)

    def files(self, weights_as: Weights = "auto") -> FileTree:
        """Return all files of the model.

        Args:
            weights_as: "auto": large constants lie in a `.bin` file, unless flash is apart; "text": all are C.
        """
        model, constants = self.plan.graph.name, self.functions.constants
        as_text, in_ram = weights_as == "text" or self.plan.target.flash_is_apart, self.functions.in_ram
        as_text |= any(pool.alignment > CONSTANT_ALIGNMENT for pool in self.functions.in_pools.values())
        sections = {symbol: section_of(symbol, pool) for symbol, pool in self.functions.in_pools.items()}
        binary = binary_of(model, constants, in_ram, sections, as_text=as_text)
        layouts = self.functions.layouts
        tables = weights.weights_source(
            self._banner, model, constants, binary, layouts, in_ram, self.functions.in_pools
        )
        tree = written({f"{model}_weights.c": tables}, self.plan.target)
        large = {binary.name: binary.data} if binary.offsets else {}
        files = {**self.code.files, **tree.files, **large, **external_files(self.plan)}
        return FileTree(files, {**self.code.outline, **tree.outline})

    @property
    def _banner(self) -> str:
        hashed = f"(sha256 {self.model_hash[:12]})"
        return comment(f"Generated by mtool {__version__} from {short_name(self.model_file)} {hashed}. Do not edit.")


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
        read: the model's constants as they were read (mtool.compiler.codegen.weights).
        place: the model's among those of its firmware.
        stored: the functions and constants of the models before it there.

    Raises:
        UsageError: the model and the conventions do not go together.
        FitError: pools have no room for the constants.
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
