"""Estimate what a firmware needs of each memory of a board, before it is built.

The model's constants, its arena, the buffers and the stack are known. Code is estimated at the upper end: a function's
bytes are its tokens times its schedule's largest ratio in a corpus (`sizes.json`, by scripts/sizes.py), plus the
library functions that it names. The template's own need was measured with a model of one operator, where its framework
could be built; elsewhere it is assumed generously.
"""

import functools
import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from mtool import project
from mtool.base.filetree import FileTree
from mtool.base.frozen import frozen
from mtool.base.option_values import CHANNEL
from mtool.boards import Board
from mtool.compiler.codegen.c_text import parts_of
from mtool.device.build import fit
from mtool.device.build.fit import ARRAY_BYTES_AVR, Need, Part
from mtool.manifest import (
    Manifest,
    bytes_in_memories,
    constants_in_memories,
    total_arena_bytes,
    total_constant_bytes,
)
from mtool.project.levels import hot_sources
from mtool.project.template import Template
from mtool.stages.sizes.c_source import SIZES, CSource, read, sources

_ARMV7 = ("cortex-m3", "cortex-m4", "cortex-m7", "cortex-m33")
_NEAREST = {  # by GCC's name of the board's core: the nearest measured core, and a factor for its bytes
    "cortex-m0": ("thumb1", 1.0),
    "cortex-m0plus": ("thumb1", 1.0),
    "cortex-m1": ("thumb1", 1.0),
    "cortex-m23": ("thumb1", 1.0),
    "cortex-r5": ("thumb2_fpu", 1.6),  # A32: no instruction of 16 bits
    "rv32imc": ("rv32", 1.0),
    "rv32imc_zve32x": ("rv32", 1.0),
    "rv64imac": ("rv32", 1.3),
    "avr5": ("avr", 1.0),
    "avr6": ("avr", 1.0),
}
_UNKNOWN = ("rv32", 1.5)


def core_of(board: Board) -> tuple[str, float]:
    """Return the key of the measured core nearest to a board's, and a factor for its bytes.

    A factor other than 1 is a guess on the safe side: there was no compiler for the core.
    """
    if "mve" in board.features:
        return "mve", 1.0
    if board.cpu in _ARMV7:
        return ("thumb2_fpu" if "fpu" in board.features else "thumb2"), 1.0
    return _NEAREST.get(board.cpu, _UNKNOWN)


TABLE = Path(__file__).with_name("sizes.json")
LEAST_TOKENS = 20
"""Tokens added for a function's call, frame and return."""
WIDE = ":wide"
"""The suffix of a schedule whose ratio is that of functions that compute with 64 bits."""
CALLS = "calls"
"""In place of a schedule: the code that calls the operators, and the RPC server's descriptor."""
MARGIN = 1.1  # for code unlike any in the corpus
_MARGIN_RUNTIME = 1.03  # for another release of the compiler
_USUAL = {"weights", "code", "work", "bits"}  # knobs that mtool sets itself: the measured models have them
_TURNED = 1.5  # a schedule with changed knobs may unroll more than any in the corpus
_ALIGNMENT = 16
_OBJECT_ALIGNMENT = 4
_KIB = 1024
_OWN = {
    "cmake": "baremetal",
    "west": "zephyr",
    "arduino": "arduino",
    "zig": "unicorn",
    "host": "host",
}  # mtool's template, by builder
_ASSUMED = {  # of frameworks that were not available when sizes.json was made
    "zephyr": {"code": 48 * _KIB, "data": 12 * _KIB},
    "arduino": {"code": 64 * _KIB, "data": 16 * _KIB},
    "baremetal": {"code": 12 * _KIB, "data": 1 * _KIB},
    "unicorn": {"code": 14 * _KIB, "data": 1 * _KIB},
    "host": {"code": 0, "data": 0},
}
_UNOPTIMISED = {"-O0": 3.0, "-Og": 1.2}  # of the example on a Cortex-M4: 2.7, 1.07


@frozen
class Estimate:
    """The need of each memory, and what the board's compiler does not accept at all."""

    needs: tuple[Need, ...]
    refused: tuple[str, ...] = ()


