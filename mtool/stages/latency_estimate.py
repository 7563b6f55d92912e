"""The estimated time of an inference on a board, before anything is built: from the schedules' estimates."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from mtool.base.frozen import frozen
from mtool.base.option_values import CODE_IN_RAM, FOUR_BITS, IN_RAM, PACKED_WEIGHTS, is_set
from mtool.boards import Board, Draw, Reads
from mtool.compiler.codegen.generation import Emitted
from mtool.compiler.kernels.schedule import schedule_text
from mtool.compiler.kernels.target import THUMB1
from mtool.compiler.plan.for_time import BYTES_A_PRODUCT, HELD, SlowFlash
from mtool.compiler.plan.pools import WORD
from mtool.compiler.plan.shared_arena import longest_stretch
from mtool.compiler.plan.whole import device_cycles, without_estimate
from mtool.device.cycles import Core, cores
from mtool.manifest import Manifest, Operator
from mtool.stages.formatting import amount

# Instructions per multiply-accumulate of MLPerf Tiny's models, by core: in float32, and the same models in int8
# (docs/benchmarks.md; float32 of Armv6-M on sim_m0).
_MEASURED: tuple[tuple[str | tuple[str, ...], float, float], ...] = (
    (THUMB1, 165, 6.3),
    ("cortex-m", 74, 2.1),
    ("rv32", 162, 3.1),
)


@frozen
class SoftwareFloat:
    """The cost of float32 products on a core without an FPU.

    Attributes:
        cpu: the core.
        macs: the multiply-accumulates.
        float_per_mac: instructions for each.
        int8_per_mac: the same if the model were quantized.
    """

    cpu: str
    macs: int
    float_per_mac: float
    int8_per_mac: float

    def line(self) -> str:
        """Return the cost as a sentence."""
        return (
            f"float32 is computed in software, as {self.cpu} has no FPU: about {self.float_per_mac:.0f} instructions "
            f"per MAC, {amount(round(self.macs * self.float_per_mac))} per inference; in int8 (mtool quantize) about "
            f"{self.int8_per_mac:g} and {amount(round(self.macs * self.int8_per_mac))}"
        )


def software_float(manifest: Manifest, board: Board) -> SoftwareFloat | None:
    """Return the cost of a model's float32 products; None: it has none, the core has an FPU or no figures."""
    macs = sum(operator.macs for operator in float_operators(manifest.operators))
    if not macs or "fpu" in board.features:
        return None
    matching = (figures for cores, *figures in _MEASURED if board.cpu.startswith(cores))
    return next((SoftwareFloat(board.cpu, macs, *figures) for figures in matching), None)


def float_operators(operators: Iterable[Operator]) -> list[Operator]:
    """Return the operators that multiply floating-point numbers."""
    return [op for op in operators if op.macs and any(read.dtype.startswith("float") for read in op.reads)]


# Bytes read from flash per product if the cache does not hold an operator's constants: the kernels use a weight for one
# to three pixels at a time. At least all constants once, as in dense layers.
_MOST_BYTES_A_PRODUCT = 1.0
_UNSURE = 2  # the factor by which waits may be off if their figures are only likely
# Products: with fewer, an operator's work for each row and call counts too; but not if most is dense layers.
_SMALL = 1_000_000
# Small models wait more for code, if the code cache holds less than the loops of a few operators. The middle of the
# measurements there, and their spread (docs/cycles.md, "Before a build").
_FACTOR_OF_LITTLE_CODE, _ERROR_OF_LITTLE_CODE = 1.35, 0.35
_ERROR_OF_CODE_WAITS = 0.4


@frozen
class LatencyEstimate:
    """The estimated milliseconds of an inference.

    Attributes:
        milliseconds: the middle of the likely range.
        error: the possible error, as a fraction of them.
        flash_is_known: they include the waits for the memory with the weights, or there are none; else add them.
        flash_is_sure: that memory's figures were looked up, or there are none.
        energy: the energy of an inference; None: the chip's power at this clock is unknown, or accelerators draw some
            too.
        hz: the clock that they apply to.
        device_milliseconds: the part of them that accelerators take, by their backends' own estimates at that clock;
            `error` does not apply to it.
    """

    milliseconds: float
    error: float
    flash_is_known: bool
    flash_is_sure: bool = True
    energy: "EnergyEstimate | None" = None
    hz: int = 0
    device_milliseconds: float = 0.0


