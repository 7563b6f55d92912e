"""Devices that compute regions of a model: their failures, and the functions that are called around their work.

What they are and when they are called: crt/include/mt_device.h. A model without such regions has none of this.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from mtool.escaping import c_string, comment, short_name
from mtool.ops.external.node import HOOKS, External
from mtool.plan import Plan

_MOST_NODES = 8


@dataclass(frozen=True, slots=True)
class Devices:
    """The devices of a model.

    regions: the numbers of the operators whose function or hooks can fail.
    hooks: for each occasion its functions, in the order in which they are called, and the first operator that each is
        for.
    """

    regions: tuple[int, ...]
    hooks: dict[str, dict[str, int]]

    @property
    def can_fail(self) -> bool:
        """Whether an inference may end with MT_DEVICE."""
        return bool(self.regions)

    @property
    def have_hooks(self) -> bool:
        """Whether something is called around their work."""
        return any(self.hooks.values())


def devices_of(plan: Plan) -> Devices:
    """Return the devices of a plan; backends get no operators of branches and loops."""
    regions = []
    hooks: dict[str, dict[str, int]] = {when: {} for when in HOOKS}
    for number, step in enumerate(plan.steps):
        attrs = step.node.attrs
        if not isinstance(attrs, External):
            continue
        if attrs.can_fail or attrs.hooks:
            regions.append(number)
        for when, name in attrs.hooks:
            hooks[when].setdefault(name, number)
    return Devices(tuple(regions), hooks)


def is_failing(plan: Plan, number: int) -> bool:
    """Return whether the function of an operator returns a status."""
    attrs = plan.steps[number].node.attrs
    return isinstance(attrs, External) and attrs.can_fail


def failure_call(plan: Plan, number: str, status: str) -> str:
    """Return the C that notes a device's failure; its value is MT_DEVICE."""
    return f"{plan.graph.name}_failed({number}, {status})"


def begin_call(plan: Plan, *, is_new: bool) -> str:
    """Return the C that begins an inference on the devices; unless `is_new`, one that is under way goes on."""
    return f"{plan.graph.name}_device_begin({int(is_new)})"


def end_call(plan: Plan, status: str) -> str:
    """Return the C that ends an inference on the devices; its value is `status`, or MT_DEVICE."""
    return f"{plan.graph.name}_device_end({status})"


def public_declarations(plan: Plan) -> list[str]:
    """Return what `<model>.h` says of the devices."""
    devices, model = devices_of(plan), plan.graph.name
    if not devices.can_fail:
        return []
    lines = [
        comment("What failed, where an inference returned MT_DEVICE (mt_device.h)."),
        f"extern struct mt_device_failure {model}_failure;",
        "",
    ]
    if devices.have_hooks:
        note = comment("Let go of the devices; the next inference takes them again. Returns 0 or MT_DEVICE.")
        lines += [note, f"int32_t {model}_close(void);", ""]
    return lines


def inner_declarations(plan: Plan) -> list[str]:
    """Return what `<model>_operators.h` says of the devices."""
    devices, model = devices_of(plan), plan.graph.name
    if not devices.can_fail:
        return []
    lines = [
        "",
        comment("Notes in the model's failure which operator's device failed; returns MT_DEVICE."),
        f"int32_t {model}_failed(uint16_t number, int32_t status);",
    ]
    if devices.have_hooks:
        lines += [
            "",
            comment(
                "Call the devices' functions at the beginning of an inference, unless `is_new` is 0 and one is under",
                "way, and at its end; the end returns `status`, if that is not 0.",
            ),
            f"int32_t {model}_device_begin(int32_t is_new);",
            f"int32_t {model}_device_end(int32_t status);",
        ]
    return lines


def definitions(plan: Plan) -> list[str]:
    """Return the C that `<model>.c` has for the devices."""
    devices = devices_of(plan)
    if not devices.can_fail:
        return []
    return [*_failed(plan, devices), *(_hooks(plan, devices) if devices.have_hooks else [])]


