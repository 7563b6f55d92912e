"""A device on which models run."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mtool.base import checked
from mtool.base.errors import UsageError, of_os_error
from mtool.base.proc import Closing
from mtool.device.rpc import Client, protocol
from mtool.device.rpc.loading import Place
from mtool.device.session import timing
from mtool.device.session.connection import Connection, alone
from mtool.device.session.model import ModelOnDevice, generous_s
from mtool.device.session.timing import Calibration
from mtool.device.transport import Transport
from mtool.manifest import Manifest, named

# A device's description of itself.


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """A device's description of itself.

    Attributes:
        model: the model's name.
        model_hash: first 16 hex digits of the hash of the model's file.
        build_hash: the same of everything that went into the firmware.
        protocol_version: of the RPC.
        packet_bytes: largest frame of the RPC.
        window_bytes: what may be on its way to the device; 0: any amount.
        timer_granularity_ns: smallest step of the timer.
    """

    model: str
    model_hash: str
    build_hash: str
    protocol_version: int
    packet_bytes: int
    window_bytes: int
    timer_granularity_ns: int

    @classmethod
    def of(cls, hello: protocol.Hello, timer_granularity_ns: int) -> "DeviceInfo":
        """Return it, from what the device answered at the beginning of the session."""
        return cls(
            model=hello.model,
            model_hash=hello.model_hash,
            build_hash=hello.build_hash,
            protocol_version=hello.version,
            packet_bytes=hello.packet_bytes,
            window_bytes=hello.window_bytes,
            timer_granularity_ns=timer_granularity_ns,
        )


_ALIVE_S = 3.0


class Device(ModelOnDevice, Closing):
    """A session with a device that runs a model; use it in a `with` statement. `mtool.device.session.open` makes one.

    Threads may share it: each of its methods lets other threads wait until it is done. A process that was forked
    meanwhile may not: the device could not tell its requests from those of the first.

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
        work_s: seconds that an inference may take unless said otherwise, generously by its estimated instructions.
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
        work_s: float | None = None,
    ) -> None:
        self._given_s = work_s
        work_s = work_s or generous_s(manifest.models)
        connection = Connection(
            manifest,
            transport,
            timeout_s=timeout_s,
            stream_s=work_s,
            serial_number=serial_number,
            reopen=reopen,
            take_over=take_over,
            firmware=firmware,
        )
        super().__init__(connection, work_s=work_s)
        self.identity = connection.identity

    @checked.method
    def __getitem__(self, model: str) -> "Device":
        """Return the device as it runs the model of that name; it ends with the session.

        Raises:
            UsageError: the firmware has no such model; the message lists those that it has.
        """
        described = named(self.connection.models, model)
        if len(self.models) == 1:
            return self
        found = self._other(model)
        found.work_s = self._given_s or max(self.work_s, generous_s([described]))
        return found

    @property
    def models(self) -> tuple[str, ...]:
        """The names of the device's models: the firmware's own, and those of modules."""
        return tuple(one.model for one in self.connection.models)

    @alone
    def load(
        self,
        module: str | Path | bytes,
        *,
        ram: bool = False,
        since: str | Path | bytes = b"",
        progress: Callable[[int, int], None] = lambda there, whole: None,
    ) -> "Device":
        """Give the device a module (`mtool module`): its model is one of `models` then, and stays after a reset.

        Where a load broke off, the same one goes on. A model of the same name is hidden by it.

        Args:
            module: the file, or its bytes.
            ram: put it into RAM, where the next reset forgets it.
            since: the file, or its bytes, of the module that is in flash, so that the difference is sent alone; empty:
                one that was loaded from here before, if that is what is there.
            progress: is told how many bytes are on their way or there, of all that are sent.

        Returns:
            The device as it runs that model.

        Raises:
            UsageError: the file can't be read, is no module, or the firmware takes none, or has another than `since`.
            DeviceError: the device refuses it; what it had before stays.
            CommunicationError: the device stopped answering.
        """
        data, name = _module(module)
        old = _module(since)[0] if since else b""
        self.connection.load(data, Place.RAM if ram else Place.FLASH, progress, old)
        return self[name]

    @property
    def session(self) -> Client:
        """The session's own messages, whichever model is meant otherwise."""
        return self.connection.session

    @alone
    def calibrate(self, seconds: float = 10.0) -> Calibration:
        """Measure the device's timer against this computer's clock; `mtool.device.session.timing.store` keeps it.

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
        return timing.measure(self.client, seconds)

    def info(self) -> DeviceInfo:
        """Return what the device says of itself."""
        return DeviceInfo.of(self.client.hello, self.connection.granularity_ns)

    @checked.method
    def is_alive(self, *, timeout_s: checked.NotNegative = _ALIVE_S) -> bool:
        """Tell whether the device answers within `timeout_s`; if not, the session is over: `reconnect`."""
        return self.connection.is_alive(timeout_s=timeout_s)

    @alone
    def reset(self) -> None:
        """Reset the device, which ends the session; a process or an emulator ends."""
        self.connection.reset()

    @alone
    def reconnect(self) -> None:
        """Open a session anew: after a reset, when the board was unplugged, when the emulator was killed.

        A port that has gone is waited for as long as a firmware may take to start. What was written to the device is
        lost.

        Raises:
            UsageError: this device was not opened by `open`, which knows how to do it again.
            CommunicationError: nothing answers, or another firmware.
            BoardError: the board is not attached any more.
        """
        self.connection.reconnect(stream_s=self.work_s)

    def close(self) -> None:
        """End the session and let go of the device, for all of its models. May be called again."""
        self.connection.close()

    @property
    def is_at_port(self) -> bool:
        """Whether it is a board on a serial port or behind TCP, not a process or an emulator of this computer."""
        return self.connection.is_at_port

    @property
    def is_process(self) -> bool:
        """Whether the device is a process or an emulator that was started for it, so that there can be several."""
        return self.connection.is_process

    @property
    def unit(self) -> str:
        """The unit of the device's timer: "ns", or "instructions"."""
        return self.connection.unit


def _module(file: str | Path | bytes) -> tuple[bytes, str]:
    """Return the bytes of a module's file, and its model's name."""
    from mtool.manifest.modules.format import unpack

    what = "the module" if isinstance(file, bytes) else str(file)
    try:
        data = file if isinstance(file, bytes) else Path(file).read_bytes()
    except OSError as failed:
        raise of_os_error(failed, f"{what} can't be read") from None
    return data, unpack(data, what).name
