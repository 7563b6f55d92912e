"""The cost of a model on a board: instructions or time, flash, RAM, stack."""

import contextlib
import functools
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtool import boards
from mtool.base import checked, files, locks, plural, resources
from mtool.base.errors import BuildError, MtoolError, UsageError
from mtool.boards import Board
from mtool.device import cycles as counting
from mtool.device.build import builds_whole_framework, measure
from mtool.device.build.build import BUILD_FOLDER
from mtool.device.build.size import Size
from mtool.device.build.stack import CallGraph
from mtool.device.build.stack import firmware as stack
from mtool.device.cycles import Clock, Estimate, Part, cores
from mtool.device.session import Device, Readings, Timing
from mtool.device.session.bench import Speed, measure_speed
from mtool.device.session.connection import interfaces
from mtool.device.session.profile import Profile, step_times
from mtool.manifest import Manifest, total_arena_bytes
from mtool.stages import samples as sampling
from mtool.stages.building import HOST_DRIVEN, STANDALONE, BuiltProject
from mtool.stages.compiling import CompiledModel
from mtool.stages.deployment import DEFAULT, Deployment, run_samples
from mtool.stages.formatting import amount, joules, kilobytes, share
from mtool.stages.job import Job
from mtool.stages.options import Options
from mtool.stages.samples import Sample

if TYPE_CHECKING:
    from mtool.verification.comparison import Report


# The first run of a new build is compared with the reference, if that is installed: this is cheap.
#
# One sample is compared. The hash of a build that matched is stored with it, so that later runs of the same build are
# not slowed down; a build whose outputs differ is compared, and reported, each time.


log = logging.getLogger(__name__)
MOST_MACS = 2_000_000_000  # of an inference: a few seconds on the host
_STAMP = "compared.key"


@dataclass(frozen=True, slots=True)
class FirstRun:
    """The comparison of a build's first run with the reference."""

    report: "Report"

    def as_json(self) -> dict[str, Any]:
        """Return the comparison as plain values, as in `mtool verify --json`."""
        return self.report.as_json()

    def describe(self) -> str:
        """Return a line about the differences."""
        wrong = [output for output in self.report.outputs if not output.within]
        parts = [f"{diff.name}: {diff.differing:,} of {diff.elements:,} elements, {diff.most}" for diff in wrong]
        return f"the outputs differ from {self.report.reference}'s ({'; '.join(parts)}): mtool verify shows more"


def is_first(model: CompiledModel, prepared: BuiltProject) -> bool:
    """Return whether a build has not been compared yet and can be: with a reference, within a few seconds."""
    stamp, identity = _stamp(prepared)
    with contextlib.suppress(OSError):
        if HOST_DRIVEN not in prepared.built.rebuilt and stamp.read_text() == identity:
            return False
    from mtool.verification import reference  # imports the frontends, which later runs do not need

    return reference.is_installed(model.path) and model.manifest.macs <= MOST_MACS


def compare_first_run(
    model: CompiledModel, prepared: BuiltProject, deployment: Deployment, sample: Sample, run: Callable[[], Sample]
) -> FirstRun | None:
    """Compare the outputs of one sample with the reference's if the build is new; warn if they differ.

    Args:
        model: the compiled model.
        prepared: its build.
        deployment: the device that runs it.
        sample: the inputs.
        run: returns the device's outputs of the first inference in a session.

    Returns:
        The comparison; None: the build is not new, or the reference can't run the model.
    """
    if not is_first(model, prepared):
        return None
    from mtool.verification import reference
    from mtool.verification.oracles.process import DiedError
    from mtool.verification.verification import judge

    try:
        against, expected = reference.computed_by(model.path, [sample], options=model.options)
        opened = functools.partial(deployment.open, prepared)
        first_run = FirstRun(judge(model, [sample], expected, [run()], against=against, opened=opened))
    except MtoolError as refused:
        level = logging.WARNING if isinstance(refused, DiedError) else logging.DEBUG
        log.log(level, "the first run is not compared with %s: %s", reference.name_of(model.path), refused.what)
        return None
    if first_run.report.ok:
        with contextlib.suppress(UsageError):  # then it is compared again next time
            stamp, identity = _stamp(prepared)
            files.write(stamp, identity.encode())
    else:
        log.warning("%s", first_run.describe())
    return first_run


def _stamp(prepared: BuiltProject) -> tuple[Path, str]:
    """Return the file that records the compared build, and its content for this build: the hash over its files."""
    prefix = f"{prepared.manifest.model}-" if prepared.manifest.firmware else ""
    project = prepared.manifest.project
    return prepared.folder / BUILD_FOLDER / f"{prefix}{_STAMP}", project.build_hash if project is not None else ""


