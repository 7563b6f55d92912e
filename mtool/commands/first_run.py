"""The first run of a new build is compared with the reference, if that is installed: it costs next to nothing.

One sample is compared. What was compared is remembered beside the build, by its hash, so that later runs of the same
build are not slowed; a build whose outputs differ is compared, and told, each time.
"""

import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtool.base import files
from mtool.base.errors import MtoolError, UsageError
from mtool.device.build.build import BUILD_FOLDER
from mtool.stages.building import HOST_DRIVEN, Prepared
from mtool.stages.compiling import Model
from mtool.stages.deployment import Deployment
from mtool.stages.samples import Sample

if TYPE_CHECKING:
    from mtool.device.session.verify import Report, Tolerance
    from mtool.verification.layer_report import Layers

log = logging.getLogger(__name__)

MOST_MACS = 2_000_000_000  # of an inference: a few seconds on the host
_STAMP = "compared.key"


@dataclass(frozen=True, slots=True)
class FirstRun:
    """The comparison of a build's first run with the reference."""

    report: "Report"

    def as_json(self) -> dict[str, Any]:
        """Return the comparison as plain values, as `mtool verify` gives it."""
        return {"ok": self.report.ok, **asdict(self.report)}

    def describe(self) -> str:
        """Return in a line what differs."""
        wrong = [output for output in self.report.outputs if not output.within]
        parts = [f"{one.name}: {one.differing:,} of {one.elements:,} elements, {_most(one)}" for one in wrong]
        return f"the outputs differ from {self.report.reference}'s ({'; '.join(parts)}): mtool verify tells more"


def is_first(model: Model, prepared: Prepared) -> bool:
    """Tell whether a build has yet to be compared, and can be: with a reference, and in a few seconds."""
    with contextlib.suppress(OSError):
        if HOST_DRIVEN not in prepared.built.rebuilt and _stamp(prepared).read_text() == _identity(prepared):
            return False
    from mtool.verification import reference  # with it come the frontends, which later runs do without

    return reference.is_installed(model.path) and model.manifest.macs <= MOST_MACS


def compare_first_run(
    model: Model, prepared: Prepared, deployment: Deployment, sample: Sample, run: Callable[[], Sample]
) -> FirstRun | None:
    """Compare the outputs of one sample with the reference's if the build is new, and tell a difference in a line.

    Args:
        model: the compiled model.
        prepared: its build.
        deployment: which device runs it.
        sample: the inputs.
        run: returns the device's outputs, those of the first inference of a session.

    Returns:
        How they compare; None: the build is not new, or the reference can't run the model.
    """
    if not is_first(model, prepared):
        return None
    from mtool.verification import reference
    from mtool.verification.layers import compare_layers
    from mtool.verification.oracles.process import DiedError
    from mtool.verification.verification import judge

    def layers(allowed: "Tolerance", some: Sequence[Sample]) -> "Layers":
        with deployment.open(prepared) as device:
            return compare_layers(device, model, some, allowed)

    try:
        expected = reference.outputs(model.path, [sample], options=model.options)
        found = FirstRun(judge(model, [sample], expected, [run()], layers=layers))
    except MtoolError as refused:
        level = logging.WARNING if isinstance(refused, DiedError) else logging.DEBUG
        log.log(level, "the first run is not compared with %s: %s", reference.name_of(model.path), refused.what)
        return None
    if found.report.ok:
        with contextlib.suppress(UsageError):  # it is compared again then
            files.write(_stamp(prepared), _identity(prepared).encode())
    else:
        log.warning("%s", found.describe())
    return found


def _most(difference: Any) -> str:
    if difference.max_lsb is not None:
        return f"by {difference.max_lsb} LSB at most"
    return "not finite" if difference.max_abs is None else f"by {difference.max_abs:.3g} at most"


def _stamp(prepared: Prepared) -> Path:
    own = f"{prepared.manifest.model}-" if prepared.manifest.firmware else ""
    return prepared.folder / BUILD_FOLDER / f"{own}{_STAMP}"


def _identity(prepared: Prepared) -> str:
    """Return the hash over every file that goes into the firmware."""
    project = prepared.manifest.project
    return project.build_hash if project is not None else ""
