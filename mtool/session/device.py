"""A device on which models run."""

import base64
import copy
import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from mtool.closing import Closing
from mtool.errors import BoardError, CommunicationError, DeviceError, MtoolError, UsageError
from mtool.manifest import Manifest, Project
from mtool.manifest import named as named_model
from mtool.rpc import Client, Expected, protocol
from mtool.rpc.fault import Fault
from mtool.session import calibration, faults, functions
from mtool.session.calibration import Calibration
from mtool.session.device_info import DeviceInfo
from mtool.session.graph import GraphExecutor
from mtool.session.profile import Profile, operator_times
from mtool.session.run_time_sizes import bytes_at
from mtool.session.stopwatch import Stopwatch
from mtool.session.tensors import Array, array_of, bytes_of, from_bytes, named, sizes_in, to_bytes, zeros
from mtool.session.timing import Readings, Timing
from mtool.transport import SerialTransport, Transport
from mtool.transport.tcp import TcpTransport

log = logging.getLogger(__name__)

# How long an inference may take, generously: the slowest soft-float core needs some 200 cycles a multiply-accumulate,
# an emulator runs some 20 M instructions a second.
_CYCLES_PER_MAC = 200
_SLOWEST_HZ = 16e6
_LEAST_WORK_S = 10.0
_ALIVE_S = 3.0
_REOPEN_S = 0.2  # between two looks for a port that has gone
_EMULATED_S = 20e6 * 1e-9  # an emulated instruction is a nanosecond of the machine's time


