"""The worst latency of the most urgent of several models: what it waits for, and what it takes itself."""

from dataclasses import asdict, dataclass
from typing import Any

from mtool.compiler.plan.shared_arena import longest_stretch
from mtool.device import session
from mtool.device.session.profile import step_times
from mtool.manifest import Manifest
from mtool.stages import input_patterns
from mtool.stages.building import Prepared
from mtool.stages.deployment import Deployment


@dataclass(frozen=True, slots=True)
class Latency:
    """The time from the release of the most urgent model until its outputs are there, at most.

    Attributes:
        model: its name.
        unit: "instructions", or "ns".
        own: what an inference takes.
        wait: the longest stretch of another model in which it can't begin.
        waits_for: that model's name.
    """

    model: str
    unit: str
    own: float
    wait: float
    waits_for: str

    @property
    def worst(self) -> float:
        """The sum of both.

        What the scheduler itself takes comes on top, some 100 instructions for each operator, and the copies of inputs
        and outputs that don't lie in the arena.
        """
        return self.own + self.wait

    def as_json(self) -> dict[str, Any]:
        """Return the figures by name."""
        return {**asdict(self), "worst": self.worst}

    def describe(self) -> str:
        """Return it in a line."""
        waits = f"{self.wait:,.0f} waiting for {self.waits_for}, {self.own:,.0f} its own"
        return f"worst latency of {self.model}: {self.worst:,.0f} {self.unit} ({waits})"


def worst_latency(prepared: Prepared, deployment: Deployment, *, repeat: int = 3, fill: str = "random") -> Latency:
    """Measure the operators of a built firmware's models on its device, and tell the first model's worst latency.

    Raises:
        MtoolError: of the class that tells the stage, see mtool.errors.
    """
    urgent, *others = prepared.manifest.models
    where, limit_s = (deployment.port, deployment.probe), deployment.timeout_s
    with session.open(prepared.folder, port=where[0], probe=where[1], work_s=limit_s) as device:

        def times(described: Manifest) -> list[float]:
            own = device[described.model]
            inputs = input_patterns.filled(described.inputs, fill)[0]
            return step_times(own.client, described, inputs, repeat=repeat, work_s=own.work_s)

        stretches = {one.model: longest_stretch(times(one), one.pauses) for one in others}
        first = device[urgent.model]
        own = first.time(1, repeat, inputs=input_patterns.filled(urgent.inputs, fill)[0]).median
        waits_for = max(stretches, key=lambda name: stretches[name])
        return Latency(urgent.model, first.unit, own, stretches[waits_for], waits_for)
