"""Remote procedure calls: frames, messages, the sliding window, and the client."""

from mtool.device.rpc.client import Client, Served
from mtool.device.rpc.handshake import Expected
from mtool.device.rpc.protocol import Hello, Info

__all__ = ["Client", "Expected", "Hello", "Info", "Served"]