def estimate(
    files: FileTree, manifest: Manifest, board: Board, template: Template, options: Mapping[str, str | int | bool]
) -> Estimate:
    """Return the memory that a compiled model's firmware needs on a board: the most of the template's firmware kinds.

    Args:
        files: the model's C.
        manifest: the model's manifest.
        board: the board, as the template places things (`Board.placed_by`).
        template: the template.
        options: the value of each of its options.
    """
    names = [name for name in sources(files) if name in files.outline]
    c_source, hot = (
        _read(tuple(part for name in some for part in parts_of(files, name)))
        for some in (names, hot_sources(names, [model.model for model in manifest.models]))
    )
    kinds = [_of_kind(kind, c_source, hot, manifest, board, template, options) for kind in template.firmware]
    needs = []
    beside, constants = bytes_in_memories(manifest.models), constants_in_memories(manifest.models)
    for name, memory in board.memories.items():
        shares = [tuple(share for role, share in parts if board.region_for(role) == name) for parts in kinds]
        most = max(shares, key=lambda parts: sum(part.bytes for part in parts), default=())
        buffers = sum(model.device_buffers.get(name, 0) for model in manifest.models)
        most += (Part("backends' buffers", buffers),) * bool(buffers)
        most += (Part("pools", beside.get(name, 0)),) * (name in beside)
        most += (Part("constants", constants.get(name, 0)),) * (name in constants)
        if most or memory.is_always_used:
            needs.append(Need(name, memory.size, most))
    too_large = [line for model in manifest.models for line in _too_large(files, model)]
    refused = tuple(dict.fromkeys(too_large)) if core_of(board)[0] == "avr" else ()
    return Estimate(tuple(needs), refused)


_read = functools.lru_cache(maxsize=16)(read)


def _of_kind(
    kind: str,
    c_source: CSource,
    hot: CSource,
    manifest: Manifest,
    board: Board,
    template: Template,
    options: Mapping[str, str | int | bool],
) -> list[tuple[str, Part]]:
    """Return the parts of a firmware kind, each with the role of the memory that holds it."""
    core, factor = core_of(board)
    entry = table()["cores"][core]
    level = str(options.get("opt", ""))
    factor *= float(entry["optimise"].get(level, _UNOPTIMISED.get(level, 1.0)))
    runtime = runtime_of(kind, board, template)
    served = kind != "standalone"
    models = manifest.models
    tensors = [tensor for model in models for tensor in (*model.inputs, *model.outputs)]
    outside = sum(tensor.outside_bytes + 8 for tensor in tensors if tensor.arena_offset is None)
    count = sum(len(model.constants) for model in models)
    placed = sum(constants_in_memories(models).values())
    ring = ["uart_ring_bytes"] if options.get(CHANNEL, "uart") == "uart" else []
    buffers = sum(int(options.get(name, 0)) for name in ("rpc_buffer_bytes", *ring)) if served else 0
    parts = [
        ("weights", Part("weights", total_constant_bytes(models) - placed + _OBJECT_ALIGNMENT * count)),
        ("code", Part("the model's code", round(MARGIN * factor * code_of(c_source, manifest, entry)), estimated=True)),
        ("hot_code", Part("code", round(MARGIN * factor * code_of(hot, manifest, entry)), estimated=True)),
        ("code", Part("libraries", round(MARGIN * factor * libraries_of(c_source, entry)), estimated=True)),
        ("code", Part("runtime", round(_MARGIN_RUNTIME * factor * runtime["code"]), estimated=True)),
        ("code", Part("tables", c_source.table_bytes, estimated=True)),
        ("arena", Part("arena", _aligned(total_arena_bytes(models) - sum(bytes_in_memories(models).values())))),
        ("data", Part("tensors of the caller", outside)),
        ("data", Part("server's buffers", buffers)),
        (
            "data",
            Part("data", round(_MARGIN_RUNTIME * runtime["data"]) + c_source.data_bytes + _ALIGNMENT, estimated=True),
        ),
        ("data", Part("weights in RAM", sum(model.constant_bytes_in_ram for model in models))),
        ("stack", Part("stack", int(options.get("stack_bytes", 0)))),
    ]
    if core == "avr":  # which reads weights in flash by other instructions
        parts.append(("data", Part("tables", c_source.table_bytes, estimated=True)))
    return [(role, part) for role, part in parts if part.bytes]


def runtime_of(kind: str, board: Board, template: Template) -> Mapping[str, int]:
    """Return the bytes of code and data that a template's firmware takes without the model."""
    kind_of_template = template.name if template.name in _ASSUMED else _OWN[template.builder]
    if template.name in board.takes:
        return board.takes[template.name].model_dump()
    measured = table()["templates"].get(kind_of_template, {})
    by_kind = measured.get(board.cpu) or measured.get(core_of(board)[0]) or {}
    result: Mapping[str, int] = by_kind.get(kind) or _ASSUMED[kind_of_template]
    return result