# How many more inputs are run to see whether the number of instructions depends on them.
_MOST_INPUTS, _LEAST_INPUTS, _MOST_INSTRUCTIONS = 8, 3, 20_000_000

MODULE = "module"
"""Instead of a firmware kind: the figures are a module's."""
OWN = "own"
"""Instead of a firmware kind: the figures are the model's, in firmware of the user's own, whose file is not here."""
ALL_KINDS = (HOST_DRIVEN, STANDALONE)
_NAMES = {
    STANDALONE: "a firmware without the RPC server",
    HOST_DRIVEN: "the firmware with the RPC server",
    MODULE: "the module alone",
    OWN: "the model alone, in firmware of your own",
}


@dataclass(frozen=True, slots=True)
class Cost:
    """Figures of one inference, and of a firmware.

    instructions: of one inference, where the emulator counts them; else None.
    time_ns: median wall-clock time of one inference, where the timer measures that; else None.
    clock_cycles: of the core's clock in that time, where the timer counts each of them; else None.
    least_instructions, most_instructions: over several inputs, where instructions are counted; the same number if it
        does not depend on them.
    inputs: the number of these inputs.
    macs: nominal multiply-accumulates of the model.
    live_macs: those that remain after constant channels were removed; 0: all of them.
    flash_code_bytes: the whole image (startup, entry point) without the model's constants; on the host only the
        model's own functions; 0: unknown, in firmware of the user's own.
    flash_const_bytes: the model's constants: weights, biases, scales, tables.
    arena_bytes: activations, including inputs and outputs unless they are in the caller's memory.
    arena_bound_bytes: a lower bound of `arena_bytes` for this model.
    firmware_arena_bytes: the arenas of all models of the firmware, shared parts counted once; 0: only this model.
    ram_static_bytes: .data and .bss without the arena and the stack, and copies of constants in pools.
    weights_in_ram_bytes, code_in_ram_bytes: the parts of that for weights and for code, which are also in flash.
    own_code_bytes, own_const_bytes: in a firmware of several models, this model's functions and constants that no
        model before it has.
    stack_bytes: the deepest stack of an inference, measured by stack painting; None: not measured.
    stack_bound_bytes: the most stack that the model's entry points can need, by the firmware's code; None: unknown.
    served_stack_bound_bytes: the same with the RPC server's call of the entry point, which is measured too.
    interrupt_stack_bytes: the most that an interrupt adds to that; 0: the firmware handles none during an inference;
        None: unknown.
    stack_bound_unknown: why there is no bound; empty: there is one, or the code of this core can't be read.
    operators: what each operator takes, by its name, for the tests of a project; empty unless requested.
    firmware: what the flash and RAM are of: "standalone" firmware only runs inferences, "host_driven" also has the
        RPC server; "module": the module itself; "own": the model's constants and arena, as the firmware is the user's.
    cycles: an estimate of cycles; None unless it was requested.
    first_run: how the outputs compare with the reference's; None: the build is not new, or nothing was compared.
    """

    model: str
    board: str
    instructions: int | None
    time_ns: float | None
    macs: int
    flash_code_bytes: int
    flash_const_bytes: int
    arena_bytes: int
    arena_bound_bytes: int
    ram_static_bytes: int
    stack_bytes: int | None
    firmware: str = STANDALONE
    clock_cycles: int | None = None
    cycles: counting.Estimate | None = None
    first_run: FirstRun | None = None
    live_macs: int = 0
    firmware_arena_bytes: int = 0
    weights_in_ram_bytes: int = 0
    code_in_ram_bytes: int = 0
    own_code_bytes: int = 0
    own_const_bytes: int = 0
    stack_bound_bytes: int | None = None
    served_stack_bound_bytes: int | None = None
    interrupt_stack_bytes: int | None = 0
    stack_bound_unknown: str = ""
    least_instructions: int | None = None
    most_instructions: int | None = None
    inputs: int = 0
    operators: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    @property
    def instructions_per_mac(self) -> float | None:
        """Return instructions per multiply-accumulate, or None if either number is unknown."""
        return self.instructions / self.macs if self.instructions is not None and self.macs else None

    def as_json(self) -> dict[str, Any]:
        """Return the figures by name, without the comparison; `cycles` only if estimated."""
        figures = asdict(replace(self, cycles=None, first_run=None))
        del figures["cycles"], figures["first_run"], figures["operators"]
        estimated = {} if self.cycles is None else {"cycles": self.cycles.as_json()}
        return {**figures, "instructions_per_mac": self.instructions_per_mac, **estimated}

    def speed(self) -> str:
        """Return the speed as text."""
        if self.instructions is not None:
            live = f", {self.instructions / self.live_macs:.2f} per live one" if self.live_macs else ""
            per_mac = f" ({self.instructions_per_mac:.2f} per MAC{live})" if self.macs else ""
            return f"{plural.count(self.instructions, 'instruction')}{per_mac}"
        if self.time_ns is None:
            return "not measured"
        time = f"{self.time_ns / 1e3:,.1f} µs"
        return time if self.clock_cycles is None else f"{plural.count(self.clock_cycles, 'cycle')} ({time})"

    def by_input(self) -> str:
        """Return the speed's dependence on the inputs, as text."""
        if self.least_instructions == self.most_instructions:
            return f"the same for {self.inputs} inputs" if self.inputs else ""
        return f"{self.least_instructions:,} to {self.most_instructions:,} for {self.inputs} inputs"

    def flash(self) -> str:
        """Return the flash as text."""
        if self.firmware == OWN:
            return f"constants {kilobytes(self.flash_const_bytes)}; the firmware is your own"
        total = self.flash_code_bytes + self.flash_const_bytes
        parts = f"code {kilobytes(self.flash_code_bytes)}, constants {kilobytes(self.flash_const_bytes)}"
        return f"{kilobytes(total)}  ({parts})"

    def ram(self) -> str:
        """Return the RAM of the firmware, with this model's stack, as text."""
        arena_bytes = self.firmware_arena_bytes or self.arena_bytes
        if self.firmware == OWN:
            return f"arena {kilobytes(arena_bytes)}"
        total = arena_bytes + self.ram_static_bytes + (self.stack_bytes or 0)
        stack = "not measured" if self.stack_bytes is None else kilobytes(self.stack_bytes)
        of_model = f" for all models, {kilobytes(self.arena_bytes)} for this one" if self.firmware_arena_bytes else ""
        in_ram = " and ".join(f"{kilobytes(count)} of {what}" for what, count in self._from_flash())
        data = f"data {kilobytes(self.ram_static_bytes)}{f' with {in_ram}' * bool(in_ram)}"
        return f"{kilobytes(total)}  (arena {kilobytes(arena_bytes)}{of_model}, {data}, stack {stack})"

    def flash_parts(self) -> tuple[str, str]:
        """Return code and constants as text: with several models first this model's own, then those of all."""
        code, constants = f"{self.flash_code_bytes:,} B", f"{self.flash_const_bytes:,} B"
        if not self.firmware_arena_bytes:
            return code, constants
        return f"{self.own_code_bytes:,} B of {code} in all", f"{self.own_const_bytes:,} B of {constants} in all"

    def stack_bound(self) -> str:
        """Return the stack's bound as text."""
        if self.stack_bound_unknown:
            return f"not known: {self.stack_bound_unknown}"
        if self.stack_bound_bytes is None:
            return ""
        served = self.served_stack_bound_bytes
        if served is None:
            return f"{self.stack_bound_bytes:,} B"
        if self.is_bound_exceeded:
            measured = ", which is wrong: less than was measured"
        elif (self.stack_bytes or 0) > served:
            count = self.interrupt_stack_bytes
            most = "an unknown number of" if count is None else f"at most {count:,}"
            measured = f", as measured without an interrupt's {most} B"
        else:
            measured = ", as measured"
        return f"{self.stack_bound_bytes:,} B, {served:,} B with the RPC server's call{measured}"

    @property
    def is_bound_exceeded(self) -> bool:
        """Whether more stack was measured than the firmware's code and an interrupt can need: the bound is wrong."""
        served, interrupt = self.served_stack_bound_bytes, self.interrupt_stack_bytes
        return served is not None and interrupt is not None and (self.stack_bytes or 0) > served + interrupt

    def check_bound(self) -> None:
        """Warn if the stack's bound is wrong; in mtool's own tests, that is an error."""
        if self.is_bound_exceeded:
            wrong = f"{self.model} on {self.board} used {self.stack_bytes:,} B of stack; at most {self.stack_bound()}"
            assert not resources.warnings_are_errors(), wrong
            log.warning("%s: please report it", wrong)

    def data(self) -> str:
        """Return the static RAM as text."""
        return f"{self.ram_static_bytes:,} B" + "".join(
            f", {count:,} B of it {what}" for what, count in self._from_flash()
        )

    def _from_flash(self) -> list[tuple[str, int]]:
        """Return the parts of the static RAM that are copied from flash."""
        parts = (("weights", self.weights_in_ram_bytes), ("code", self.code_in_ram_bytes))
        return [(what, count) for what, count in parts if count]


