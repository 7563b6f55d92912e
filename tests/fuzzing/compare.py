"""Compile networks, run them together in one environment, and compare the results with onnxruntime."""

import tempfile
import traceback
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import onnx

from mtool.base.errors import DeviceError, MtoolError
from mtool.plugins.onnx_backend.batch import CModel, to_c
from tests.fuzzing import environments, exact, forks
from tests.fuzzing.networks import Array, by_onnxruntime, feeds


@dataclass(frozen=True, slots=True)
class Network:
    """A network, its inputs, onnxruntime's outputs, and the same network without bodies, if some nodes are in such."""

    number: int
    model: onnx.ModelProto
    inputs: Mapping[str, Array]
    outputs: Mapping[str, Array]
    flat: onnx.ModelProto | None = None


@dataclass(slots=True)
class Report:
    """Figures, the ties, and what was found: number, kind, words."""

    counts: Counter[str] = field(default_factory=Counter)
    ties: list[str] = field(default_factory=list)
    finds: list[tuple[int, str, str]] = field(default_factory=list)


def prepared(
    number: int,
    model: onnx.ModelProto,
    inputs: Mapping[str, Array] | None = None,
    in_bodies: onnx.ModelProto | None = None,
) -> Network:
    """Return a network, or what computes the same in bodies, with inputs and onnxruntime's outputs.

    Raises:
        ValueError: onnxruntime refuses it, or gives an output another shape than ONNX does (means of nothing).
    """
    given = dict(inputs or feeds(model, number))
    outputs = by_onnxruntime(model, given)
    for value in model.graph.output:
        shape = tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
        if outputs[value.name].shape != shape:
            raise ValueError(f"onnxruntime gives {value.name} the shape {outputs[value.name].shape} for {shape}")
    if in_bodies is None:
        return Network(number, model, given, outputs)
    if differences(outputs, by_onnxruntime(in_bodies, given)):
        raise ValueError("onnxruntime gives something else with bodies")
    return Network(number, in_bodies, given, outputs, model)


def run(networks: Sequence[Network], environment: environments.Environment) -> Report:
    """Run networks in one firmware and judge each."""
    report = Report()
    models, kept = [], []
    for network in networks:
        report.counts["networks"] += 1
        try:
            models.append(to_c(network.model, f"m{network.number}", target=environment.target))
            kept.append(network)
        except MtoolError as refused:
            report.finds.append((network.number, "refused", str(refused)))
        except Exception:
            words = traceback.format_exc()
            report.finds.append((network.number, f"traceback {forks.cause(words)}", words))
    for network, outputs in zip(kept, _outputs(models, kept, environment), strict=True):
        if isinstance(outputs, str):
            report.finds.append((network.number, "C error" if "compiler" in outputs else "fault", outputs))
        else:
            _judge(network, outputs, environment, report)
    for _, kind, _ in report.finds:
        report.counts[kind.split()[0]] += 1
    return report


def _outputs(
    models: Sequence[CModel], networks: Sequence[Network], environment: environments.Environment
) -> list[dict[str, Array] | str]:
    """Return the outputs of each, or why it has none."""
    if not models:
        return []
    with tempfile.TemporaryDirectory(prefix="networks-") as folder:
        try:
            running = environment.build(models, Path(folder))
        except MtoolError as failed:
            if len(models) == 1:
                return [f"the compiler or linker fails: {failed}"]
            half = len(models) // 2
            return _outputs(models[:half], networks[:half], environment) + _outputs(
                models[half:], networks[half:], environment
            )
        found: list[dict[str, Array] | str] = []
        for number, (model, network) in enumerate(zip(models, networks, strict=True)):
            try:
                inputs = list(network.inputs.values())
                found.append(environments.named(running.run(number, inputs), model))
            except MtoolError as failed:
                found.append(str(failed))
        running.close()
        return found