def code_of(c_source: CSource, manifest: Manifest, entry: Mapping[str, Any]) -> float:
    """Return the estimated bytes of the model's functions on a core, at the upper end."""
    ratios: Mapping[str, float] = entry["bytes_per_token"]
    largest = max(ratio for key, ratio in ratios.items() if not key.endswith(WIDE))
    operators = [operator for model in manifest.models for operator in model.operators]
    schedules = {operator.function: operator.schedule for operator in operators}
    for operator in operators:
        schedules |= operator.calls
    total = 0.0
    for name, function in c_source.functions.items():
        schedule, _, knobs = schedules.get(name, CALLS).partition(":")
        key = schedule + (WIDE if function.is_wide else "")
        ratio = ratios.get(key, max(largest, ratios.get(schedule, 0), ratios.get(schedule + WIDE, 0)))
        turned = {knob.partition("=")[0] for knob in knobs.split(",") if knob} - _USUAL
        total += ratio * (function.tokens + LEAST_TOKENS) * (_TURNED if turned else 1)
    shared: Mapping[str, int] = entry["functions"]
    executors: Mapping[str, int] = entry["executors"]
    called = sum(_shared_bytes(name, shared, c_source.macros) for name in c_source.called)
    return total + called + sum(executors[name] for name in c_source.included if name in executors)


def _shared_bytes(name: str, shared: Mapping[str, int], defined: Collection[str]) -> int:
    """Return the bytes of a function that operators share; if it was not measured, the largest of its kind.

    Other functions of the headers are inlined: a schedule's bytes a token have them.
    """
    if name in shared or name not in defined or not name.startswith("mt_dsp_"):
        return shared.get(name, 0)
    kind = "_".join(name.split("_")[:3])  # behind it are the scaling and the loop
    return max((size for other, size in shared.items() if f"{other}_".startswith(f"{kind}_")), default=0)


def libraries_of(c_source: CSource, entry: Mapping[str, Any]) -> int:
    """Return the estimated bytes that a model needs of the C and compiler libraries, at the upper end."""
    kind = "wide" if c_source.is_wide else "float" if c_source.has_float else "integer"
    library: Mapping[str, int] = entry["library"]
    named = sum(
        library.get(name, library.get(name.removesuffix("f"), 0)) for name in c_source.called
    )  # an AVR's expf is exp
    return min(named + int(entry["arithmetic"][kind]), int(entry["library_most"]))


@functools.cache
def table() -> Mapping[str, Any]:
    """Read sizes.json."""
    read_table: Mapping[str, Any] = json.loads(TABLE.read_text())
    return read_table


def _too_large(files: FileTree, manifest: Manifest) -> tuple[str, ...]:
    """Return a line for each constant that is too large for the AVR compiler."""
    lines = []
    for part in parts_of(files, f"{manifest.model}_weights.h"):
        head, _, count = part.removesuffix("];").partition("[")
        size = int(count) * SIZES[head.split()[-2]] if part.kind == "declaration" else 0
        if size > ARRAY_BYTES_AVR:
            lines.append(f"{part.name} is an array of {size:,} B; the compiler accepts at most {ARRAY_BYTES_AVR:,} B")
    return tuple(lines)


def _aligned(count: int) -> int:
    return -(-count // _ALIGNMENT) * _ALIGNMENT + (_ALIGNMENT - 1 if count else 0)


def refuse_certain(
    files: FileTree, manifest: Manifest, board: Board, template: str, template_options: Mapping[str, str]
) -> None:
    """Fail if a build can't succeed: the constants and the arena alone exceed a memory.

    Args:
        files: the model's C.
        manifest: the model's manifest.
        board: the board to build for.
        template: the template's name or folder; empty: the board's first.
        template_options: the values of its options, as text.

    Raises:
        FitError: they do; the lines are those of `mtool check`.
    """
    name = template or next(iter(board.templates), "")
    if not name or not board.memories:
        return
    chosen = project.load(name)
    placed = board.placed_by(chosen.name)
    models = manifest.models
    beside, constants = bytes_in_memories(models), constants_in_memories(models)
    weights = total_constant_bytes(models) - sum(constants.values())
    shares = {"weights": weights, "arena": total_arena_bytes(models) - sum(beside.values())}
    for region, memory in placed.memories.items():
        needed = sum(count for role, count in shares.items() if placed.region_for(role) == region)
        if needed + beside.get(region, 0) + constants.get(region, 0) > memory.size:
            estimated = estimate(files, manifest, placed, chosen, chosen.read_options(template_options, board))
            raise fit.error(estimated.needs, manifest, placed)