def bench(
    path: str | Path,
    *,
    board: str | Board,
    number: checked.Count = 1,
    repeat: checked.Count = 3,
    min_repeat_ms: checked.NotNegative = 0.0,
    cooldown_ms: checked.NotNegative = 0.0,
    repeats_to_cooldown: checked.Count = 1,
    zero_time_limit: checked.Natural = 100,
    options: Options | None = None,
    deployment: Deployment = DEFAULT,
    cycles: bool = False,
    clocks: Sequence[counting.Clock] = (),
    fill: str = "random",
    on: Path | None = None,
    elf: Path | None = None,
) -> Cost:
    """Compile, build and run a model, and measure what it costs.

    Args:
        path: the ONNX or TFLite model.
        board: a board or its name.
        number: the number of inferences between two readings of the timer.
        repeat: the number of readings; their median counts.
        min_repeat_ms: the shortest duration of a reading: `number` is raised until it is reached.
        cooldown_ms: a pause between readings.
        repeats_to_cooldown: the number of readings between two pauses.
        zero_time_limit: how many times `number` may be raised while the timer reads zero.
        options: how to compile and which template to use.
        deployment: the project folder, and the device that runs it.
        cycles: estimate cycles too, in the board's emulator.
        clocks: the clocks and flash memories to estimate for.
        fill: what the inputs are filled with: "zeros", "ones", "random", or a file.
        on: the project whose firmware has the model as a module: the module is measured, and flash and RAM are its
            own.
        elf: the linked file of firmware of your own: the stack's bound is that of the model there.

    Raises:
        MtoolError: of the class for the stage that fails, see mtool.errors.
    """
    readings = Readings(number, repeat, min_repeat_ms, zero_time_limit, cooldown_ms, repeats_to_cooldown)
    job = Job.of(path, board, options, deployment, fill=fill, on=on)
    return bench_job(job, readings, clocks if cycles else None, elf=elf)


