"""Names that a shell completes, found without the schema of boards: that takes longer than a key press may."""

import re

from mtool.base import resources
from mtool.base.option_values import FLASH_RUNNERS

_ENTRY = re.compile(r"^(\w[\w.-]*):", re.MULTILINE)


def boards(incomplete: str) -> list[str]:
    """Return the boards whose names begin so: the keys of boards.yaml that are not indented."""
    try:
        text = resources.path("boards.yaml").read_text(encoding="utf-8")
    except (OSError, ValueError):
        return []
    return [name for name in _ENTRY.findall(text) if name.startswith(incomplete)]


def runners(incomplete: str) -> list[str]:
    """Return the flash runners whose names begin so."""
    return [name for name in FLASH_RUNNERS if name.startswith(incomplete)]