def _judge(
    network: Network, outputs: Mapping[str, Array], environment: environments.Environment, report: Report
) -> None:
    """Compare a network's outputs; where they differ, look for the ties that explain it.

    A network with bodies is explained by the same one without, whose nodes `exact` can compute one by one.
    """
    words = differences(network.outputs, outputs)
    if not words:
        report.counts["equal"] += 1
        return
    try:
        findings = _explained(network, outputs, environment)
    except Exception as failed:  # the reference can't compute some of its own operators in float64
        findings = exact.Findings([], [f"no exact reference: {failed!r}"])
    if findings.wrong:
        report.finds.append((network.number, "wrong", "; ".join([words, *findings.wrong[:5]])))
    elif findings.ties:
        report.counts["equal but for ties"] += 1
        report.counts["ties"] += len(findings.ties)
        report.ties += [f"{network.number}: {tie}" for tie in findings.ties]
    elif findings.scales_of_zeros:
        report.counts["equal but for the scale of zeros"] += 1
    else:
        report.counts["within float32's error"] += 1


def _explained(network: Network, outputs: Mapping[str, Array], environment: environments.Environment) -> exact.Findings:
    """Check all integers and outputs of a network, and those of onnxruntime, against exact arithmetic.

    The integers between are those of a second run, in which they are outputs too. The outputs are always those of the
    first run: they have to follow from integers that are right.
    """
    plain = network if network.flat is None else replace(network, model=network.flat, flat=None)
    names = exact.rounded_tensors(plain.model)
    wider = exact.with_outputs(plain.model, names)
    findings = exact.check(plain.model, plain.inputs, by_onnxruntime(wider, plain.inputs))
    if findings.wrong:
        return exact.Findings([], ["onnxruntime's own are not exact", *findings.wrong])
    between: dict[str, Array] = {}
    if network.flat is not None or any(name not in outputs for name in names):
        between = _run_again(plain, wider, environment)
    own = exact.check(plain.model, plain.inputs, {**between, **outputs})
    if network.flat is not None and own.wrong:
        # A tie may lie in an integer outside of the bodies, which the network with bodies can output as well.
        made = {name for node in network.model.graph.node for name in node.output}
        visible = [name for name in names if name in made]
        if any(name not in outputs for name in visible):
            between |= _run_again(network, exact.with_outputs(network.model, visible, network.flat), environment)
            own = exact.check(plain.model, plain.inputs, {**between, **outputs})
    if own.wrong:
        changed = differences(outputs, {name: between.get(name, data) for name, data in outputs.items()})
        if changed:
            own.wrong.append(f"with the integers between as outputs: {changed}")
    return exact.Findings(findings.ties + own.ties, own.wrong, own.scales_of_zeros)


def _run_again(network: Network, wider: onnx.ModelProto, environment: environments.Environment) -> dict[str, Array]:
    """Run a network with more outputs.

    Raises:
        DeviceError: it has none.
    """
    found = _outputs([to_c(wider, f"m{network.number}", target=environment.target)], [network], environment)[0]
    if isinstance(found, str):
        raise DeviceError(f"with more outputs: {found}")
    return found


def differences(wanted: Mapping[str, Array], got: Mapping[str, Array]) -> str:
    """Return how outputs differ, "" if they don't: integers at all, floats by more than 1e-5 of the largest."""
    found = []
    for name, right in wanted.items():
        mine = got.get(name)
        if mine is None or mine.shape != right.shape or mine.dtype != right.dtype:
            found.append(f"{name}: {None if mine is None else (mine.dtype, mine.shape)} for {right.dtype, right.shape}")
        elif right.dtype.kind != "f":
            count = int((mine != right).sum())
            if count:
                off = np.abs(mine.astype(np.float64) - right.astype(np.float64)).max()
                found.append(f"{name}: {count} of {right.size} by up to {off:g}")
        else:
            finite = np.isfinite(right)
            top = np.abs(right[finite]).max(initial=0)
            with np.errstate(all="ignore"):
                near = np.abs(mine - right) <= 1e-5 * np.maximum(np.abs(right), 0.1 * top)
            same = np.where(finite, near, (mine == right) | (np.isnan(mine) & np.isnan(right)))
            if not same.all():
                found.append(
                    f"{name}: {int((~same).sum())} of {right.size} by up to {np.nanmax(np.abs(mine - right)):.3g}"
                )
    return "; ".join(found)
