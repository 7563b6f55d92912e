"""`mtool.json`: the only thing that the device half knows of compiled models and their project.

Schema 2: a list of the firmware's models, of which there mostly is one, and the project. The compile half writes a
model's manifest without `project`; the project stage adds it. Keys that are not described here are refused, so that a
stale or foreign file is told at once.
"""

from mtool.manifest.reading import FILE_NAME, firmware_of, is_project, load, named, own_hint
from mtool.manifest.schema import (
    Area,
    Claim,
    ConstantPool,
    Firmware,
    GrownConstant,
    InnerRegion,
    Manifest,
    Operand,
    Operator,
    PoolOfArena,
    Project,
    Protection,
    Refusal,
    RowStream,
    SizeRange,
    Source,
    StateTensor,
    Strict,
    Tensor,
    arenas_of,
    bytes_in_memories,
    constants_in_memories,
    total_arena_bytes,
    total_constant_bytes,
)

__all__ = [
    "FILE_NAME",
    "Area",
    "Claim",
    "ConstantPool",
    "Firmware",
    "GrownConstant",
    "InnerRegion",
    "Manifest",
    "Operand",
    "Operator",
    "PoolOfArena",
    "Project",
    "Protection",
    "Refusal",
    "RowStream",
    "SizeRange",
    "Source",
    "StateTensor",
    "Strict",
    "Tensor",
    "arenas_of",
    "bytes_in_memories",
    "constants_in_memories",
    "firmware_of",
    "is_project",
    "load",
    "named",
    "own_hint",
    "total_arena_bytes",
    "total_constant_bytes",
]
