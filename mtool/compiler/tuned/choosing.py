"""The schedules that the nodes of a graph get from what tuning has found."""

import logging

from mtool.base.errors import UsageError
from mtool.base.option_values import WEIGHTS
from mtool.compiler.ir import Graph
from mtool.compiler.kernels import registry
from mtool.compiler.kernels.target import Target
from mtool.compiler.plan.choice import Choice, chosen
from mtool.compiler.tuned.known import Known
from mtool.compiler.tuned.tasks import named_nodes, record_of

log = logging.getLogger(__name__)


def choices(known: Known, graph: Graph, target: Target, model_hash: str) -> dict[str, Choice]:
    """Return the schedules of a graph's nodes by their names; none for a node of which nothing is known.

    What was measured in the whole model comes first. A candidate that is no more, or that can't compute the node, is
    skipped, with a note. Constants lie in RAM only where the whole model was measured so, with its arena beside them.

    Raises:
        UsageError: a point of the model's front was asked for, and there is none.
    """
    if known.point and model_hash not in known.whole:
        raise UsageError(
            f"the tuning logs have no point {known.point} of this model",
            details=["they have fronts of others; a model that has changed is another"],
            hint="measure its front: mtool tune MODEL --board B --pareto, or leave the point out",
        )
    found: dict[str, Choice] = {}
    gone: dict[str, str] = {}
    in_whole = known.whole.get(model_hash, {})
    for node, part in named_nodes(graph) if known.ranked or in_whole else ():
        key = record_of(node, part).key
        first = [in_whole[key]] if key in in_whole else []
        others = (one for one in known.ranked.get(key, ()) if WEIGHTS not in parse(one).knobs)
        for candidate in (*first, *others):
            choice = parse(candidate)
            try:
                chosen(choice, registry.KERNELS[node.op], node, part, target)
            except UsageError as refused:
                gone.setdefault(candidate, refused.what)
                continue
            found[node.name] = choice
            break
    for candidate, why in gone.items():
        log.warning("tuned schedule %s is skipped: %s", candidate, why)
    return found


def parse(candidate: str) -> Choice:
    """Return a candidate, as `--schedule` writes it, as a choice: dsp_patch:tile=2x2,unroll=8."""
    name, _, settings = candidate.partition(":")
    pairs = (setting.partition("=") for setting in settings.split(",") if setting)
    return Choice(name, {knob: value for knob, _, value in pairs})


def text_of(choice: Choice) -> str:
    """Return a choice as `--schedule` writes it: what `parse` reads."""
    settings = ",".join(f"{knob}={value}" for knob, value in choice.knobs.items())
    return f"{choice.schedule}:{settings}" if settings else choice.schedule