@frozen
class EnergyEstimate:
    """Microjoules of an inference: the middle of the likely range, and the possible error as a fraction of it."""

    microjoules: float
    error: float


def estimate_energy(milliseconds: float, error: float, draws: Draw | None, hz: int) -> EnergyEstimate | None:
    """Return the energy that a chip uses in a time; None: its power is unknown at this clock."""
    if draws is None or hz != draws.mhz * 1_000_000:
        return None
    low, high = draws.milliwatts
    middle = (low + high) / 2
    return EnergyEstimate(milliseconds * middle, (1 + error) * high / middle - 1)


@frozen
class LongestOperator:
    """A model's slowest operator, which everything else waits for where one operator runs at a time.

    Attributes:
        model: the model's name.
        operator: the operator's name; "": there is none, or it is unknown.
        share: its share of an inference, by the schedules' and backends' estimates.
        time: its estimated time; None: unknown.
        stretch: the longest stretch in which no more urgent model may run: the whole of a model that is not a task.
        stretch_share: the stretch's share of an inference's instructions.
        stretch_instructions: its instructions, by the schedules' estimates, to compare the stretches of several models.
        unknown: backends that give no estimate of what they compute, so that all of this is unknown.
    """

    model: str
    operator: str
    share: float
    time: LatencyEstimate | None
    stretch: LatencyEstimate | None = None
    stretch_share: float = 1.0
    stretch_instructions: float = 0.0
    unknown: tuple[str, ...] = ()


def longest_operator(emitted: Emitted, time: LatencyEstimate | None, pauses: Sequence[int] = ()) -> LongestOperator:
    """Return the longest operator of a model.

    Args:
        emitted: the model.
        time: its result of `estimate_latency`.
        pauses: the operators before which a more urgent model may run.
    """
    plan = emitted.plan
    unknown = without_estimate(plan)
    if unknown:
        return LongestOperator(plan.graph.name, "", 0.0, None, unknown=unknown)
    cycles_each = 1.0  # cycles per instruction
    if time is not None:
        cycles_each = (time.milliseconds - time.device_milliseconds) * time.hz / 1e3 / emitted.cost
    costs = [cost + device_cycles(step) / cycles_each for cost, step in zip(emitted.costs, plan.steps, strict=True)]
    total = sum(costs)
    longest = max(range(len(costs)), key=costs.__getitem__, default=None)
    share = costs[longest] / total if longest is not None and total else 0.0
    instructions = longest_stretch(costs, pauses)
    stretch = instructions / total if total else 0.0

    def part(of: float) -> LatencyEstimate | None:
        return None if time is None else replace(time, milliseconds=of * time.milliseconds, device_milliseconds=0.0)

    title = "" if longest is None else plan.steps[longest].node.title
    return LongestOperator(plan.graph.name, title, share, part(share), part(stretch), stretch, instructions)


def estimate_latency(emitted: Emitted, board: Board, hz: int = 0) -> LatencyEstimate | None:
    """Return the estimated time of an inference.

    Args:
        emitted: the model, compiled for the board.
        board: the board.
        hz: the clock; 0: the board's.

    Returns:
        The estimate. None if it is unknown: there is no table for the core or no clock; the model computes in floating
        point, to which the figures don't apply, or computes nothing; or a backend gives no estimate.
    """
    core = next((core for core in cores() if core.cpu == board.cpu and core.per_instruction), None)
    clock = hz or board.clock_hz
    if core is None or not clock or not emitted.cost or float_operators(emitted.manifest.operators):
        return None
    if without_estimate(emitted.plan):
        return None
    weights = board.memory_for("weights")
    instructions = emitted.cost * core.schedules_factor
    waits = _waits(emitted, weights.reads if weights else None, clock)
    factor, least, of_code = _left_out(emitted, core, SlowFlash.of(board, clock))
    waits = waits[0] + (1 - _ERROR_OF_CODE_WAITS) * of_code, waits[1] + (1 + _ERROR_OF_CODE_WAITS) * of_code
    low, high = (instructions * cycles + wait for cycles, wait in zip(core.per_instruction, waits, strict=True))
    error = (1 + (high - low) / (high + low)) * (1 + core.schedules_error) - 1
    error = max(error, least)
    answers_at_once = weights is None or "data" in weights.holds or board.emulator is not None
    is_known = answers_at_once or (weights is not None and weights.reads is not None)
    by_devices = sum(map(device_cycles, emitted.plan.steps)) / clock * 1e3
    milliseconds = factor * (low + high) / 2 / clock * 1e3 + by_devices
    energy = estimate_energy(milliseconds, error, board.draws, clock) if is_known and not by_devices else None
    sure = weights is None or weights.reads is None or weights.reads.is_sure
    return LatencyEstimate(milliseconds, error, is_known, sure, energy, clock, by_devices)