class Device(Closing):
    """A session with a device that runs a model; use it in a `with` statement. `mtool.session.open` makes one.

    If the firmware has several models, `device["kws"]` is the device as it runs that one, in the same session; `run`
    and its like are those of a model.

    Args:
        manifest: of the project's model, with its `project`; of several, any of them.
        transport: the channel to the firmware; closed with the device.
        timeout_s: how long the firmware may take to start and to answer.
        serial_number: of the board or its probe, on USB; "": it has none.
        reopen: starts the firmware or opens its port again, for `reconnect`.
        take_over: open the session even if a host on another computer has one open.
        firmware: the file that the device runs, to name a fault's place in it; None: it is not here.

    Raises:
        CommunicationError: nothing answers, or another firmware; the transport is closed then.

    Attributes:
        identity: which device of all, by the board's name and its serial number.
        work_s: seconds that an inference may take unless said otherwise, generously by its multiply-accumulates.
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
        firmware: Path | None = None,
    ) -> None:
        assert manifest.project is not None
        self.identity = f"{manifest.project.board.name} {serial_number}".strip()
        self._manifest = manifest.models[0].model_copy(
            update={"project": manifest.project, "firmware": manifest.firmware}
        )
        self._root: Device | None = None  # of the device of one of several models: the whole
        self._session: Client | None = None  # and the session that its own client is of
        self._transport = transport
        self._last_inputs: list[bytes] | None = None
        self._set: dict[str, ArrayLike] = {}
        self.work_s = max(_LEAST_WORK_S, max(one.macs for one in manifest.models) * _CYCLES_PER_MAC / _SLOWEST_HZ)
        self._timeout_s = timeout_s
        self._reopen = reopen
        self._firmware = firmware
        self._open_session(take_over=take_over)

    def _open_session(self, *, take_over: bool) -> None:
        start = time.monotonic()
        described = self._manifest
        try:
            expected = Expected(described.model, described.model_hash, self._project.build_hash)
            self._client = Client(
                self._transport,
                expected=expected,
                timeout_s=self._timeout_s,
                on_fault=self._explained,
                region_of=self._region_of,
                device_s=self._device_s,
                take_over=take_over,
                stream=described.stream_input,
                stream_s=self.work_s,
            )
            self._granularity_ns = self._client.info().granularity_ns
            for name in self.models:
                self[name].reset_state()
        except BaseException:
            self._transport.close()
            raise
        names = ", ".join(self.models)
        log.info("open: %.2f s, %s runs %s", time.monotonic() - start, self._transport.name, names)

    def __getitem__(self, model: str) -> "Device":
        """Return the device as it runs the model of that name; it ends with the session.

        Raises:
            UsageError: the firmware has no such model; the message lists those that it has.
        """
        whole = self._root or self
        described = named_model(whole._manifest.models, model)
        if len(self.models) == 1:
            return whole
        found = copy.copy(whole)
        found._root, found._session = whole, None
        found._manifest = described.model_copy(update={"project": self._project, "firmware": whole._manifest.firmware})
        found._last_inputs, found._set = None, {}
        return found

    @property
    def models(self) -> tuple[str, ...]:
        """The names of the firmware's models."""
        return tuple(one.model for one in self._manifest.models)

    @property
    def manifest(self) -> Manifest:
        """The model's manifest.

        Raises:
            UsageError: the firmware has several models, and none was named.
        """
        if self._root is None and len(self.models) > 1:
            raise UsageError(
                f"the firmware has {len(self.models)} models: {', '.join(self.models)}",
                hint=f'name the one that is meant: device["{self.models[0]}"]',
            )
        return self._manifest

    @property
    def client(self) -> Client:
        """The session's messages, one by one."""
        if self._root is None:
            return self._client
        if self._session is not self._root._client:  # which is opened anew, too
            self._session = self._root._client
            index = self.models.index(self._manifest.model)
            self._client = self._session.of_model(
                index,
                on_fault=self._explained,
                region_of=self._region_of,
                stream=self._manifest.stream_input,
            )
        return self._client

    @property
    def _stopwatch(self) -> Stopwatch:
        return Stopwatch(self.client, self.manifest, self.unit, self.identity, self._granularity_ns)

    @property
    def _project(self) -> Project:
        assert self._manifest.project is not None
        return self._manifest.project

    def _explained(self, fault: Fault) -> DeviceError:
        return faults.explain(fault, self._manifest, self._firmware)

    def _region_of(self, number: int) -> str:
        return faults.region_of(number, self._manifest)

    def set_input(self, name: str, array: ArrayLike) -> None:
        """Set one input, for each `run` that is not given it.

        Raises:
            UsageError: the model has no such input, or it has another shape or type.
        """
        described = named(self.manifest.inputs, name)
        if described.dims is None and described.range is None:
            bytes_of(name, described, np.asarray(array))
        self._set[name] = array

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

    def run(
        self, inputs: Mapping[str, ArrayLike] | None = None, *, timeout_s: float | None = None, in_steps: bool = True
    ) -> dict[str, Array]:
        """Run the model once; its states, if it has any, go on from those of the last run.

        Args:
            inputs: an array for each input, of the model's own shape and type; those that were set need not be given.
            timeout_s: how long the inference may take; default: generously by its multiply-accumulates.
            in_steps: let the device run operator by operator, so that a fault names its operator; else through the
                model's entry point, as a standalone firmware does. The outputs are the same.

        Returns:
            An array for each output.

        Raises:
            UsageError: an input is missing or unknown, or has another shape or type.
            DeviceError: the model failed on the device.
            CommunicationError: the device stopped answering.
        """
        data = to_bytes(self.manifest.inputs, {**self._set, **(inputs or {})})
        self._last_inputs = data
        sizes = sizes_in(self.manifest.inputs, data)
        lengths = [bytes_at(tensor, sizes) for tensor in self.manifest.outputs]
        found = self.client.run(data, lengths, work_s=timeout_s or self.work_s, in_steps=in_steps)
        return from_bytes(self.manifest.outputs, found, sizes)

    def run_timed(
        self, inputs: Mapping[str, ArrayLike], *, timeout_s: float | None = None
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
        timeout_s: float | None = None,
    ) -> Timing:
        """Time the model, or one operator of it, with the device's timer.

        Each repeat starts with the inputs; where they share the arena with what is computed, the 2nd and later of its
        `number` inferences work on what the first has left there.

        Args:
            number, repeat, min_repeat_ms, zero_time_limit, cooldown_ms, repeats_to_cooldown, warm_up: how often the
                timer is read, and what happens in between: see `Readings`.
            function: the operator, by its number, its name or that of its C function; default: the model.
            inputs: what to run on; default: those of the last `run` or `time`, zeros if there was none.
            timeout_s: how long an inference may take; default: generously by its multiply-accumulates.

        Raises:
            UsageError: a value is out of its range, an input is wrong, or there is no such function.
            DeviceError: the timer ran over its range, or the model failed.
            CommunicationError: the device stopped answering.
        """
        readings = Readings(number, repeat, min_repeat_ms, zero_time_limit, cooldown_ms, repeats_to_cooldown, warm_up)
        operator = functions.operator_of(self.manifest, function) if function else None
        data = None if inputs is None else to_bytes(self.manifest.inputs, inputs)
        self._last_inputs = data or self._last_inputs or zeros(self.manifest.inputs)
        return self._stopwatch.time(self._last_inputs, readings, work_s=timeout_s or self.work_s, operator=operator)

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
        return Profile(rows, self.unit, whole, repeat)

    def calibrate(self, seconds: float = 10.0) -> Calibration:
        """Measure the device's timer against this computer's clock; `mtool.session.calibration.store` keeps it.

        Args:
            seconds: how long to measure; the uncertainty of a round trip is divided by it.

        Raises:
            UsageError: the device's timer counts instructions, or `seconds` is no positive number.
            DeviceError: the timer stands still, or ran over its range.
        """
        if self.unit != "ns":
            raise UsageError(
                f"the timer of {self.identity} counts {self.unit}, not time: there is nothing to calibrate"
            )
        return calibration.measure(self.client, seconds)

    def graph_executor(self, folder: Path) -> GraphExecutor:
        """Return the graph executor on this side, of the graph in the project's folder; its `run` is like this one's.

        Raises:
            UsageError: the project was built without a graph.
        """
        return GraphExecutor.read(self.client, self.manifest, folder, work_s=self.work_s)

    def functions(self) -> tuple[str, ...]:
        """Return the names that `call` takes: each operator in order, then the model; empty if it has none."""
        return self.manifest.functions

    def call(self, name: str, *arguments: ArrayLike, timeout_s: float | None = None) -> Array | tuple[Array, ...]:
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
        found = functions.find(self.manifest, name)
        return functions.call(self.client, found, arguments, work_s=timeout_s or self.work_s)

    def reset_state(self) -> None:
        """Put the initial values into the model's states, to begin another sequence; a session begins with that."""
        for state in self.manifest.states:
            data = base64.b64decode(state.initial) or bytes(state.bytes)
            self.client.write_at(protocol.ARENA, 0, state.arena_offset, data)

    def stack_bytes(self) -> int | None:
        """Return how deep the last `run` went on the stack, in bytes, or None where that is not measured."""
        return self.client.stack_bytes()

    def info(self) -> DeviceInfo:
        """Return what the device says of itself."""
        return DeviceInfo.of(self.client.hello, self._granularity_ns)

    def is_alive(self, *, timeout_s: float = _ALIVE_S) -> bool:
        """Tell whether the device answers within `timeout_s`; if not, the session is over: `reconnect`."""
        try:
            self.client.ping(timeout_s)
        except MtoolError:
            return False
        return True

    def reset(self) -> None:
        """Reset the device, which ends the session; a process or an emulator ends."""
        self.client.reset()
        self.close()

    def reconnect(self) -> None:
        """Open a session anew: after a reset, when the board was unplugged, when the emulator was killed.

        A port that has gone is waited for as long as a firmware may take to start. What was written to the device is
        lost.

        Raises:
            UsageError: this device was not opened by `open`, which knows how to do it again.
            CommunicationError: nothing answers, or another firmware.
            BoardError: the board is not attached any more.
        """
        if self._root is not None:
            self._root.reconnect()
            return
        if self._reopen is None:
            raise UsageError("this device can't be opened again", hint="open it with mtool.open, or mtool.session.open")
        self.close()
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                self._transport = self._reopen()
                break
            except (BoardError, CommunicationError):
                if time.monotonic() > deadline:
                    raise
            time.sleep(_REOPEN_S)
        self._open_session(take_over=False)

    def close(self) -> None:
        """End the session and let go of the device, for all of its models. May be called again."""
        whole = self._root or self
        whole._client.close()
        whole._transport.close()

    @property
    def _device_s(self) -> float:
        """Return how much of the device's time passes in one of our seconds, at least."""
        return _EMULATED_S if self.unit == "instructions" else 1.0

    @property
    def is_at_port(self) -> bool:
        """Whether it is a board on a serial port or behind TCP, not a process or an emulator of this computer."""
        return isinstance((self._root or self)._transport, SerialTransport | TcpTransport)

    @property
    def is_process(self) -> bool:
        """Whether the device is a process or an emulator that was started for it, so that there can be several."""
        transport = (self._root or self)._transport
        return transport.is_process and not int(self._project.options.get("gdbserver", 0))

    @property
    def unit(self) -> str:
        """The unit of the device's timer: "ns", or "instructions"."""
        timer = self._project.board.timer
        return "ns" if timer is None else str(timer.unit)
