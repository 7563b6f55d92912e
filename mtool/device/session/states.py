"""The states that a model keeps on a device from one inference to the next."""

import base64

from mtool.device.rpc import Client, protocol
from mtool.manifest import Manifest


def reset(client: Client, manifest: Manifest) -> None:
    """Put the initial values into a model's states; `client` is that of the model.

    Raises:
        DeviceError: the device refuses them.
    """
    for state in manifest.states:
        data = base64.b64decode(state.initial) or bytes(state.bytes)
        client.write_at(protocol.ARENA, state.pool, state.arena_offset, data)
