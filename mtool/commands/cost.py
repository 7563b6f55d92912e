"""The cost of a model on a board: instructions or time, flash, RAM, stack."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from mtool import boards
from mtool.base import locks
from mtool.boards import Board
from mtool.commands.first_run import FirstRun, compare_first_run
from mtool.device import cycles as counting
from mtool.device.build import builds_whole_framework, measure
from mtool.device.session import Device, Readings, Timing
from mtool.device.session.bench import Speed, measure_speed
from mtool.manifest import total_arena_bytes
from mtool.stages import samples as sampling
from mtool.stages.building import HOST_DRIVEN, STANDALONE, Prepared
from mtool.stages.compiling import Model
from mtool.stages.deployment import DEFAULT, Deployment, run_samples
from mtool.stages.formatting import amount, kilobytes
from mtool.stages.options import Options
from mtool.stages.samples import Sample

MODULE = "module"
"""In place of a firmware's kind: the figures are a module's."""
ALL_KINDS = (HOST_DRIVEN, STANDALONE)
_FIRMWARE = "flash, RAM are of"
_NAMES = {
    STANDALONE: "a firmware without the RPC server",
    HOST_DRIVEN: "the firmware with the RPC server",
    MODULE: "the module alone",
}


@dataclass(frozen=True, slots=True)
class Cost:
    """Figures of one inference, and of a firmware.

    instructions: of one inference, where the emulator counts them; else None.
    time_ns: median wall-clock time of one inference, where the timer measures that; else None.
    clock_cycles: of the core's clock in that time, where the timer counts each of them; else None.
    macs: nominal multiply-accumulates of the model.
    live_macs: those that are left where channels that are constant were taken out; 0: all of them.
    flash_code_bytes: the whole image (startup, entry point) without the model's constants; on the host the model's
        own functions alone.
    flash_const_bytes: the model's constants: weights, biases, scales, tables.
    arena_bytes: activations, with the inputs and outputs unless the caller keeps them.
    arena_bound_bytes: a lower bound of `arena_bytes` for this model.
    firmware_arena_bytes: the arenas of all models of the firmware, what they share once; 0: it has this model alone.
    ram_static_bytes: .data and .bss without the arena and the stack, and copies of constants in pools.
    weights_in_ram_bytes: those of them that are weights, which lie in flash too.
    own_code_bytes, own_const_bytes: in a firmware of several models the functions and the constants of this one that
        no model before it has.
    stack_bytes: the deepest stack of an inference, by painting; None where that is not measured.
    firmware: whose flash and RAM these are: "standalone" does nothing but inferences, "host_driven" has the RPC server
        besides; "module": a module's own.
    cycles: an estimate of cycles; None unless it was asked for.
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
    own_code_bytes: int = 0
    own_const_bytes: int = 0

    @property
    def instructions_per_mac(self) -> float | None:
        """Return instructions per multiply-accumulate, or None if either is not known."""
        return self.instructions / self.macs if self.instructions is not None and self.macs else None

    def as_json(self) -> dict[str, Any]:
        """Return the figures by name, without the comparison; `cycles` only if they were estimated."""
        figures = asdict(replace(self, cycles=None, first_run=None))
        del figures["cycles"], figures["first_run"]
        estimated = {} if self.cycles is None else {"cycles": self.cycles.as_json()}
        return {**figures, "instructions_per_mac": self.instructions_per_mac, **estimated}

    def speed(self) -> str:
        """Return the speed in words."""
        if self.instructions is not None:
            each = f" ({self.instructions_per_mac:.2f} per MAC{self._per_live_mac()})" if self.macs else ""
            return f"{self.instructions:,} instructions{each}"
        if self.time_ns is None:
            return "not measured"
        time = f"{self.time_ns / 1e3:,.1f} µs"
        return time if self.clock_cycles is None else f"{self.clock_cycles:,} cycles ({time})"

    def _per_live_mac(self) -> str:
        if self.instructions is None or not self.live_macs:
            return ""
        return f", {self.instructions / self.live_macs:.2f} per live one"

    def flash(self) -> str:
        """Return the flash in words."""
        total = self.flash_code_bytes + self.flash_const_bytes
        parts = f"code {kilobytes(self.flash_code_bytes)}, constants {kilobytes(self.flash_const_bytes)}"
        return f"{kilobytes(total)}  ({parts})"

    def ram(self) -> str:
        """Return the RAM of the firmware in words, with the stack of this model."""
        arena_bytes = self.firmware_arena_bytes or self.arena_bytes
        total = arena_bytes + self.ram_static_bytes + (self.stack_bytes or 0)
        stack = "not measured" if self.stack_bytes is None else kilobytes(self.stack_bytes)
        own = f" for all models, {kilobytes(self.arena_bytes)} for this one" if self.firmware_arena_bytes else ""
        data = f"{kilobytes(self.ram_static_bytes)}{self._weights()}"
        parts = f"arena {kilobytes(arena_bytes)}{own}, data {data}, stack {stack}"
        return f"{kilobytes(total)}  ({parts})"

    def _weights(self) -> str:
        return f" with {kilobytes(self.weights_in_ram_bytes)} of weights" if self.weights_in_ram_bytes else ""

    def flash_parts(self) -> tuple[str, str]:
        """Return the code and the constants in words: of several models first this one's own, then of all."""
        code, constants = f"{self.flash_code_bytes:,} B", f"{self.flash_const_bytes:,} B"
        if not self.firmware_arena_bytes:
            return code, constants
        return f"{self.own_code_bytes:,} B of {code} in all", f"{self.own_const_bytes:,} B of {constants} in all"

    def data(self) -> str:
        """Return the static RAM in words."""
        weights = f", {self.weights_in_ram_bytes:,} B of it weights" if self.weights_in_ram_bytes else ""
        return f"{self.ram_static_bytes:,} B{weights}"


