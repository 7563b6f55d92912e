"""Where a firmware has what backends asked for in memories of the board by name: a template may know nothing of it."""

from pathlib import Path

from mtool.build.size import addresses
from mtool.errors import BuildError
from mtool.manifest import Manifest


def check(elf: Path, manifest: Manifest) -> None:
    """Check that a firmware has the memories of backends where they asked for them.

    Raises:
        BuildError: one lies elsewhere.
    """
    project = manifest.project
    if not manifest.lent or project is None or not project.board.memories:
        return
    found = addresses(elf)
    for name in manifest.lent:
        memory, address = project.board.memories[name], found.get(f"{manifest.model}_{name}")
        if address is not None and not memory.base <= address < memory.base + memory.size:
            raise BuildError(
                f"the template {project.template} does not put into {name} what a backend wants to have there",
                details=[
                    f"{manifest.model}_{name} lies at 0x{address:08x}",
                    f"{name} of {project.board.name} begins at 0x{memory.base:08x}",
                ],
                hint=f"its linker script has to put the section .bss.mt_lent.{name} there; or use another template",
            )
