"""A device's description of itself."""

from dataclasses import dataclass

from mtool.device.rpc import protocol


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
