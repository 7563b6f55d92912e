"""A device that runs models: their inputs, inferences, times and states."""

import copy
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from numpy.typing import ArrayLike

from mtool import manifest as manifests
from mtool.base import checked
from mtool.base.errors import DeviceError, MtoolError, UsageError, of_os_error
from mtool.base.proc import Closing
from mtool.device.rpc import Client, protocol
from mtool.device.rpc.loading import Place
from mtool.device.session import connection, delta_update, graph, tensors, timing
from mtool.device.session.connection import Connection
from mtool.device.session.graph import GraphExecutor
from mtool.device.session.profile import Profile, operator_times
from mtool.device.session.stepping import Stepping
from mtool.device.session.tensors import Array, bytes_at, sizes_in, to_bytes
from mtool.device.session.timing import MOST_RUNS, Calibration, Readings, Timing
from mtool.device.transport import SerialTransport, Transport
from mtool.device.transport.gdb_remote import TcpTransport
from mtool.manifest import Manifest
from mtool.manifest.link_key import LinkKey
from mtool.manifest.modules.format import unpack

P = ParamSpec("P")
R = TypeVar("R")
_ALIVE_S = 3.0
_MOST_GROWTH = 100  # largest factor for the number of inferences, from one try to the next
# A generous time limit for an inference: the slowest soft-float core needs about 200 cycles for a multiply-accumulate,
# and an operator's work per element may exceed its products; an emulator runs about 20 M
# instructions per second.
_CYCLES_PER_MAC = 200
_CYCLES_PER_INSTRUCTION = 2  # of the estimate
_SLOWEST_HZ = 16e6
_LEAST_WORK_S = 10.0


def generous_s(models: Sequence[Manifest]) -> float:
    """Return a generous time limit in seconds for an inference of any of the models."""
    cycles = max(max(model.macs * _CYCLES_PER_MAC, model.instructions * _CYCLES_PER_INSTRUCTION) for model in models)
    return max(_LEAST_WORK_S, cycles / _SLOWEST_HZ)


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """A device's description of itself.

    Attributes:
        model: the model's name.
        model_hash: the first 16 hex digits of the hash of the model's file.
        build_hash: the first 16 hex digits of the hash of everything in the firmware.
        protocol_version: of the RPC.
        packet_bytes: the largest frame of the RPC.
        window_bytes: bytes that may be in flight to the device; 0: any number.
        timer_granularity_ns: the smallest step of the timer.
    """

    model: str
    model_hash: str
    build_hash: str
    protocol_version: int
    packet_bytes: int
    window_bytes: int
    timer_granularity_ns: int


def alone(method: "Callable[Concatenate[Device, P], R]") -> "Callable[Concatenate[Device, P], R]":
    """Exclude other threads while a method runs, and refuse other processes; check its arguments."""
    called = checked.method(method)

    @functools.wraps(method)
    def one_at_a_time(self: "Device", /, *arguments: P.args, **named: P.kwargs) -> R:
        with self.connection.owner.alone():
            return called(self, *arguments, **named)

    return one_at_a_time


