"""The warning of constants that take more flash than they take in the model's file.

What was chosen to, where the board has room (mtool.compiler.plan.pools.for_time), is told to who wants to see more.
"""

import logging

from mtool.base.escaping import short_name
from mtool.manifest import Manifest

log = logging.getLogger(__name__)

LEAST_BYTES = 1024  # what an operator's constants grow by before it is told; the manifest has all of them
NAMED = 3


def warn_of_growth(manifest: Manifest) -> None:
    """Tell which constants grew by more than a tenth, the largest by name, and why."""
    told = [one for one in manifest.grown if one.flash_bytes - one.file_bytes >= LEAST_BYTES]
    for one in told:
        if one.for_speed:
            log.debug("%s: %s B more of flash: %s", one.operator, f"{one.flash_bytes - one.file_bytes:,}", one.reason)
    grown = [one for one in told if not one.for_speed]
    if not grown:
        return
    before, after = (sum(getattr(one, kind) for one in grown) for kind in ("file_bytes", "flash_bytes"))
    for one in grown[:NAMED]:
        log.warning(
            "%s takes %s B in the file and %s B in flash: %s",
            short_name(one.tensor), f"{one.file_bytes:,}", f"{one.flash_bytes:,}", one.reason,
        )  # fmt: skip
    if len(grown) > NAMED:
        log.warning(
            "%d operators' constants, %s B in the file, take %s B in flash: `grown` in mtool.json lists them",
            len(grown), f"{before:,}", f"{after:,}",
        )  # fmt: skip