@locks.keep_locks()
def bench_job(
    job: Job, readings: Readings, clocks: Sequence[counting.Clock] | None = None, *, elf: Path | None = None
) -> Cost:
    """Do what `bench` does; cycles are estimated unless `clocks` is None."""
    if elf is not None:
        _check_elf(elf)
    if clocks is not None:
        counting.cores_for(job.target)
    model = job.compile()
    prepared = job.build(model, kinds_to_measure(model))
    inputs = job.filled(prepared.manifest)
    with job.deployment.open(prepared) as device:
        cost = cost_of(prepared, device, inputs, readings)
        if elf is not None:
            bounds = _stack_bounds(prepared.manifest, elf)  # not with the server's call: another firmware was measured
            if not bounds:
                what = f"{elf} has no code of {prepared.manifest.model} that can be read"
                details = [f"expected a function {prepared.manifest.symbols['run']} for Arm Cortex-M, RISC-V or AVR"]
                raise UsageError(what, details=details, hint=_LINKED)
            cost = replace(cost, **bounds)
        if job.is_module:
            interface = [api for api in interfaces(device.session).values() if api.name == prepared.manifest.model][-1]
            return replace(
                cost,
                flash_code_bytes=interface.code_bytes,
                flash_const_bytes=interface.constant_bytes,
                arena_bound_bytes=model.manifest.arena_bound_bytes,
                ram_static_bytes=0,
                firmware=MODULE,
            )
    cost = replace(cost, first_run=_compare_first(job, model, prepared, inputs))
    if clocks is None:
        return cost
    return replace(cost, cycles=counting.estimate(prepared.folder, inputs, clocks, model=prepared.manifest.model))


_LINKED = "give the linked file with its symbols, not a .bin or .hex"


def _check_elf(elf: Path) -> None:
    """Check that a linked file can be read, before the work of a measurement.

    Raises:
        UsageError: it can't.
    """
    try:
        CallGraph(elf)
    except BuildError as wrong:
        raise UsageError(wrong.what, details=wrong.details, hint=_LINKED) from None


