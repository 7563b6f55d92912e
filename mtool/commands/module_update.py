"""A module that renews an earlier one: the same interface, the same code where that can be, other weights."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from mtool.base.errors import UsageError
from mtool.manifest import Tensor
from mtool.manifest.delta import MOST_BYTES, delta_by_parts
from mtool.manifest.modules.format import HEAD_BYTES, Description, Kind, Module
from mtool.stages.compiling import Model
from mtool.stages.formatting import count, tensor
from mtool.stages.options import Options, schedule_choices

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Renewal:
    """What a module changes of an earlier one.

    Attributes:
        delta_bytes: what is sent to a device that has the earlier one, beside the head; 0: the files are too large.
        parts: of the delta: for names and the interface, for the code, for the constants.
        has_same_code: no byte of the code differs.
    """

    delta_bytes: int
    parts: tuple[int, int, int]
    has_same_code: bool

    def describe(self) -> str:
        """Return it in words."""
        about, code, constants = self.parts
        same = ", which is the same" if self.has_same_code else ""
        if not self.delta_bytes:
            return "too large for a delta"
        return (
            f"a delta of {self.delta_bytes:,} B: {constants:,} for the constants, {code:,} for the code{same}, "
            f"{about:,} for names and the interface"
        )


def options_since(old: Module, options: Options, counter: int | None) -> tuple[Options, int]:
    """Return the options and the counter of a module that renews another: its own, unless others are given.

    Raises:
        UsageError: the counter is below that of the earlier one, which its device would refuse.
    """
    if counter is not None and counter < old.counter:
        raise UsageError(
            f"--counter {counter} is below that of the module which this one renews",
            details=[f"expected {old.counter} or more"],
            hint="leave --counter out, and it is the same",
        )
    return replace(options, name=options.name or old.name), old.counter if counter is None else counter


def with_schedules_of(old: Module, model: Model, compile: Callable[[Options], Model]) -> Model:
    """Return a model compiled with the schedules of an earlier module, where others were chosen for these weights.

    Schedules that the user names stay. Those that can't compute the new weights are told, and the model stays as it is.
    """
    before = {one.name: one.schedule for one in old.description.operators if one.schedule}
    others = {
        one.name: before[one.name]
        for one in model.manifest.operators
        if one.name in before and one.name not in model.options.schedules and before[one.name] != one.schedule
    }
    if not others:
        return model
    try:
        choices = schedule_choices([f"{name}={schedule}" for name, schedule in others.items()])
        again = compile(replace(model.options, schedules={**choices, **model.options.schedules}))
    except UsageError as refused:
        log.warning("the code changes, as the new weights can't be computed as before: %s", refused.what)
        return model
    log.info("  %-9s          %s as before: %s", "schedules", count(len(others), "operator"), ", ".join(others))
    return again


def check_kind(old: Module, kind: Kind) -> None:
    """Refuse a module of another kind than the one that it renews: no code of it would stay.

    Raises:
        UsageError: one is native and the other bytecode.
    """
    if old.kind != kind:
        raise UsageError(
            f"the module which this one is to renew is {old.kind.name.lower()}, and this one {kind.name.lower()}",
            hint="give --bytecode" if old.kind == Kind.BYTECODE else "leave --bytecode out",
        )


def check_interface(old: Description, new: Description) -> None:
    """Check that what calls an earlier module can call the new one.

    Raises:
        UsageError: an input or output is missing, or has another name, type or shape.
    """
    for what, before, after in (("inputs", old.inputs, new.inputs), ("outputs", old.outputs, new.outputs)):
        if [_called(one) for one in before] != [_called(one) for one in after]:
            raise UsageError(
                f"the {what} are others than those of the module which this one is to renew",
                details=[
                    f"expected  {', '.join(map(_named, before)) or 'none'}",
                    f"found     {', '.join(map(_named, after)) or 'none'}",
                ],
                hint="without --since it is a model of its own, and can be loaded all the same",
            )
        for one, other in zip(before, after, strict=True):
            if (one.scale, one.zero_point) != (other.scale, other.zero_point):
                log.warning(
                    "%s is quantised in another way than before, which who fills or reads it has to know", one.name
                )


def renewal(old: tuple[Module, bytes], new: tuple[Module, bytes]) -> Renewal:
    """Return what a module changes of an earlier one; both with the bytes of their files."""
    (before, old_data), (after, data) = old, new
    has_same_code = before.image[: before.code_bytes] == after.image[: after.code_bytes]
    if max(len(old_data), len(data)) > MOST_BYTES:
        return Renewal(0, (0, 0, 0), has_same_code)
    about = len(data) - HEAD_BYTES - len(after.image)
    made, parts = delta_by_parts(old_data[HEAD_BYTES:], data[HEAD_BYTES:], (about, about + after.code_bytes))
    names, code, constants = parts
    return Renewal(len(made), (names, code, constants), has_same_code)


def _called(one: Tensor) -> tuple[str, str, tuple[int, ...]]:
    return one.name, one.dtype, tuple(one.shape)


def _named(one: Tensor) -> str:
    return f"{one.name}: {tensor(one)}"