@locks.keep_locks()
def bench(
    path: str | Path,
    *,
    board: str | Board,
    number: int = 1,
    repeat: int = 3,
    min_repeat_ms: float = 0.0,
    cooldown_ms: float = 0.0,
    repeats_to_cooldown: int = 1,
    zero_time_limit: int = 100,
    options: Options | None = None,
    deployment: Deployment = DEFAULT,
    cycles: bool = False,
    clocks: Sequence[counting.Clock] = (),
    fill: str = "random",
) -> Cost:
    """Compile, build and run a model, and measure what it costs.

    Args:
        path: the ONNX or TFLite model.
        board: a board or its name.
        number: inferences between two readings of the timer.
        repeat: readings, of which the median counts.
        min_repeat_ms: how long a reading should take at least: `number` grows until it does.
        cooldown_ms: a pause between readings.
        repeats_to_cooldown: readings between two pauses.
        zero_time_limit: how often `number` may grow while the timer reads zero.
        options: how to compile and which template to use.
        deployment: the project folder, and the device that runs it.
        cycles: estimate cycles too, in the board's emulator.
        clocks: the boards whose flash is looked at for that.
        fill: what the inputs are filled with: "zeros", "ones", "random", or a file (workflow.filling).

    Raises:
        MtoolError: of the class that tells the stage, see mtool.errors.
    """
    readings = Readings(number, repeat, min_repeat_ms, zero_time_limit, cooldown_ms, repeats_to_cooldown)
    sampling.check_fill(fill)
    if cycles:
        counting.cores_for(boards.get(board) if isinstance(board, str) else board)
    model = deployment.compile(path, board=board, options=options)
    prepared = deployment.build(model, kinds=kinds_to_measure(model))
    inputs = sampling.filled(prepared.manifest.inputs, fill)[0]
    with deployment.open(prepared) as device:
        cost = cost_of(prepared, device, inputs, readings)
    first = compare_first_run(
        model, prepared, deployment, inputs, lambda: run_samples(prepared, [inputs], deployment)[0]
    )
    cost = replace(cost, first_run=first)
    return (
        replace(cost, cycles=counting.estimate(prepared.folder, inputs, clocks, model=prepared.manifest.model))
        if cycles
        else cost
    )


