"""A model that a device runs: its inputs, its inferences, what they take, its states."""

import copy
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from numpy.typing import ArrayLike

from mtool.base import checked
from mtool.base.errors import UsageError
from mtool.device.rpc import Client, protocol
from mtool.device.session import connection, graph, timing
from mtool.device.session.connection import Connection, alone
from mtool.device.session.graph import GraphExecutor
from mtool.device.session.profile import Profile, operator_times
from mtool.device.session.stepping import Stepping
from mtool.device.session.tensors import (
    Array,
    array_of,
    as_array,
    bytes_at,
    bytes_of,
    check_named,
    from_bytes,
    named,
    sizes_in,
    to_bytes,
    zeros,
)
from mtool.device.session.timing import MOST_RUNS, Readings, Timing
from mtool.manifest import Manifest

# Times of inferences by the device's timer, corrected by its calibration.


_MOST_GROWTH = 100  # of the inferences in a repeat, from one try to the next


@dataclass(frozen=True, slots=True)
class Stopwatch:
    """The timer of the device at the other end of a session.

    manifest: of the project.
    unit: "ns", or "instructions" where it counts those.
    identity: which device of all, whose calibration counts.
    granularity_ns: its smallest step.
    """

    client: Client
    manifest: Manifest
    unit: str
    identity: str
    granularity_ns: int

    def once(self, inputs: Sequence[bytes], *, work_s: float) -> Timing:
        """Time one inference on some inputs, with nothing before it."""
        return self._timing([self._elapsed_ns(inputs, 1, work_s)], 1)

    def time(
        self, inputs: Sequence[bytes], readings: Readings, *, work_s: float, operator: int | None = None
    ) -> Timing:
        """Time inferences, or one operator by its number, as `Device.time` says.

        Raises:
            DeviceError: the timer ran over its range, or the model failed.
        """
        number = readings.number
        before = (0 if self.unit == "instructions" else 1) if readings.warm_up is None else readings.warm_up

        def elapsed_ns() -> int:
            return self._elapsed_ns(inputs, number, work_s, operator)

        if before:
            self._elapsed_ns(inputs, before, work_s, operator)
        zeros_left = readings.zero_time_limit
        first_ns = elapsed_ns()
        while first_ns < readings.min_repeat_ms * 1e6 and number < MOST_RUNS:
            if first_ns == 0:
                zeros_left -= 1
                if zeros_left < 0:
                    break
            enough = 1.1 * number * readings.min_repeat_ms * 1e6 / max(first_ns, self.granularity_ns)
            number = min(max(number + 1, min(int(enough) + 1, _MOST_GROWTH * number)), MOST_RUNS)
            first_ns = elapsed_ns()
        found = [first_ns]
        for done in range(1, readings.repeat):
            if readings.cooldown_ms and done % readings.repeats_to_cooldown == 0:
                time.sleep(readings.cooldown_ms / 1000)
            found.append(elapsed_ns())
        return self._timing(found, number)

    def _elapsed_ns(self, inputs: Sequence[bytes], number: int, work_s: float, operator: int | None = None) -> int:
        """Return the timer's nanoseconds of `number` inferences, or calls of an operator after those before it."""
        if operator is None:
            self.client.write(inputs)
            return self.client.time(number, work_s=number * work_s)
        stepping = Stepping(self.client, self.manifest, inputs)
        stepping.begin()
        for before in self.manifest.operators[:operator]:
            stepping.run(before, work_s=work_s)
        stepping.prepare(self.manifest.operators[operator])
        idle = self.client.time(0, work_s=work_s, operator=operator)
        return max(self.client.time(number, work_s=number * work_s, operator=operator) - idle, 0)

    def _timing(self, elapsed_ns: Sequence[int], number: int) -> Timing:
        known = timing.stored(self.identity) if self.unit == "ns" else None
        ratio = 1.0 if known is None else known.ratio  # that the timer's nanoseconds are multiplied by
        return Timing(tuple(run * ratio / number for run in elapsed_ns), number, self.unit, self.granularity_ns, ratio)


# How long an inference may take, generously: the slowest soft-float core needs some 200 cycles a multiply-accumulate,
# and what an operator computes for each element may take more than its products; an emulator runs some 20 M
# instructions a second.
_CYCLES_PER_MAC = 200
_CYCLES_PER_INSTRUCTION = 2  # that was estimated
_SLOWEST_HZ = 16e6
_LEAST_WORK_S = 10.0