class Device(Closing):
    """A session with a device that runs a model; use it in a `with` statement. `mtool.device.session.open` returns one.

    Threads may share it: each method makes other threads wait until it is done. A forked process
    may not: the device could not distinguish its requests from those of the parent.

    If the firmware has several models, `device["kws"]` is the device for that one, in the same session; `run`
    and similar methods belong to a model.

    Args:
        manifest: of the project's model, with its `project`; if there are several, any of them.
        transport: the channel to the firmware; closed with the device.
        timeout_s: how long the firmware may take to start and to answer.
        serial_number: the USB serial number of the board or its probe; "": it has none.
        reopen: starts the firmware or opens its port again, for `reconnect`.
        take_over: open the session even if a host on another computer has one open.
        key: the device's link key; None: its firmware has none.
        firmware: the file that the device runs, to locate faults in it; None: it is not here.

    Raises:
        CommunicationError: nothing answers, or other firmware does; the transport is then closed.

    Attributes:
        identity: the device's identity: the board's name and its serial number.
        work_s: the default time limit of an inference in seconds, generous and from its estimated instructions.
    """

    def __init__(
        self,
        manifest: Manifest,
        transport: Transport,
        *,
        timeout_s: float,
        serial_number: str = "",
        reopen: Callable[[], Transport] | None = None,
        take_over: bool = False,
        key: LinkKey | None = None,
        firmware: Path | None = None,
        work_s: float | None = None,
    ) -> None:
        self._given_s = work_s
        self.work_s = work_s or generous_s(manifest.models)
        self.is_limited = work_s is not None
        """The caller chose `work_s`, so the device's watchdog ends every inference that takes longer."""
        self.connection = Connection(
            manifest,
            transport,
            timeout_s=timeout_s,
            stream_s=self.work_s,
            serial_number=serial_number,
            reopen=reopen,
            take_over=take_over,
            key=key,
            firmware=firmware,
        )
        self.identity = self.connection.identity
        self._model = ""
        self._last_inputs: list[bytes] | None = None
        self._set: dict[str, ArrayLike] = {}
        self._has_checked_timer = False

    @checked.method
    def __getitem__(self, model: str) -> "Device":
        """Return the device for the model of that name; it ends with the session.

        Raises:
            UsageError: the firmware has no such model; the message lists the available ones.
        """
        manifest = manifests.named(self.connection.models, model)
        if len(self.models) == 1:
            return self
        device = copy.copy(self)
        device._model, device._last_inputs, device._set = model, None, {}
        device.work_s = self._given_s or max(self.work_s, generous_s([manifest]))
        return device

    @property
    def models(self) -> tuple[str, ...]:
        """The names of the device's models: the firmware's own, and those of modules."""
        return tuple(model.model for model in self.connection.models)

    @alone
    def load(
        self,
        module: str | Path | bytes,
        *,
        ram: bool = False,
        since: str | Path | bytes = b"",
        trial: int = 0,
        progress: Callable[[int, int], None] = lambda there, whole: None,
    ) -> "Device":
        """Load a module (`mtool module`) into the device: its model is then one of `models`, also after a reset.

        An interrupted load of the same module continues. A model of the same name is hidden by it.

        Args:
            module: the file, or its bytes.
            ram: load it into RAM, until the next reset.
            since: the file, or its bytes, of the module in flash, so that only the difference is sent; empty:
                use a file that was loaded from here before, if it is the one in flash.
            trial: in flash: the number of starts after which the modules before it come back, unless it was loaded
                again with 0, which keeps it.
            progress: called with the bytes that were sent or that the device already has, and the total.

        Returns:
            The device for that model.

        Raises:
            UsageError: the file can't be read or is not a module, or the firmware supports none, or has another one
            than
                `since`.
            DeviceError: the device refuses it; the previous module is kept.
            CommunicationError: the device stopped answering.
        """
        data, name = _module(module)
        old = _module(since)[0] if since else b""
        connection.require_modules(self.connection.project)
        try:
            place = Place.RAM if ram else Place.FLASH
            delta_update.send(self.session, data, place, since=old, trial=trial, progress=progress)
        except DeviceError as refused:
            raise connection.of_flash(refused, self.connection.transport.flash) from None
        finally:
            if self.session.is_intact:
                self.connection.find_models()
        return self[name]

    @property
    def session(self) -> Client:
        """The session's own messages, independent of the chosen model."""
        return self.connection.session

    @alone
    def calibrate(self, seconds: float = 10.0) -> Calibration:
        """Measure the device's timer against this computer's clock; `mtool.device.session.timing.store` saves it.

        Args:
            seconds: the duration; the uncertainty is that of a round trip divided by it.

        Raises:
            UsageError: the device's timer counts instructions, or `seconds` is not positive.
            DeviceError: the timer does not run, or overflowed.
        """
        if self.unit != "ns":
            raise UsageError(f"the timer of {self.identity} counts {self.unit}, not time, so it can't be calibrated")
        return timing.measure(self.client, seconds)

    def info(self) -> DeviceInfo:
        """Return the device's description of itself."""
        hello = self.client.hello
        return DeviceInfo(
            hello.model,
            hello.model_hash,
            hello.build_hash,
            hello.version,
            hello.packet_bytes,
            hello.window_bytes,
            self.connection.granularity_ns,
        )

    @checked.method
    def is_alive(self, *, timeout_s: checked.NotNegative = _ALIVE_S) -> bool:
        """Return whether the device answers within `timeout_s`; if not, the session is over: call `reconnect`."""
        with self.connection.owner.alone():
            try:
                self.session.ping(timeout_s)
            except MtoolError:
                return False
            return True

    @alone
    def reset(self) -> None:
        """Reset the device, which ends the session; a process or an emulator ends."""
        self.session.reset()
        self.close()

    @alone
    def reconnect(self) -> None:
        """Open a new session: after a reset, or when the board was unplugged or the emulator was killed.

        If the port is missing, waits for it as long as firmware may take to start. Data on the device is
        lost.

        Raises:
            UsageError: this device was not opened by `open`, so it can't be reopened.
            CommunicationError: nothing answers, or another firmware.
            BoardError: the board is no longer attached.
        """
        self.connection.reconnect(stream_s=self.work_s)

    def close(self) -> None:
        """End the session and release the device, for all of its models. May be called again."""
        self.connection.close()

    @property
    def is_at_port(self) -> bool:
        """Whether it is a board on a serial port or behind TCP, not a process or an emulator on this computer."""
        return isinstance(self.connection.transport, SerialTransport | TcpTransport)

    @property
    def is_process(self) -> bool:
        """Whether the device is a process or an emulator that was started for it, so that there can be several."""
        link = self.connection
        return link.transport.is_process and not int(link.project.options.get("gdbserver", 0))

    @property
    def unit(self) -> str:
        """The unit of the device's timer: "ns", or "instructions"."""
        return self.connection.unit

    @property
    def manifest(self) -> Manifest:
        """The model's manifest.

        Raises:
            UsageError: the firmware has several models, and none was chosen.
        """
        return self.connection.manifest_of(self._model)

    @property
    def client(self) -> Client:
        """The session's individual messages."""
        return self.connection.client_of(self._model)

    @checked.method
    def set_input(self, name: str, array: ArrayLike) -> None:
        """Set one input for each `run` that does not pass it.

        Raises:
            UsageError: the model has no such input, or it has another shape or type.
        """
        tensors.check_set(self.manifest.inputs, name, array)
        self._set[name] = array

    @alone
    def get_input(self, name: str) -> Array:
        """Return the contents of an input's memory: the last written values, unless they were overwritten since.

        Raises:
            UsageError: the model has no such input, or it is passed by rows.
        """
        tensor = tensors.named(self.manifest.inputs, name)
        if tensor.stream is not None:
            raise UsageError(f"the device does not keep the rows of {name}: they are processed as they arrive")
        index = self.manifest.inputs.index(tensor)
        return tensors.array_of(tensor, self.client.read_at(protocol.INPUTS, index, 0, tensor.bytes))

    @alone
    def run(
        self,
        inputs: Mapping[str, ArrayLike] | None = None,
        *,
        timeout_s: checked.Timeout | None = None,
        in_steps: bool = True,
    ) -> dict[str, Array]:
        """Run the model once; its states, if it has any, continue from the last run.

        Args:
            inputs: an array for each input, of the model's own shape and type; inputs that were set may be omitted.
            timeout_s: the time limit of the inference, at least 1 ms: the device's watchdog ends it, by its own clock
                (to 20 ms on a bare-metal Cortex-M); if there is none, the host gives up 5 s later, for an emulator
                after ten times this time. Default: generous, from its estimated instructions.
            in_steps: run operator by operator, so that a fault names its operator; otherwise through the
                model's entry point, as standalone firmware does, and the watchdog only limits it if `timeout_s` is
                given. The outputs are the same.

        Returns:
            An array for each output.

        Raises:
            UsageError: an input is missing or unknown, or has another shape or type.
            DeviceError: the model failed on the device.
            CommunicationError: the device stopped answering.
        """
        if inputs is not None:
            tensors.check_named(self.manifest.inputs, inputs)
        data = to_bytes(self.manifest.inputs, {**self._set, **(inputs or {})})
        self._last_inputs = data
        sizes = sizes_in(self.manifest.inputs, data)
        lengths = [bytes_at(tensor, sizes) for tensor in self.manifest.outputs]
        work_s = timeout_s or self.work_s
        is_limited = self.is_limited or timeout_s is not None
        data_out = self.client.run(data, lengths, work_s=work_s, in_steps=in_steps, is_limited=is_limited)
        return tensors.from_bytes(self.manifest.outputs, data_out, sizes)

    @alone
    def run_timed(
        self, inputs: Mapping[str, ArrayLike], *, timeout_s: checked.Timeout | None = None
    ) -> tuple[dict[str, Array], Timing]:
        """Run the model once through its entry point, as `run`, under the device's timer; `stack_bytes` follows it.

        The watchdog does not end it: after `timeout_s` and a few more seconds, the host gives up.

        Returns:
            An array for each output, and the time of this inference, including the time to fill caches.

        Raises:
            UsageError: an input is missing or unknown, or has another shape or type.
            DeviceError: the timer overflowed, or the model failed.
            CommunicationError: the device stopped answering.
        """
        self._last_inputs = to_bytes(self.manifest.inputs, inputs)
        sizes = sizes_in(self.manifest.inputs, self._last_inputs)
        elapsed_ns = self._elapsed_ns(1, timeout_s or self.work_s)
        data_out = self.client.read(protocol.OUTPUTS, [bytes_at(tensor, sizes) for tensor in self.manifest.outputs])
        return tensors.from_bytes(self.manifest.outputs, data_out, sizes), self._timing([elapsed_ns], 1)

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
        """Time the model or one of its operators with the device's timer.

        Each repeat starts with the inputs; if they share the arena with other tensors, the 2nd and later of its
        `number` inferences work on what the first one left there.

        Args:
            number, repeat, min_repeat_ms, zero_time_limit, cooldown_ms, repeats_to_cooldown, warm_up: how often the
                timer is read, and what happens in between: see `Readings`.
            function: the operator, by its number, its name or that of its C function; default: the model.
            inputs: the inputs; default: those of the last `run` or `time`, zeros if there was none.
            timeout_s: the time limit of an inference, by the device's own clock: if given, one more inference
                runs first, which the device's watchdog limits. Default: generous, from its estimated instructions.

        Raises:
            UsageError: a value is out of range, an input is wrong, or the function is unknown.
            DeviceError: the timer overflowed, or the model failed.
            CommunicationError: the device stopped answering.
        """
        Readings(number, repeat, min_repeat_ms, zero_time_limit, cooldown_ms, repeats_to_cooldown, warm_up)  # checks
        operator = graph.operator_of(self.manifest, function) if function else None
        data = None if inputs is None else to_bytes(self.manifest.inputs, inputs)
        self._last_inputs = data or self._last_inputs or tensors.zeros(self.manifest.inputs)
        work_s = timeout_s or self.work_s
        if self.is_limited or timeout_s is not None:  # nothing can interrupt a timed inference
            self.client.run(self._last_inputs, [0] * len(self.manifest.outputs), work_s=work_s, is_limited=True)

        if warm_up is None:
            warm_up = 0 if self.unit == "instructions" else 1

        def elapsed_ns() -> int:
            return self._elapsed_ns(number, work_s, operator)

        if warm_up:
            self._elapsed_ns(warm_up, work_s, operator)
        first_ns = elapsed_ns()
        while first_ns < min_repeat_ms * 1e6 and number < MOST_RUNS:
            if first_ns == 0:
                zero_time_limit -= 1
                if zero_time_limit < 0:
                    break
            enough = 1.1 * number * min_repeat_ms * 1e6 / max(first_ns, self.connection.granularity_ns)
            number = min(max(number + 1, min(int(enough) + 1, _MOST_GROWTH * number)), MOST_RUNS)
            first_ns = elapsed_ns()
        times = [first_ns]
        for done in range(1, repeat):
            if cooldown_ms and done % repeats_to_cooldown == 0:
                time.sleep(cooldown_ms / 1000)
            times.append(elapsed_ns())
        return self._timing(times, number)

    def _elapsed_ns(self, number: int, work_s: float, operator: int | None = None) -> int:
        """Return the timer's nanoseconds for `number` inferences, or calls of an operator after those before it."""
        assert self._last_inputs is not None
        client = self.client
        if self.connection.project.is_own and not self._has_checked_timer:
            timing.check_runs(client)
            self._has_checked_timer = True
        if operator is None:
            client.write(self._last_inputs)
            return client.time(number, work_s=number * work_s)
        stepping = Stepping(client, self.manifest, self._last_inputs)
        stepping.begin()
        for before in self.manifest.operators[:operator]:
            stepping.run(before, work_s=work_s)
        stepping.prepare(self.manifest.operators[operator])
        idle = client.time(0, work_s=work_s, operator=operator)
        return max(client.time(number, work_s=number * work_s, operator=operator) - idle, 0)

    def _timing(self, elapsed_ns: Sequence[int], number: int) -> Timing:
        calibration = timing.stored(self.identity) if self.unit == "ns" else None
        ratio = 1.0 if calibration is None else calibration.ratio  # the factor for the timer's nanoseconds
        runs = tuple(run * ratio / number for run in elapsed_ns)
        return Timing(runs, number, self.unit, self.connection.granularity_ns, ratio)

    @alone
    def profile(self, inputs: Mapping[str, ArrayLike], *, repeat: int = 3) -> Profile:
        """Time each operator of an inference, with the firmware as it is.

        Args:
            inputs: the inputs.
            repeat: the number of inferences for each operator's median.

        Raises:
            UsageError: `repeat` is not positive, or an input is wrong.
            DeviceError: an operator failed, or the timer overflowed.
        """
        whole = self.time(1, repeat, inputs=inputs).median
        rows = operator_times(self.client, self.manifest, inputs, repeat=repeat, work_s=self.work_s)
        return Profile(rows, self.connection.unit, whole, repeat)

    @checked.method
    def graph_executor(self, folder: Path) -> GraphExecutor:
        """Return the host's graph executor for the graph in the project's folder; its `run` works like this one's.

        Raises:
            UsageError: the project was built without a graph.
        """
        return GraphExecutor.read(self.client, self.manifest, folder, work_s=self.work_s)

    def functions(self) -> tuple[str, ...]:
        """Return the names for `call`: each operator in order, then the model; empty if there are none."""
        return self.manifest.functions

    @alone
    def call(
        self, name: str, *arguments: ArrayLike, timeout_s: checked.Timeout | None = None
    ) -> Array | tuple[Array, ...]:
        """Call a function of the device by its name: the whole model, or one operator of it.

        It takes the function's inputs and returns its outputs, in the model's order or, for an operator, in that of
        `reads` and `writes` in the manifest. They are at their places in the model's arena: calling an operator
        overwrites the previous contents.

        Args:
            name: one of `functions`.
            arguments: an array for each input, of its shape and type.
            timeout_s: its time limit; default: generous, as for `run`.

        Returns:
            The output, or a tuple of them if there are several.

        Raises:
            UsageError: the function is unknown, or an argument is missing or has another shape or type.
            DeviceError: the function failed on the device.
            CommunicationError: the device stopped answering.
        """
        function = graph.find(self.manifest, name)
        return graph.call(self.client, function, arguments, work_s=timeout_s or self.work_s)

    @alone
    def reset_state(self) -> None:
        """Write the initial values to the model's states, to start another sequence; a session starts this way."""
        connection.reset(self.client, self.manifest)

    def stack_bytes(self) -> int | None:
        """Return the stack that the last `run` used, in bytes, or None if it is not measured."""
        return self.client.stack_bytes()


def _module(file: str | Path | bytes) -> tuple[bytes, str]:
    """Return the bytes of a module's file, and its model's name."""
    what = "the module" if isinstance(file, bytes) else str(file)
    try:
        data = file if isinstance(file, bytes) else Path(file).read_bytes()
    except OSError as failed:
        raise of_os_error(failed, f"{what} can't be read") from None
    return data, unpack(data, what).name
