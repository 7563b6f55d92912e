"""Errors of a build that Ninja ran."""

import re

from mtool.base import proc
from mtool.base.errors import BuildError, MtoolError
from mtool.device.build import fit
from mtool.manifest import Manifest

_PROGRESS = re.compile(r"\[\d+/\d+\] ")


def failure(done: proc.Completed, manifest: Manifest) -> MtoolError:
    """Return the error that a failed build stands for: a memory that overflows, or else its last lines."""
    too_large = fit.explain(done.output, manifest)
    if too_large is not None:
        return too_large
    lines = [line for line in done.output.splitlines() if not _PROGRESS.match(line)]
    return BuildError(
        f"build of the firmware failed with exit code {done.returncode}",
        details=["$ " + " ".join(done.argv), *lines[-proc.LAST_LINES :]],
    )
