"""What certainly does not fit a board, told before it is built."""

from collections.abc import Mapping

from mtool import project
from mtool.base.filetree import FileTree
from mtool.boards import Board
from mtool.device.build import fit
from mtool.manifest import (
    Manifest,
    bytes_in_memories,
    constants_in_memories,
    total_arena_bytes,
    total_constant_bytes,
)


def refuse_certain(
    files: FileTree, manifest: Manifest, board: Board, template: str, template_options: Mapping[str, str]
) -> None:
    """Say that a build can't succeed: the constants and the arena alone are more than a memory has.

    Args:
        files: the model's C.
        manifest: what the compile half says of it.
        board: what it is built for.
        template: its name or folder; empty: the board's first.
        template_options: values of its options, as text.

    Raises:
        FitError: they are; the lines are those of `mtool check`.
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
        own = sum(count for role, count in shares.items() if placed.region_for(role) == region)
        if own + beside.get(region, 0) + constants.get(region, 0) > memory.size:
            from mtool.stages.sizes.estimate import estimate

            found = estimate(files, manifest, placed, chosen, chosen.read_options(template_options))
            raise fit.error(found.needs, manifest, placed)
