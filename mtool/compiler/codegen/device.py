"""Devices that compute regions of a model: their failures, and their hook functions.

crt/include/mtool.h describes the hooks. A model without such regions has none of this.
"""

from collections.abc import Iterator, Sequence

from mtool.base.escaping import c_string, comment, short_name
from mtool.base.frozen import frozen
from mtool.compiler.codegen.c_text import declaration, function, structure
from mtool.compiler.ir import Node
from mtool.compiler.ir.control import Control
from mtool.compiler.kernels.external import HOOKS, External
from mtool.compiler.plan import Plan, Step
from mtool.compiler.plan.whole import ControlSchedule

_MOST_NODES = 8


@frozen
class Devices:
    """The devices of a model, by its name in C.

    regions: the regions that can fail, by their function or hooks: the key, the number of the model's operator that
        it is or is inside of, and the node.
    bases: the first keys of graphs inside branches and loops, by C name.
    hooks: for each occasion its functions, in the order of their calls, each with the key of its first region.
    handed: the functions among them that take the caller's resource.
    take_resource: a region takes it.
    """

    model: str
    regions: tuple[tuple[int, int, Node], ...]
    bases: dict[str, int]
    hooks: dict[str, dict[str, int]]
    resource_users: frozenset[str] = frozenset()
    take_resource: bool = False

    @property
    def can_fail(self) -> bool:
        """Whether an inference may end with MT_DEVICE."""
        return bool(self.regions)

    @property
    def have_hooks(self) -> bool:
        """Whether there are hooks."""
        return any(self.hooks.values())

    @property
    def declared(self) -> list[str]:
        """The parameter of functions that pass the caller's resource on, if a region takes it."""
        return ["void *resource"] * self.take_resource

    @property
    def passed(self) -> list[str]:
        """The argument that passes the caller's resource on, if a region takes it."""
        return ["resource"] * self.take_resource

    def no_resource(self, *, takes_resource: bool) -> list[str]:
        """Return the lines that define a null resource to pass on, in functions whose caller gives none."""
        lines = ["    void *const resource = 0;", "    (void)resource;"]
        return lines if self.take_resource and not takes_resource else []

    def failed(self, key: object, status: str) -> str:
        """Return the C expression that records a device's failure; its value is MT_DEVICE."""
        return f"{self.model}_failed({key}, {status})"

    def begin(self, *, is_new: bool, resource: str = "resource") -> str:
        """Return the C that begins an inference on the devices; unless `is_new`, one in progress continues."""
        return f"{self.model}_device_begin({', '.join([str(int(is_new)), *[resource] * self.take_resource])})"

    def end(self, status: str, resource: str = "resource") -> str:
        """Return the C that ends an inference on the devices; its value is `status`, or MT_DEVICE."""
        return f"{self.model}_device_end({', '.join([status, *[resource] * self.take_resource])})"

    def close(self, *, takes_resource: bool) -> str:
        """Return the declaration of `<model>_close`; `takes_resource`: the caller provides the resource."""
        return f"int32_t {self.model}_close({', '.join(self.declared * takes_resource) or 'void'})"


def devices_of(plan: Plan) -> Devices:
    """Return the devices of a plan; keys of regions are operator numbers, in bodies the numbers after those."""
    regions, resource_users = [], set[str]()
    bases: dict[str, int] = {}
    hooks: dict[str, dict[str, int]] = {when: {} for when in HOOKS}
    end = len(plan.steps)
    for number, step in enumerate(plan.steps):
        inside = [(number, [step])] if isinstance(step.node.attrs, External) else []
        for name, body in _bodies(step):
            if any(isinstance(inner.node.attrs, External) for inner in body.steps):
                bases[name] = end
                inside.append((end, [*body.steps]))
                end += len(body.steps)
        for first, steps in inside:
            for key, inner in enumerate(steps, first):
                attrs = inner.node.attrs
                if not isinstance(attrs, External):
                    continue
                resource_users |= {function for _, function in attrs.hooks if attrs.resource}
                if attrs.can_fail or attrs.hooks:
                    regions.append((key, number, inner.node))
                for when, hook in attrs.hooks:
                    hooks[when].setdefault(hook, key)
    return Devices(
        plan.graph.name, tuple(regions), bases, hooks, frozenset(resource_users), any(map(takes_resource, plan.steps))
    )


def _bodies(step: Step) -> Iterator[tuple[str, Plan]]:
    """Yield the graphs inside a step, by C name."""
    if isinstance(step.schedule, ControlSchedule) and isinstance(step.node.attrs, Control):
        for name, body in zip(step.node.attrs.names, step.schedule.plans, strict=True):
            yield body_name(step.node, name), body
            for inner in body.steps:
                yield from _bodies(inner)


def body_name(node: Node, body: str) -> str:
    """Return the C name of the first key of a body's regions."""
    return f"{node.name}_{body}_regions"


def regions_of(step: Step) -> Iterator[External]:
    """Yield the region that a step is, or the regions inside it."""
    if isinstance(step.schedule, ControlSchedule):
        for body in step.schedule.plans:
            for inner in body.steps:
                yield from regions_of(inner)
    elif isinstance(step.node.attrs, External):
        yield step.node.attrs


def is_failing(plan: Plan, number: int) -> bool:
    """Return whether the function of an operator returns a status."""
    return any(region.can_fail for region in regions_of(plan.steps[number]))


def takes_resource(step: Step) -> bool:
    """Return whether a step is, or contains, a region that takes the caller's resource."""
    return any(region.resource for region in regions_of(step))


