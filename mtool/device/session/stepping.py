"""An inference that the host drives operator by operator; rows of a streamed input are written when they are needed."""

from collections.abc import Sequence
from dataclasses import dataclass

from mtool.device.rpc import Client, protocol
from mtool.manifest import Manifest, Operator


@dataclass(frozen=True, slots=True)
class Stepping:
    """An inference operator by operator.

    client: an open session's.
    manifest: of the project.
    inputs: the bytes of each.
    """

    client: Client
    manifest: Manifest
    inputs: Sequence[bytes]

    def begin(self) -> None:
        """Write the inputs, except one that the model takes by rows."""
        for index, (tensor, data) in enumerate(zip(self.manifest.inputs, self.inputs, strict=True)):
            if tensor.stream is None:
                self.client.write_at(protocol.INPUTS, index, 0, data)

    def run(self, operator: Operator, *, work_s: float) -> int:
        """Run the next operator, and return its nanoseconds."""
        self.prepare(operator)
        return self.client.time(1, work_s=work_s, operator=operator.index)

    def prepare(self, operator: Operator) -> None:
        """Write the row that an operator reads, if it reads one of the caller's."""
        for operand in operator.reads:
            stream = self.manifest.inputs[operand.index].stream if operand.memory == "inputs" else None
            if stream is not None:
                row = self.inputs[operand.index][operand.offset : operand.offset + stream.row_bytes]
                self.client.write_at(protocol.INPUTS, operand.index, 0, row)