def generous_s(models: Sequence[Manifest]) -> float:
    """Return the seconds that an inference of any of the models may take, generously."""
    cycles = max(max(one.macs * _CYCLES_PER_MAC, one.instructions * _CYCLES_PER_INSTRUCTION) for one in models)
    return max(_LEAST_WORK_S, cycles / _SLOWEST_HZ)


class ModelOnDevice:
    """A model that a device runs. Threads may share it: each method lets the others wait. A forked process may not.

    Args:
        connection: to the device.
        model: its name; "": the device's only one.
        work_s: seconds that an inference may take unless said otherwise.
    """

    def __init__(self, connection: Connection, model: str = "", *, work_s: float) -> None:
        self.connection = connection
        self._model = model
        self.work_s = work_s
        self._last_inputs: list[bytes] | None = None
        self._set: dict[str, ArrayLike] = {}

    def _other(self, model: str) -> Self:
        """Return the same of another model of the device, with no inputs set."""
        found = copy.copy(self)
        found._model, found._last_inputs, found._set = model, None, {}
        return found

    @property
    def manifest(self) -> Manifest:
        """The model's manifest.

        Raises:
            UsageError: the firmware has several models, and none was named.
        """
        return self.connection.manifest_of(self._model)

    @property
    def client(self) -> Client:
        """The session's messages, one by one."""
        return self.connection.client_of(self._model)

    @property
    def _stopwatch(self) -> Stopwatch:
        device = self.connection
        return Stopwatch(self.client, self.manifest, device.unit, device.identity, device.granularity_ns)

    @checked.method
    def set_input(self, name: str, array: ArrayLike) -> None:
        """Set one input, for each `run` that is not given it.

        Raises:
            UsageError: the model has no such input, or it has another shape or type.
        """
        described = named(self.manifest.inputs, name)
        if described.dims is None and described.range is None:
            bytes_of(name, described, as_array(name, array))
        self._set[name] = array

    @alone
    def get_input(self, name: str) -> Array:
        """Return what lies in the memory of an input now: what was written last, unless it was computed over since.

        Raises:
            UsageError: the model has no such input, or it is given by rows.
        """
        described = named(self.manifest.inputs, name)
        if described.stream is not None:
            raise UsageError(f"the device keeps no rows of {name}, which it is given as they arrive")
        index = self.manifest.inputs.index(described)
        return array_of(described, self.client.read_at(protocol.INPUTS, index, 0, described.bytes))

    @alone
    def run(
        self,
        inputs: Mapping[str, ArrayLike] | None = None,
        *,
        timeout_s: checked.Timeout | None = None,
        in_steps: bool = True,
    ) -> dict[str, Array]:
        """Run the model once; its states, if it has any, go on from those of the last run.

        Args:
            inputs: an array for each input, of the model's own shape and type; those that were set need not be given.
            timeout_s: how long the inference may take, 1 ms at least: the device's watchdog ends it, by its own clock
                (to 20 ms on a bare-metal Cortex-M), and where there is none the host gives up 5 s later. Default:
                generously by its estimated instructions.
            in_steps: let the device run operator by operator, so that a fault names its operator; else through the
                model's entry point, as a standalone firmware does, and the watchdog looks at it only if `timeout_s` is
                given. The outputs are the same.

        Returns:
            An array for each output.

        Raises:
            UsageError: an input is missing or unknown, or has another shape or type.
            DeviceError: the model failed on the device.
            CommunicationError: the device stopped answering.
        """
        if inputs is not None:
            check_named(self.manifest.inputs, inputs)
        data = to_bytes(self.manifest.inputs, {**self._set, **(inputs or {})})
        self._last_inputs = data
        sizes = sizes_in(self.manifest.inputs, data)
        lengths = [bytes_at(tensor, sizes) for tensor in self.manifest.outputs]
        work_s = timeout_s or self.work_s
        found = self.client.run(data, lengths, work_s=work_s, in_steps=in_steps, is_limited=timeout_s is not None)
        return from_bytes(self.manifest.outputs, found, sizes)

    @alone
    def run_timed(
        self, inputs: Mapping[str, ArrayLike], *, timeout_s: checked.Timeout | None = None
    ) -> tuple[dict[str, Array], Timing]:
        """Run the model once through its entry point, as `run`, under the device's timer; `stack_bytes` tells of it.

        Returns:
            An array for each output, and the time of this inference: what fills caches counts too.

        Raises:
            UsageError: an input is missing or unknown, or has another shape or type.
            DeviceError: the timer ran over its range, or the model failed.
            CommunicationError: the device stopped answering.
        """
        self._last_inputs = to_bytes(self.manifest.inputs, inputs)
        sizes = sizes_in(self.manifest.inputs, self._last_inputs)
        timing = self._stopwatch.once(self._last_inputs, work_s=timeout_s or self.work_s)
        found = self.client.read(protocol.OUTPUTS, [bytes_at(tensor, sizes) for tensor in self.manifest.outputs])
        return from_bytes(self.manifest.outputs, found, sizes), timing

    @alone
    def time(
        self,
        number: int = 1,
        repeat: int = 3,
        *,
        min_repeat_ms: float = 0.0,
        zero_time_limit: int = 100,
        cooldown_ms: float = 0.0,
        repeats_to_cooldown: int = 1,
        warm_up: int | None = None,
        function: str = "",
        inputs: Mapping[str, ArrayLike] | None = None,
        timeout_s: checked.Timeout | None = None,
    ) -> Timing:
        """Time the model, or one operator of it, with the device's timer.

        Each repeat starts with the inputs; where they share the arena with what is computed, the 2nd and later of its
        `number` inferences work on what the first has left there.

        Args:
            number, repeat, min_repeat_ms, zero_time_limit, cooldown_ms, repeats_to_cooldown, warm_up: how often the
                timer is read, and what happens in between: see `Readings`.
            function: the operator, by its number, its name or that of its C function; default: the model.
            inputs: what to run on; default: those of the last `run` or `time`, zeros if there was none.
            timeout_s: how long an inference may take; default: generously by its estimated instructions.

        Raises:
            UsageError: a value is out of its range, an input is wrong, or there is no such function.
            DeviceError: the timer ran over its range, or the model failed.
            CommunicationError: the device stopped answering.
        """
        readings = Readings(number, repeat, min_repeat_ms, zero_time_limit, cooldown_ms, repeats_to_cooldown, warm_up)
        operator = graph.operator_of(self.manifest, function) if function else None
        data = None if inputs is None else to_bytes(self.manifest.inputs, inputs)
        self._last_inputs = data or self._last_inputs or zeros(self.manifest.inputs)
        return self._stopwatch.time(self._last_inputs, readings, work_s=timeout_s or self.work_s, operator=operator)

    @alone
    def profile(self, inputs: Mapping[str, ArrayLike], *, repeat: int = 3) -> Profile:
        """Time each operator of an inference, with the firmware as it is.

        Args:
            inputs: what to run on.
            repeat: inferences, over which each operator's median is taken.

        Raises:
            UsageError: `repeat` is no positive number, or an input is wrong.
            DeviceError: an operator failed, or the timer ran over its range.
        """
        whole = self.time(1, repeat, inputs=inputs).median
        rows = operator_times(self.client, self.manifest, inputs, repeat=repeat, work_s=self.work_s)
        return Profile(rows, self.connection.unit, whole, repeat)

    @checked.method
    def graph_executor(self, folder: Path) -> GraphExecutor:
        """Return the graph executor on this side, of the graph in the project's folder; its `run` is like this one's.

        Raises:
            UsageError: the project was built without a graph.
        """
        return GraphExecutor.read(self.client, self.manifest, folder, work_s=self.work_s)

    def functions(self) -> tuple[str, ...]:
        """Return the names that `call` takes: each operator in order, then the model; empty if it has none."""
        return self.manifest.functions

    @alone
    def call(
        self, name: str, *arguments: ArrayLike, timeout_s: checked.Timeout | None = None
    ) -> Array | tuple[Array, ...]:
        """Call a function of the device by its name: the whole model, or one operator of it.

        It takes what it reads and returns what it writes, in the model's order or, of an operator, that of `reads` and
        `writes` in the manifest. They lie where the model keeps them in its arena: calling an operator overwrites
        what stood there.

        Args:
            name: one of `functions`.
            arguments: an array for each input, of its shape and type.
            timeout_s: how long it may take; default: generously, as for `run`.

        Returns:
            The output, or a tuple of them if there are several.

        Raises:
            UsageError: there is no such function, or an argument is missing or has another shape or type.
            DeviceError: the function failed on the device.
            CommunicationError: the device stopped answering.
        """
        found = graph.find(self.manifest, name)
        return graph.call(self.client, found, arguments, work_s=timeout_s or self.work_s)

    @alone
    def reset_state(self) -> None:
        """Put the initial values into the model's states, to begin another sequence; a session begins with that."""
        connection.reset(self.client, self.manifest)

    def stack_bytes(self) -> int | None:
        """Return how deep the last `run` went on the stack, in bytes, or None where that is not measured."""
        return self.client.stack_bytes()