def public_declarations(devices: Devices, *, takes_resource: bool) -> list[str]:
    """Return the device declarations in `<model>.h`; `takes_resource`: whether its entry point does."""
    if not devices.can_fail:
        return []
    lines = [
        comment("The failure of an inference that returned MT_DEVICE (mtool.h)."),
        f"extern struct mt_device_failure {devices.model}_failure;",
        "",
    ]
    if devices.have_hooks:
        note = comment("Release the devices; the next inference opens them again. Returns 0 or MT_DEVICE.")
        lines += [note, f"{devices.close(takes_resource=takes_resource)};", ""]
    return lines


def inner_declarations(devices: Devices) -> list[str]:
    """Return the device declarations in `<model>_operators.h`."""
    model = devices.model
    if not devices.can_fail:
        return []
    lines = [
        "",
        declaration(
            f"int32_t {model}_failed(uint16_t key, int32_t status)",
            comment("Records in the model's failure which operator's device failed; returns MT_DEVICE."),
        ),
    ]
    if devices.bases:
        keys = ", ".join(f"{model}_{name} = {key}" for name, key in devices.bases.items())
        lines += [
            "",
            comment("Keys of regions in branches and loops, after the operators' numbers."),
            f"enum {{ {keys} }};",
        ]
    if devices.have_hooks:
        begin, end = _prototypes(devices)
        note = comment(
            "Call the devices' functions at the beginning of an inference, unless `is_new` is 0 and one is in",
            "progress, and at its end; the end returns `status` if that is not 0.",
        )
        lines += ["", declaration(begin, note), declaration(end)]
    return lines


def _prototypes(devices: Devices) -> tuple[str, str]:
    """Return the declarations of what begins and ends an inference on the devices."""
    begin, end = (
        f"int32_t {devices.model}_device_{name}({', '.join([parameter, *devices.declared])})"
        for name, parameter in (("begin", "int32_t is_new"), ("end", "int32_t status"))
    )
    return begin, end


def definitions(devices: Devices, *, takes_resource: bool) -> list[str]:
    """Return the device functions in `<model>.c`; `takes_resource`: whether its entry point does."""
    if not devices.can_fail:
        return []
    return [*_failed(devices), *(_hooks(devices, takes_resource) if devices.have_hooks else [])]


def _failed(devices: Devices) -> list[str]:
    model, rows = devices.model, []
    for key, number, node in devices.regions:
        names = [short_name(origin) for origin in node.origins[:_MOST_NODES]]
        names += ["…"] * (len(node.origins) > _MOST_NODES)
        rows.append(f"    {{{c_string(node.name)}, {c_string(', '.join(names))}, 0, {number}, {key}}},")
    return [
        f"struct mt_device_failure {model}_failure;",
        "",
        function(
            f"int32_t {model}_failed(uint16_t key, int32_t status)",
            "    static const struct mt_device_failure regions[] = {",
            *(f"    {row}" for row in rows),
            "    };",
            "    for (size_t i = 0; i < sizeof regions / sizeof *regions; ++i) {",
            "        if (regions[i].key == key)",
            f"            {model}_failure = regions[i];",
            "    }",
            f"    {model}_failure.status = status;",
            "    return MT_DEVICE;",
        ),
    ]


def _hooks(devices: Devices, takes_resource: bool) -> list[str]:
    model, hooks = devices.model, devices.hooks
    begins, ends = _prototypes(devices)
    ignored = ["    (void)resource;"] * devices.take_resource
    opening = [*hooks["activate"].items(), *hooks["open"].items()]
    opened = len(opening) + 1
    begin = [
        f"    if ({model}_devices.is_running && is_new == 0)",
        "        return 0;",
        f"    int32_t status = {devices.end('0')};",
        "    if (status != 0)",
        "        return status;",
    ]

    def called(name: str, number: int) -> list[str]:
        """Return the lines that call a device's function, and return if that failed."""
        failed = f"    return {devices.failed(number, 'status')};"
        return [f"status = {_hook(devices, name)};", "if (status != 0)", failed]

    for place, (name, number) in enumerate(opening):
        begin += [
            f"    if ({model}_devices.opened == {place}) {{",
            *(f"        {line}" for line in called(name, number)),
        ]
        begin += [f"        ++{model}_devices.opened;", "    }"]
    begin += [f"    {model}_devices.opened = {opened};", f"    {model}_devices.is_running = 1;"]
    begin += [f"    {line}" for hook in hooks["before"].items() for line in called(*hook)]
    return [
        "/* The number of device-opening functions that succeeded; one more when all have. */",
        structure(f"{model}_devices", ["uint16_t opened;", "uint8_t is_running; /* an inference is in progress */"]),
        "",
        function(
            ends,
            *ignored,
            f"    if (!{model}_devices.is_running)",
            "        return status;",
            f"    {model}_devices.is_running = 0;",
            *_all_called(devices, "after"),
            "    return status;",
        ),
        function(begins, *ignored, *begin, "    return status;"),
        function(
            devices.close(takes_resource=takes_resource),
            *devices.no_resource(takes_resource=takes_resource),
            f"    int32_t status = {devices.end('0')};",
            f"    if ({model}_devices.opened == 0)",
            "        return status;",
            f"    {model}_devices.opened = 0;",
            *_all_called(devices, "close"),
            *_all_called(devices, "deactivate"),
            "    return status;",
        ),
    ]


def _hook(devices: Devices, name: str) -> str:
    """Return the C that calls a device's function."""
    return f"{name}({'resource' if name in devices.resource_users else ''})"


def _all_called(devices: Devices, when: str) -> Sequence[str]:
    """Return the lines that call all functions of an occasion, and remember the first failure in `status`."""
    lines = []
    for name, number in devices.hooks[when].items():
        lines += [
            "    {",
            f"        const int32_t result = {_hook(devices, name)};",
            "        if (result != 0 && status == 0)",
            f"            status = {devices.failed(number, 'result')};",
            "    }",
        ]
    return lines
