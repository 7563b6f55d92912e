"""Remote procedure calls: frames, messages, the sliding window, and the client that puts them together."""

from mtool.rpc.client import Client
from mtool.rpc.handshake import Expected
from mtool.rpc.protocol import Hello, Info

__all__ = ["Client", "Expected", "Hello", "Info"]
