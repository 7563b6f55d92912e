"""Parse the disassembler's text of RISC-V code."""

import re
from dataclasses import replace

from mtool.device.cycles.cores import Instruction, group_of, groups

_REGISTER = re.compile(r"\b(zero|ra|sp|gp|tp|fp|[ast]\d+)\b")
_NONE: frozenset[str] = frozenset()


def decode(address: int, size: int, written: str, operands: str) -> Instruction:
    """Return an instruction of 2 or 4 bytes from the disassembler's text: "lw" and "a5,12(a4)"."""
    mnemonic = written.removeprefix("c.")
    group = group_of("riscv").get(mnemonic, "")
    entry = groups().get(group)
    is_store = entry is not None and entry.kind == "store"
    parts = operands.split(",") if operands else []
    results = entry.results if entry else 1
    writes = _registers(parts[:1]) if results and mnemonic not in ("jr", "ret") else _NONE
    if mnemonic in ("jal", "jalr", "j", "tail", "call"):
        writes = frozenset({"ra"}) if mnemonic in ("jal", "jalr", "call") else _NONE
    memory = [part for part in parts if "(" in part]
    early = _registers(memory)
    sources = _registers([part for part in parts[0 if is_store or not results else 1 :] if part not in memory])
    instruction = Instruction(address, size, mnemonic, group, operands, early=early, writes=writes - {"zero"})
    return replace(instruction, late=sources) if is_store else replace(instruction, reads=sources)


def _registers(parts: list[str]) -> frozenset[str]:
    return frozenset(name for part in parts for name in _REGISTER.findall(part)) - {"zero"}
