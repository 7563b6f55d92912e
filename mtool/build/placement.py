"""Where a firmware has what lies in memories of the board by name: a template may know nothing of it."""

from pathlib import Path

from mtool.build.size import addresses
from mtool.errors import BuildError
from mtool.manifest import Manifest


def check(elf: Path, manifest: Manifest) -> None:
    """Check that a firmware has the memories of backends, and pools of its arena, where they are wanted.

    Raises:
        BuildError: one lies elsewhere.
    """
    project = manifest.project
    wanted = [(f"{manifest.model}_{name}", name, "a backend wants to have") for name in manifest.lent]
    for pool in (pool for one in manifest.models for pool in one.pools if pool.memory):
        wanted.append((pool.symbol, pool.memory, "the model has"))
    if not wanted or project is None or not project.board.memories:
        return
    found = addresses(elf)
    for symbol, name, who in wanted:
        memory, address = project.board.memories[name], found.get(symbol)
        if address is not None and not memory.base <= address < memory.base + memory.size:
            raise BuildError(
                f"the template {project.template} does not put into {name} what {who} there",
                details=[
                    f"{symbol} lies at 0x{address:08x}",
                    f"{name} of {project.board.name} begins at 0x{memory.base:08x}",
                ],
                hint=f"its linker script has to put the section .bss.mt_lent.{name} there; or use another template",
            )