def emulated_time(nanoseconds: float, board: Board, manifest: Manifest) -> LatencyEstimate | None:
    """Return the estimated time, at the board's clock, of a run on an emulated board.

    Args:
        nanoseconds: the reading of its timer; each may stand for an instruction.
        board: the board.
        manifest: the manifest of the model that ran.

    Returns:
        The estimate. None if it is unknown, as in `estimate_latency`.
    """
    if board.timer is None or not board.clock_hz:
        return None
    if board.timer.unit == "ns":
        return LatencyEstimate(nanoseconds / 1e6, 0.0, flash_is_known=True, hz=board.clock_hz)
    figures = next((core.per_instruction for core in cores() if core.cpu == board.cpu), ())
    if not figures or float_operators(manifest.operators):
        return None
    low, high = figures
    milliseconds = nanoseconds * (low + high) / 2 / board.clock_hz * 1e3
    return LatencyEstimate(milliseconds, (high - low) / (high + low), flash_is_known=True, hz=board.clock_hz)


def _left_out(emitted: Emitted, core: Core, flash: SlowFlash | None) -> tuple[float, float, float]:
    """Return the factor by which an inference takes longer than counted, the least error, and the waits for code."""
    operators = emitted.manifest.operators
    steps = [*zip(emitted.costs, emitted.plan.steps, strict=True)]
    in_flash = [step for step in steps if not is_set(schedule_text(step[1].schedule), CODE_IN_RAM)]
    of_code = sum(flash.code_waits(step, emitted.graph, cost) for cost, step in in_flash) if flash else 0.0
    is_dense = 2 * sum(cost for cost, step in steps if step.node.op == "dense") > emitted.cost
    is_small = not is_dense and sum(operator.macs for operator in operators if not operator.device_cycles) < _SMALL
    if is_small and of_code and 2 * sum(cost for cost, _ in in_flash) > emitted.cost:
        return _FACTOR_OF_LITTLE_CODE, _ERROR_OF_LITTLE_CODE, 0.0
    return (*((core.small_models_factor, core.small_models_error) if is_small else (1.0, 0.0)), of_code)


def _waits(emitted: Emitted, reads: Reads | None, hz: int) -> tuple[float, float]:
    """Return the fewest and the most cycles that an inference waits for constants."""
    if reads is None and not emitted.functions.in_pools:
        return 0.0, 0.0
    cache_bytes = (reads.data or reads.code).lines * reads.line if reads else 0
    usual = reads.waits(hz) / reads.width if reads else 0.0
    low = high = 0.0
    for operator in emitted.manifest.operators:
        if operator.constants_in or operator.device_cycles:
            continue
        if is_set(operator.schedule, IN_RAM):
            continue
        once = operator.constant_bytes
        is_read_once = HELD * once <= cache_bytes or is_set(operator.schedule, PACKED_WEIGHTS)
        wait, products = _wait_per_byte(emitted, operator.index, usual), 0.0 if is_read_once else float(operator.macs)
        products *= 0.5 if is_set(operator.schedule, FOUR_BITS) else 1
        low += wait * max(once, BYTES_A_PRODUCT * products)
        high += wait * max(once, _MOST_BYTES_A_PRODUCT * products)
    unsure = 1 if reads is None or reads.is_sure else _UNSURE
    return low / unsure, high * unsure


def _wait_per_byte(emitted: Emitted, number: int, usual: float) -> float:
    """Return the wait cycles per byte of an operator's constants: those of their pools, else the usual ones."""
    functions = emitted.functions
    if not functions.in_pools:
        return usual
    symbols = set(functions.calls[number].constants.values()) & functions.read.keys()  # else another model's
    sizes = {symbol: functions.read[symbol].nbytes for symbol in symbols}
    waits = {symbol: pool.speed / WORD for symbol, pool in functions.in_pools.items()}
    total = sum(sizes.values())
    return sum(size * waits.get(symbol, usual) for symbol, size in sizes.items()) / total if total else usual