def _compare_first(job: Job, model: CompiledModel, prepared: BuiltProject, inputs: Sample) -> FirstRun | None:
    """Compare the outputs of a new build in a separate session: the first inference counts."""

    def run() -> Sample:
        return run_samples(prepared, [inputs], job.deployment)[0]

    return compare_first_run(model, prepared, job.deployment, inputs, run)


def kinds_to_measure(model: CompiledModel) -> tuple[str, ...]:
    """Return the firmware kinds that a measurement builds: the one that runs, and the one without the RPC server.

    If each kind builds a whole framework, which takes minutes, only the one that runs is built.
    """
    template = model.options.template or next(iter(model.board.templates))
    from mtool import project  # imports the template renderer

    return (HOST_DRIVEN,) if builds_whole_framework(project.load(template).builder) else ALL_KINDS


def cost_of(prepared: BuiltProject, device: Device, inputs: Sample, readings: Readings) -> Cost:
    """Measure the cost of an inference on an open device; where it counts instructions, of other inputs too."""
    cost = cost_at(prepared, measure_speed(device, inputs, readings), is_limited=device.is_limited)
    cost.check_bound()
    if cost.instructions is None:
        return cost
    if f"{prepared.manifest.model}_check" in {point.name for point in prepared.manifest.entry_points}:
        return cost  # with --guard, each run checks another part of the constants
    count = min(_MOST_INPUTS, max(_LEAST_INPUTS, _MOST_INSTRUCTIONS // max(cost.instructions, 1)))
    counted = [device.time(1, 1, inputs=sample) for sample in sampling.varied(prepared.manifest.inputs, count=count)]
    counts = [cost.instructions, *(round(timing.median) for timing in counted)]
    if max(counts) - min(counts) <= counted[0].granularity:
        counts = [cost.instructions] * len(counts)
    return replace(cost, least_instructions=min(counts), most_instructions=max(counts), inputs=len(counts))


@locks.keep_locks()
def time_function(job: Job, function: str, readings: Readings) -> Timing:
    """Compile, build and run a model, and time one operator, given by its name.

    Raises:
        UsageError: the model has no such operator.
        MtoolError: of the class for the stage that fails, see mtool.errors.
    """
    job.refuse_module("the operators of a module can't be timed by name")
    prepared = job.build(job.compile())
    inputs = job.filled(prepared.manifest)
    with job.deployment.open(prepared) as device:
        return device.time(**asdict(readings), function=function, inputs=inputs)


def cost_at(prepared: BuiltProject, speed: Speed, *, is_limited: bool = False) -> Cost:
    """Return the cost of an inference with this speed, for the standalone firmware if it was built, else the other.

    `is_limited`: the device's watchdog limited the inference whose stack was measured.
    """
    manifest = prepared.manifest
    if manifest.in_project.is_own:
        firmware, size = OWN, Size(0, manifest.constant_bytes, 0, manifest.arena_bytes, 0, {}, {}, has_threads=False)
    else:
        firmware = STANDALONE if STANDALONE in prepared.built.firmware else HOST_DRIVEN
        size = measure(prepared.built.firmware[firmware], manifest)
    own_code = sum(count for name, count in size.functions.items() if name.startswith(f"{manifest.model}_"))
    counted = speed.unit == "instructions"
    timer, clock_hz = prepared.board.timer, prepared.board.clock_hz
    each_cycle = timer is not None and timer.hz == clock_hz and not counted and firmware != OWN
    return Cost(
        model=manifest.model,
        board=prepared.board.name,
        instructions=round(speed.median) if counted else None,
        time_ns=None if counted else speed.median,
        macs=manifest.macs,
        live_macs=manifest.live_macs,
        flash_code_bytes=size.flash_code_bytes,
        flash_const_bytes=size.flash_const_bytes,
        arena_bytes=manifest.arena_bytes,
        arena_bound_bytes=manifest.arena_bound_bytes,
        firmware_arena_bytes=total_arena_bytes(manifest.firmware),
        ram_static_bytes=size.ram_static_bytes
        + sum(pool.constant_bytes for model in manifest.models for pool in model.pools),
        stack_bytes=speed.stack_bytes,
        **_stack_bounds(
            manifest, prepared.plain_firmware, prepared.built.firmware.get(HOST_DRIVEN), is_limited=is_limited
        ),
        own_code_bytes=own_code if manifest.firmware else 0,
        own_const_bytes=manifest.constant_bytes - manifest.shared_constant_bytes if manifest.firmware else 0,
        weights_in_ram_bytes=sum(model.constant_bytes_in_ram for model in manifest.models),
        code_in_ram_bytes=size.hot_code_bytes,
        firmware=firmware,
        clock_cycles=round(speed.median * clock_hz / 1e9) if each_cycle else None,
    )


def _stack_bounds(
    model: Manifest, elf: Path | None, with_server: Path | None = None, *, is_limited: bool = False
) -> dict[str, Any]:
    """Return a cost's stack bounds: of a model's entry points in a firmware, and in one with the RPC server."""
    bound = None if elf is None else stack.deepest(stack.entry_points(elf, model).values())
    if bound is None:  # there is no file, or its code can't be read
        return {}
    served = None if with_server is None else stack.served(with_server, model, is_limited=is_limited)
    return {
        "stack_bound_bytes": bound.bytes,
        "served_stack_bound_bytes": served.bound.bytes if served is not None else None,
        "interrupt_stack_bytes": served.interrupt_bytes if served is not None else 0,
        "stack_bound_unknown": bound.unknown,
    }


def comparison(costs: Sequence[Cost]) -> list[list[str]]:
    """Return rows that compare costs: a label and a figure for each cost."""
    rows = {
        "one inference": [cost.speed() for cost in costs],
        "by input": [cost.by_input() for cost in costs],
        "MACs": [amount(cost.macs) + (f", {amount(cost.live_macs)} live" if cost.live_macs else "") for cost in costs],
        "flash: code": [cost.flash_parts()[0] for cost in costs],
        "flash: constants": [cost.flash_parts()[1] for cost in costs],
        "RAM: arena": [f"{cost.arena_bytes:,} B (bound {cost.arena_bound_bytes:,} B)" for cost in costs],
    }
    if not any(rows["by input"]):
        del rows["by input"]
    if any(cost.firmware_arena_bytes for cost in costs):
        rows["RAM: arena of all models"] = [f"{cost.firmware_arena_bytes:,} B" for cost in costs]
    rows["RAM: data, bss"] = [cost.data() for cost in costs]
    rows["RAM: stack"] = ["not measured" if cost.stack_bytes is None else f"{cost.stack_bytes:,} B" for cost in costs]
    rows["RAM: stack, at most"] = [cost.stack_bound() for cost in costs]
    if not any(rows["RAM: stack, at most"]):
        del rows["RAM: stack, at most"]
    if any(cost.firmware != STANDALONE for cost in costs):
        rows["flash, RAM are of"] = [_NAMES[cost.firmware] for cost in costs]
    if all(cost.firmware == OWN for cost in costs):
        del rows["flash: code"], rows["RAM: data, bss"]
    return [[label, *figures] for label, figures in rows.items()]


# The worst latency of the most urgent of several models: its wait for others, and its own time.

_REPEAT = 3  # runs of each; the median counts


@dataclass(frozen=True, slots=True)
class Latency:
    """The longest time from the release of the most urgent model until its outputs are ready.

    Attributes:
        model: its name.
        unit: "instructions", or "ns".
        own: the time of its inference.
        wait: the longest stretch of another model during which it can't start.
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

        It excludes the scheduler, about 100 instructions for each operator, and the copies of inputs and outputs that
        are not in the arena.
        """
        return self.own + self.wait

    def as_json(self) -> dict[str, Any]:
        """Return the figures by name."""
        return {**asdict(self), "worst": self.worst}

    def describe(self) -> str:
        """Return it in a line."""
        waits = f"{self.wait:,.0f} waiting for {self.waits_for}, {self.own:,.0f} its own"
        return f"worst latency of {self.model}: {self.worst:,.0f} {self.unit} ({waits})"


def worst_latency(prepared: BuiltProject, deployment: Deployment) -> Latency:
    """Measure the operators of a built firmware's models on its device; return the first model's worst latency.

    Raises:
        MtoolError: of the class for the stage that fails, see mtool.errors.
    """
    from mtool.compiler.plan.shared_arena import longest_stretch

    urgent, *others = prepared.manifest.models
    with deployment.open(prepared) as device:

        def times(manifest: Manifest) -> list[float]:
            session, inputs = device[manifest.model], sampling.seeded(manifest.inputs, count=1, seed=0)[0]
            return step_times(session.client, manifest, inputs, repeat=_REPEAT, work_s=session.work_s)

        stretches = {other.model: longest_stretch(times(other), other.pauses) for other in others}
        first, inputs = device[urgent.model], sampling.seeded(urgent.inputs, count=1, seed=0)[0]
        median = first.time(1, _REPEAT, inputs=inputs).median
        waits_for = max(stretches, key=lambda name: stretches[name])
        return Latency(urgent.model, first.unit, median, stretches[waits_for], waits_for)


# The time of every operator of a model.


@locks.keep_locks()
def bench_layers(
    path: str | Path,
    *,
    board: str | Board,
    repeat: checked.Count = 3,
    options: Options | None = None,
    deployment: Deployment = DEFAULT,
    fill: str = "random",
    on: Path | None = None,
) -> Profile:
    """Compile, build and run a model, and time each operator on the device.

    Args:
        path: the ONNX or TFLite model.
        board: a board or its name.
        repeat: the number of inferences, at least 1, for each operator's median.
        options: how to compile and which template to use.
        deployment: the project folder, and the device that runs it.
        fill: what the inputs are filled with: "zeros", "ones", "random", or a file.
        on: the package in firmware of your own, which is measured; nothing is built or flashed then.

    Returns:
        The median of each operator and of the whole inference, in nanoseconds of the device's timer, or in instructions
        if it counts those (`Profile.unit`).

    Raises:
        MtoolError: of the class for the stage that fails, see mtool.errors.
    """
    job = Job.of(path, board, options, deployment, fill=fill, on=on)
    job.refuse_module("the operators of a module can't be timed one by one")
    model = job.compile()
    prepared = job.build(model)
    inputs = job.filled(prepared.manifest)
    with deployment.open(prepared) as device:
        profile = device.profile(inputs, repeat=repeat)
    _compare_first(job, model, prepared, inputs)
    return profile


# Tables of estimated cycles: per core, at the clocks of real boards, by kind of instruction and by function.


_HZ = 1e6
_LEAST, _MOST = 1e3, 1e10  # hertz: plausible clocks of a core


def clocks(names: Sequence[str], target: Board) -> list[Clock]:
    """Return the clocks to estimate for.

    Args:
        names: boards, boards at another frequency than their own ("nucleo_l4r5zi@80MHz"), and frequencies of `target`'s
            core ("120MHz"), with memory without wait states.
        target: the board that the code is compiled for.

    Raises:
        BoardError: there is no such board.
        UsageError: a core has no table or can't run code for `target`'s core, or its clock is unknown or invalid.
    """
    cpus = [core.cpu for core in cores() if target.cpu in core.runs]
    result = []
    for name in names:
        board, hz = _board_and_clock(name)
        if board is None:
            result.append(Clock(f"{hz / _HZ:g} MHz", cpus[0] if cpus else target.cpu, hz))
            continue
        if board.cpu not in cpus:
            raise UsageError(
                f"--clock {name}: there is no estimate for its core",
                details=[f"its core is {board.cpu}; code for {target.cpu} can be estimated on: {', '.join(cpus)}"],
                hint="choose a board with such a core: mtool boards",
            )
        memory = board.memory_for("weights")
        result.append(Clock(name, board.cpu, _clock_hz(name, board, hz), memory.reads if memory else None, board.draws))
    return result


def standing_for(target: Board, names: Sequence[str]) -> Board:
    """Return `target` with the memories of the board to estimate for.

    If one board is named, the model is compiled for its flash and RAM, which determine the memory of constants.
    Otherwise this is `target` unchanged.
    """
    (clock,) = clocks(names, target) if len(names) == 1 else (None,)
    weights, data = target.region_for("weights"), target.region_for("data")
    if clock is None or clock.reads is None or weights is None or data is None:
        return target
    board = boards.get(clock.name.rpartition("@")[0] or clock.name)
    ram, hot = board.memory_for("data"), board.memory_for("hot_code")
    reads = clock.reads.model_copy(update={"wait_states": {clock.hz // 1_000_000 + 1: clock.waits}})
    memories = dict(target.memories)
    memories[weights] = memories[weights].model_copy(update={"reads": reads})
    if ram is not None:
        memories[data] = memories[data].model_copy(update={"size": min(ram.size, memories[data].size)})
    for name, region in target.memories.items():
        if "hot_code" in region.holds:
            size = min(hot.size, region.size) if hot is not None else 0
            memories[name] = region.model_copy(update={"size": size} if size else {"holds": ()})
    return target.model_copy(update={"memories": memories})


def hertz(clock: str) -> int:
    """Return the hertz of a frequency ("120MHz"), of a board's clock, or of a board at another ("nucleo_l4r5zi@80MHz").

    Raises:
        BoardError: there is no such board.
        UsageError: it is not a frequency, or the board's clock is unknown.
    """
    board, hz = _board_and_clock(clock)
    return hz if board is None else _clock_hz(clock, board, hz)


def _board_and_clock(clock: str) -> tuple[Board | None, int]:
    """Return the board and the frequency of an argument; None: no board; 0: no frequency.

    Raises:
        BoardError: there is no such board.
        UsageError: the frequency is invalid.
    """
    name, at, frequency = clock.rpartition("@")
    if at:
        return boards.get(name), _frequency(clock, frequency)
    if clock not in boards.load_all() and re.search(r"(^\W*\d|hz$)", clock.strip(), re.IGNORECASE):
        return None, _frequency(clock, clock)
    return boards.get(clock), 0


def _clock_hz(clock: str, board: Board, hz: int) -> int:
    if not (hz or board.clock_hz):
        hint = f"give a frequency: --clock {board.name}@100MHz"
        raise UsageError(f"--clock {clock}: the board's clock is unknown", hint=hint)
    return hz or board.clock_hz


def _frequency(clock: str, text: str) -> int:
    """Return the hertz of "120MHz", "64e6" or "1.2 GHz".

    Raises:
        UsageError: it is not a frequency, or is implausible for a core.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?(?:e\d{1,2})?)\s*([kmg]?)(hz)?", text.strip(), re.IGNORECASE | re.ASCII)
    if match is None:
        raise UsageError(f"--clock {clock}: {text!r} is not a frequency", hint="examples: 120MHz, 64000000, 1.2GHz")
    hz = float(match[1]) * {"": 1, "k": 1e3, "m": 1e6, "g": 1e9}[match[2].lower()]
    if not match[2] and not match[3] and 0 < hz < _LEAST:
        raise UsageError(f"--clock {clock}: {hz:g} Hz is too low; did you mean {hz:g}MHz?")
    if not _LEAST <= hz <= _MOST:
        raise UsageError(f"--clock {clock}: no core runs at {hz:g} Hz", hint="examples: 120MHz, 64000000, 1.2GHz")
    return round(hz)


def cycle_rows(estimate: Estimate, macs: int, at: Sequence[Clock]) -> list[list[str]]:
    """Return rows of a label and a figure: cycles of each core, and milliseconds at each clock."""
    from mtool.stages.latency_estimate import estimate_energy  # imports the compiler

    names = {core.cpu: core.name for core in cores()}
    rows = []
    for cpu, cycles in estimate.cycles.items():
        per_mac = f"{cycles / macs:.2f} per MAC, " if macs else ""
        ratio = f"{cycles / estimate.instructions:.2f} per instruction"
        rows.append([f"{names[cpu]}, estimated", f"{plural.count(cycles, 'cycle')} ({per_mac}{ratio})"])
    for clock in at:
        milliseconds = estimate.milliseconds(clock)
        energy = estimate_energy(milliseconds, 0, clock.draws, clock.hz)
        volts = f" at {clock.draws.volts:g} V" if clock.draws else ""
        uses = f", {joules(energy.microjoules)} ± {energy.error:.0%}{volts}" if energy else ""
        rows.append([clock.name, f"{milliseconds:,.2f} ms at {clock.hz / _HZ:g} MHz, {_waits(estimate, clock)}{uses}"])
    return rows


def _waits(estimate: Estimate, clock: Clock) -> str:
    """Return the flash's wait states as text."""
    if clock.reads is None:
        return "in memory without wait states"
    waits = estimate.waits[clock.name]
    sure = "" if clock.reads.is_sure else "likely "
    part = share(waits, waits + estimate.cycles[clock.cpu])
    return f"{part} of it waiting for the flash ({sure}{clock.waits} wait states)"


def mix_rows(estimate: Estimate) -> list[list[str]]:
    """Return a row for each kind of instruction: the number executed and the share."""
    return [[kind, f"{count:,}", share(count, estimate.instructions)] for kind, count in estimate.mix.items() if count]


def part_rows(parts: Sequence[Part], estimate: Estimate) -> list[list[str]]:
    """Return a row for each operator or function: its instructions, and each core's cycles and their share."""
    rows = []
    for part in parts:
        row = [part.name, f"{part.instructions:,}"]
        for cpu, cycles in part.cycles.items():
            row += [f"{cycles:,}", share(cycles, estimate.cycles[cpu])]
        rows.append(row)
    return rows


def part_headings(what: str, estimate: Estimate) -> list[str]:
    """Return the headings for `part_rows`; `what` names the parts."""
    names = {core.cpu: core.name for core in cores()}
    return [what, "instructions", *(text for cpu in estimate.cycles for text in (names[cpu], "share"))]