def kinds_to_measure(model: Model) -> tuple[str, ...]:
    """Return the kinds of firmware that a measurement builds: the one that runs, and the one without the RPC server.

    Where each kind builds a whole framework, which takes minutes, the one that runs has to do.
    """
    template = model.options.template or next(iter(model.board.templates))
    from mtool import project  # which loads what renders templates

    return (HOST_DRIVEN,) if builds_whole_framework(project.load(template).builder) else ALL_KINDS


def cost_of(prepared: Prepared, device: Device, inputs: Sample, readings: Readings) -> Cost:
    """Measure what an inference costs on a device that is open."""
    return cost_at(prepared, measure_speed(device, inputs, readings))


@locks.keep_locks()
def time_function(
    path: str | Path,
    function: str,
    *,
    board: str | Board,
    readings: Readings,
    options: Options | None = None,
    deployment: Deployment = DEFAULT,
) -> Timing:
    """Compile, build and run a model, and time one operator of it by its name.

    Raises:
        UsageError: the model has no such operator.
        MtoolError: of the class that tells the stage, see mtool.errors.
    """
    model = deployment.compile(path, board=board, options=options)
    prepared = deployment.build(model)
    inputs = sampling.filled(prepared.manifest.inputs, "random")[0]
    with deployment.open(prepared) as device:
        return device.time(**asdict(readings), function=function, inputs=inputs)


def cost_at(prepared: Prepared, speed: Speed) -> Cost:
    """Return what an inference of this speed costs; of the standalone firmware if it was built, else of the other."""
    manifest = prepared.manifest
    firmware = STANDALONE if STANDALONE in prepared.built.firmware else HOST_DRIVEN
    size = measure(prepared.built.firmware[firmware], manifest)
    own_code = sum(count for name, count in size.functions.items() if name.startswith(f"{manifest.model}_"))
    counted = speed.unit == "instructions"
    timer, clock_hz = prepared.board.timer, prepared.board.clock_hz
    each_cycle = timer is not None and timer.hz == clock_hz and not counted
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
        + sum(one.constant_bytes for each in manifest.models for one in each.pools),
        stack_bytes=speed.stack_bytes,
        own_code_bytes=own_code if manifest.firmware else 0,
        own_const_bytes=manifest.constant_bytes - manifest.shared_constant_bytes if manifest.firmware else 0,
        weights_in_ram_bytes=sum(one.constant_bytes_in_ram for one in manifest.models),
        firmware=firmware,
        clock_cycles=round(speed.median * clock_hz / 1e9) if each_cycle else None,
    )


def _macs(cost: Cost) -> str:
    return f"{amount(cost.macs)}, {amount(cost.live_macs)} live" if cost.live_macs else amount(cost.macs)


def comparison(costs: Sequence[Cost]) -> list[list[str]]:
    """Return rows that put costs side by side: a label and a figure of each."""
    with_server = [[_FIRMWARE, *(_NAMES[cost.firmware] for cost in costs)]]
    return [
        ["one inference", *(cost.speed() for cost in costs)],
        ["MACs", *(_macs(cost) for cost in costs)],
        ["flash: code", *(cost.flash_parts()[0] for cost in costs)],
        ["flash: constants", *(cost.flash_parts()[1] for cost in costs)],
        ["RAM: arena", *(f"{cost.arena_bytes:,} B (bound {cost.arena_bound_bytes:,} B)" for cost in costs)],
        *(
            [["RAM: arena of all models", *(f"{cost.firmware_arena_bytes:,} B" for cost in costs)]]
            if any(cost.firmware_arena_bytes for cost in costs)
            else ()
        ),
        ["RAM: data, bss", *(cost.data() for cost in costs)],
        ["RAM: stack", *("" if cost.stack_bytes is None else f"{cost.stack_bytes:,} B" for cost in costs)],
        *(with_server if any(cost.firmware != STANDALONE for cost in costs) else ()),
    ]
