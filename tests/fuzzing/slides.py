"""Random networks over sliding windows: hops on a device, and whole windows by the same network on the same device."""

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from mtool.base.errors import MtoolError
from mtool.compiler import frontend, passes
from mtool.compiler.frontend.options import ModelOptions
from mtool.compiler.passes.slide import with_slides
from mtool.plugins.onnx_backend.batch import CModel, to_c
from tests import sliding
from tests.fuzzing import environments
from tests.fuzzing.compare import Report
from tests.fuzzing.networks import Array

CALLS = 50
CLOSE = 1e-5  # of floats, whose sums may be added in another order


def run(numbers: Sequence[int], environment: environments.Environment, calls: int = CALLS) -> Report:
    """Run networks in one firmware, each by hops and as a whole, and compare all outputs."""
    report, models, drawn = Report(), list[CModel](), list[tuple[int, list[tuple[Array, Array]]]]()
    for number in numbers:
        report.counts["networks"] += 1
        proto, slide = sliding.network(number)
        options = ModelOptions(slides=(slide,))
        models += [
            to_c(proto, f"s{number}", options, environment.target),
            to_c(proto, f"w{number}", target=environment.target),
        ]
        noted = with_slides(frontend.from_proto(proto, "test", options))
        noted = replace(noted, slides=passes.run(noted, environment.target).slides)
        drawn.append((number, [*sliding.sequence(noted, slide, calls, number)]))
    with tempfile.TemporaryDirectory(prefix="slides-") as folder:
        running = environment.build(models, Path(folder))
        for place, (number, pairs) in enumerate(drawn):
            try:
                kinds = {
                    _difference(running.run(2 * place, [new]), running.run(2 * place + 1, [window]))
                    for new, window in pairs
                }
            except MtoolError as failed:
                kinds = {str(failed)}
            wrong = kinds - {"equal", "close"}
            report.counts["wrong" if wrong else "close" if "close" in kinds else "equal"] += 1
            report.finds += [(number, "wrong", words) for words in sorted(wrong)[:1]]
        running.close()
    return report


def _difference(hop: Sequence[Array], whole: Sequence[Array]) -> str:
    kinds = {"equal"}
    for one, other in zip(hop, whole, strict=True):
        if np.array_equal(one, other):
            continue
        is_close = one.dtype.kind == "f" and np.allclose(one, other, rtol=CLOSE, atol=CLOSE)
        kinds.add("close" if is_close else f"{np.count_nonzero(one != other)} of {one.size} differ")
    return max(kinds, key=lambda kind: ("equal", "close").index(kind) if kind in ("equal", "close") else 2)
