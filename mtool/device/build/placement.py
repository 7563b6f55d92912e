"""Where a firmware has what lies in memories of the board by name: a template may know nothing of it."""

from pathlib import Path

from mtool.base.errors import BuildError
from mtool.device.build.size import addresses
from mtool.manifest import Manifest, Project


def check(elf: Path, manifest: Manifest) -> None:
    """Check that a firmware has the memories of backends, and pools of its arena or constants, where they are wanted.

    Raises:
        BuildError: one lies elsewhere.
    """
    project = manifest.project
    wanted = [(f"{manifest.model}_{name}", name, "a backend wants to have") for name in manifest.lent]
    for pool in (pool for one in manifest.models for pool in one.pools if pool.memory):
        wanted.append((pool.symbol, pool.memory, "the model has"))
    own = [(pool.symbol, pool.section) for one in manifest.models for pool in one.pools if pool.section and pool.bytes]
    constants = {
        symbol: pool.name for one in manifest.models for pool in one.constant_pools for symbol in pool.constants
    }
    if not (wanted or own or constants) or project is None or not project.board.memories:
        return
    found = addresses(elf)
    for symbol, section in own:
        _check_written(project, symbol, section, found.get(symbol))
    for symbol, name in constants.items():
        if name in project.board.memories:
            section = f".rodata.mt_in.{name}.*, or that of --pool,"
            _check(project, symbol, name, found.get(symbol), "the model has", section)
    for symbol, name, who in wanted:
        _check(project, symbol, name, found.get(symbol), who, f".bss.mt_lent.{name}")


def _check(project: Project, symbol: str, name: str, address: int | None, who: str, section: str) -> None:
    memory = project.board.memories[name]
    if address is not None and not memory.base <= address < memory.base + memory.size:
        raise BuildError(
            f"the template {project.template} does not put into {name} what {who} there",
            details=[
                f"{symbol} lies at 0x{address:08x}",
                f"{name} of {project.board.name} begins at 0x{memory.base:08x}",
            ],
            hint=f"its linker script has to put the section {section} there; or use another template",
        )


def _check_written(project: Project, symbol: str, section: str, address: int | None) -> None:
    """Refuse a pool in a section of the user's own that a linker script puts where nothing can be written."""
    for name, memory in project.board.memories.items():
        if address is not None and memory.base <= address < memory.base + memory.size and not memory.is_written:
            raise BuildError(
                f"the section {section} lies in {name}, and a pool has to be written to",
                details=[
                    f"{symbol} lies at 0x{address:08x}",
                    f"{project.board.name} has {' and '.join(memory.holds)} in {name}",
                ],
                hint="the linker script has to put it into RAM; sections whose names begin with .bss have no contents",
            )