def _failed(plan: Plan, devices: Devices) -> list[str]:
    model = plan.graph.name
    rows = []
    for number in devices.regions:
        node = plan.steps[number].node
        names = [short_name(origin) for origin in node.origins[:_MOST_NODES]]
        names += ["…"] * (len(node.origins) > _MOST_NODES)
        rows.append(f"    {{{c_string(node.name)}, {c_string(', '.join(names))}, 0, {number}}},")
    return [
        f"struct mt_device_failure {model}_failure;",
        "",
        f"int32_t {model}_failed(uint16_t number, int32_t status)",
        "{",
        "    static const struct mt_device_failure regions[] = {",
        *(f"    {row}" for row in rows),
        "    };",
        "    for (size_t i = 0; i < sizeof regions / sizeof *regions; ++i) {",
        "        if (regions[i].number == number)",
        f"            {model}_failure = regions[i];",
        "    }",
        f"    {model}_failure.status = status;",
        "    return MT_DEVICE;",
        "}",
        "",
    ]


def _hooks(plan: Plan, devices: Devices) -> list[str]:
    model, hooks = plan.graph.name, devices.hooks
    opening = [*hooks["activate"].items(), *hooks["open"].items()]
    opened = len(opening) + 1
    begin = [
        f"    if ({model}_devices.is_running && is_new == 0)",
        "        return 0;",
        f"    int32_t status = {end_call(plan, '0')};",
        *_stops(plan, None),
    ]
    for place, (name, number) in enumerate(opening):
        called = [f"status = {name}();", *(line.strip("\n") for line in _stops(plan, number, ""))]
        begin += [f"    if ({model}_devices.opened == {place}) {{", *(f"        {line}" for line in called)]
        begin += [f"        ++{model}_devices.opened;", "    }"]
    begin += [f"    {model}_devices.opened = {opened};", f"    {model}_devices.is_running = 1;"]
    for name, number in hooks["before"].items():
        begin += [f"    status = {name}();", *_stops(plan, number)]
    return [
        "/* Of the functions that open devices, how many have succeeded; one more when nothing is left to do. */",
        "static struct {",
        "    uint16_t opened;",
        "    uint8_t is_running; /* an inference is under way */",
        f"}} {model}_devices;",
        "",
        f"int32_t {model}_device_end(int32_t status)",
        "{",
        f"    if (!{model}_devices.is_running)",
        "        return status;",
        f"    {model}_devices.is_running = 0;",
        *_all_called(plan, hooks["after"]),
        "    return status;",
        "}",
        "",
        f"int32_t {model}_device_begin(int32_t is_new)",
        "{",
        *begin,
        "    return status;",
        "}",
        "",
        f"int32_t {model}_close(void)",
        "{",
        f"    int32_t status = {end_call(plan, '0')};",
        f"    if ({model}_devices.opened == 0)",
        "        return status;",
        f"    {model}_devices.opened = 0;",
        *_all_called(plan, hooks["close"]),
        *_all_called(plan, hooks["deactivate"]),
        "    return status;",
        "}",
        "",
    ]


def _stops(plan: Plan, number: int | None, indent: str = "    ") -> list[str]:
    """Return the lines that end the function if the last call failed."""
    value = "status" if number is None else failure_call(plan, str(number), "status")
    return [f"{indent}if (status != 0)", f"{indent}    return {value};"]


def _all_called(plan: Plan, hooks: dict[str, int]) -> Sequence[str]:
    """Return the lines that call all functions, and remember the first failure in `status`."""
    lines = []
    for name, number in hooks.items():
        lines += [
            "    {",
            f"        const int32_t result = {name}();",
            "        if (result != 0 && status == 0)",
            f"            status = {failure_call(plan, str(number), 'result')};",
            "    }",
        ]
    return lines
