"""Cortex-M and RISC-V cores in this process, with the package unicorn: firmware runs with only Python packages."""

from mtool.device.transport.unicorn.transport import PROGRAM, UnicornTransport

__all__ = ["PROGRAM", "UnicornTransport"]
