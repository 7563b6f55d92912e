"""Memory protection around a model (--protect): the areas that it may access, derived from its plan, and their C.

crt/include/mtool.h describes it on the device. The linker script of a template that supports it groups the variables of
each model's files, and the inputs outside the arena, and defines symbols for both ends of each.
"""

from collections.abc import Sequence

from mtool.base.errors import UsageError
from mtool.base.escaping import comment
from mtool.boards.protection import Unit
from mtool.compiler.codegen.arena import ARENA_ALIGNMENT
from mtool.compiler.codegen.c_text import columns, listed
from mtool.compiler.codegen.external import device_buffer_bytes
from mtool.compiler.codegen.model import CModel, Place
from mtool.compiler.plan import Plan
from mtool.compiler.plan.shared_arena import is_kept
from mtool.manifest import Area, Protection

_BY_LINKER = ("variables", "constants")
_SETTINGS = 8  # bytes of RAM, at most, that the C library's functions read
_VARIABLES = 64  # bytes, of a model without outputs outside of the arena, at most


def check_protection(model: CModel) -> None:
    """Refuse models with code that runs outside their areas.

    Raises:
        UsageError: functions are called by name, or a device computes a part of the model.
    """
    conventions = model.conventions
    if model.place.unit is None:
        return
    if conventions.has_functions or conventions.forms or conventions.executor != "aot":
        raise UsageError(
            "--protect does not work with packed functions and graph executors",
            hint="choose --interface-api c, step or feed, --operators-api typed and --executor aot",
        )
    if model.devices.regions or device_buffer_bytes(model.plan):
        raise UsageError(
            "--protect gives a model no access to devices, but a backend's device computes a part of this one",
            hint="leave --protect or --backend out",
        )


def protection_of(model: CModel, in_ram: int) -> Protection | None:
    """Return the memory protection of a model; None: none. `in_ram`: the bytes of constants in RAM."""
    plan, interface, unit = model.plan, model.interface, model.place.unit
    if unit is None:
        return None
    areas = [_area(unit, "constants", 0, _SETTINGS + in_ram)]
    areas += [_area(unit, *span) for span in _spans(plan, model.place)]
    outside = [tensor.bytes + 3 for tensor in interface.outputs] if plan.io == "external" else []
    inputs = [tensor.bytes + 3 for tensor in interface.inputs if tensor.stream is None and plan.io == "external"]
    inputs += [tensor.stream.row_bytes for tensor in interface.inputs if tensor.stream is not None]
    if inputs:
        areas.append(_area(unit, "inputs", 0, sum(inputs)))
    areas.append(_area(unit, "variables", 0, _VARIABLES + sum(outside)))
    return Protection.model_validate({"unit": unit.name, "areas": tuple(areas)})


def _area(unit: Unit, name: str, offset: int, used: int) -> Area:
    """Return an area of `used` bytes, or of about that size if the linker lays it out."""
    sizes = {} if name in _BY_LINKER else {"used": used, "bytes": unit.padded(used)}
    access = "write" if name in ("arena", "states", "variables") else "read"
    granule = unit.granule(used)
    alignment = granule if name == "arena" else unit.window(used)
    return Area.model_validate(
        {"name": name, "access": access, "granule": granule, "alignment": alignment, "offset": offset, **sizes}
    )


def _spans(plan: Plan, place: Place) -> list[tuple[str, int, int]]:
    """Return the model's parts of the arena: all of it, or of a shared one its states and what follows all states."""
    if not plan.arena_bytes:
        return []
    if not place.arena:
        return [("arena", 0, plan.arena_bytes)]
    states = [(offset, piece.bytes) for piece, offset in plan.storages if is_kept(plan, piece)]
    others = [(offset, piece.bytes) for piece, offset in plan.storages if not is_kept(plan, piece)]
    spans = []
    for name, pieces in (("states", states), ("arena", others)):
        if pieces:
            begin = min(offset for offset, _ in pieces)
            end = plan.arena_bytes if name == "arena" else max(offset + size for offset, size in pieces)
            spans.append((name, begin, end - begin))
    return spans


def areas_table(model: CModel, arena: str, protection: Protection) -> list[str]:
    """Return the C of the table of areas for the RPC server, with a comment for readers."""
    bounds = [area for area in ("inputs", "variables") if protection.area(area) is not None]
    symbols = [f"{model}_{name}_{end}" for name in bounds for end in ("start", "end")]
    lines = [
        comment(*_map(protection), apart=True),
        f"extern uint8_t {', '.join(f'{symbol}[]' for symbol in symbols)}; {comment('by the linker script')}",
    ]
    rows = []
    for area in (area for area in protection.areas if area.name != "constants"):  # those in RAM are all models'
        access = "MT_PROTECT_WRITE" if area.access == "write" else "MT_PROTECT_READ"
        if area.name in ("arena", "states"):
            start = f"{arena} + {area.offset}" if area.offset else arena
            ends = (start, f"{arena} + {area.offset + area.bytes}")
        else:
            ends = (f"{model}_{area.name}_start", f"{model}_{area.name}_end")
        rows.append(f"{{{', '.join((*ends, access))}}},")
    return [*lines, listed("static const struct mt_protect_area areas[]", rows)]


def _map(protection: Protection) -> list[str]:
    """Return the lines of a table of the model's areas and their granules."""
    rows = [("area", "access", "bytes", "of which used", "granule")]
    for area in protection.areas:
        sizes = ("", "") if area.name in _BY_LINKER else (f"{area.bytes:,}", f"{area.used:,}")
        rows.append((area.name, area.access, *sizes, f"{area.granule:,}"))
    lines = [
        f"While it runs, the model can access these areas ({protection.unit}), code and constants in flash for",
        "reading, and its part of the stack; nothing else.",
    ]
    return [*lines, "", *columns(rows, (2, 3, 4))]


def arena_definition(symbol: str, macro: str, alignment: int, size: int, unit: Unit | None) -> list[str]:
    """Return the definition of an arena.

    Args:
        symbol: its name in C.
        macro: the macro with its bytes.
        alignment: the alignment that its contents need.
        size: its bytes.
        unit: the memory protection to whose granules it is aligned and padded; None: none.
    """
    if unit is None:
        return [_defined(symbol, macro, alignment)]
    granule, padded = unit.granule(size), unit.padded(size)
    return [_granules(macro, granule), _defined(symbol, str(padded), max(alignment, granule))]


def shared_arena_definition(symbol: str, macro: str, alignment: int, protections: Sequence[Protection]) -> list[str]:
    """Return the definition of an arena that several models with memory protection share."""
    areas = [area for protection in protections for area in protection.areas if area.name in ("arena", "states")]
    alignment = max(alignment, *(area.alignment for area in areas))
    granule, size = max(area.granule for area in areas), max(area.offset + area.bytes for area in areas)
    return [_granules(macro, granule), _defined(symbol, str(size), alignment)]


def _granules(macro: str, granule: int) -> str:
    return comment(f"{macro} in granules of the memory protection, of {granule:,} bytes.")


def _defined(symbol: str, count: str, alignment: int) -> str:
    aligned = f"MT_ARENA_ALIGNED({alignment}) " if alignment > ARENA_ALIGNMENT else ""
    return f"{aligned}MT_ARENA uint8_t {symbol}[{count}];"
