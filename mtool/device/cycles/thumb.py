"""Parse the disassembler's text of Thumb code."""

import re

from mtool.device.cycles.cores import Instruction, group_of, groups

_CONDITIONS = ("eq", "ne", "cs", "hs", "cc", "lo", "mi", "pl", "vs", "vc", "hi", "ls", "ge", "lt", "gt", "le", "al")
_ALIASES = {"sb": "r9", "sl": "r10", "fp": "r11", "ip": "r12", "r13": "sp", "r14": "lr", "r15": "pc"}
_OPERAND = re.compile(r"(?:\{[^}]*\}|\[[^\]]*\]|[^,{\[])+")
_REGISTERS = re.compile(r"\b([rsdq])(\d+)-[rsdq](\d+)\b|\b(r\d+|s\d+|d\d+|q\d+|sp|lr|pc|ip|fp|sl|sb)\b")
_SHIFT = re.compile(r"(lsl|lsr|asr|ror|rrx)\b")
_VECTOR = re.compile(r"\bq\d")


def decode(address: int, size: int, written: str, operands: str) -> Instruction:
    """Return an instruction of 2 or 4 bytes from the disassembler's text: "ldr.w" and "r3, [r2, #4]!"."""
    mnemonic = _mnemonic(written)
    parts = [part.strip() for part in _OPERAND.findall(operands)]
    group = _group(mnemonic, written, operands)
    if group == "float_move" and len(parts) >= 3:
        group = "float_move_pair"
    entry = groups().get(group)
    results = entry.results if entry else 1
    if group == "float_move_pair":
        results = 1 if parts[0].startswith("d") else 2
    is_memory = [part.startswith("[") for part in parts]
    memory = parts[is_memory.index(True)] if any(is_memory) else ""
    if group == "load_multiple" and "pc" in operands:
        group = "load_multiple_return"
    listed = next((part for part in parts if part.startswith("{")), "")
    shifted = next((index for index, part in enumerate(parts) if _SHIFT.match(part)), 0)
    if memory:
        base = memory
        writes_back = memory.endswith("!") or not is_memory[-1]
    else:  # a register list is the only operand of push and pop: {r4, lr}
        base = "" if not listed else parts[0] if len(parts) > 1 else "sp"
        writes_back = base.endswith("!") or (bool(listed) and len(parts) == 1)
    results_at = {parts.index(listed)} if results == "list" else set(range(results))
    writes = _set([part for index, part in enumerate(parts) if index in results_at])
    early = _set([base]) if base else _set(parts[shifted - 1 : shifted])
    reads = _set([part for index, part in enumerate(parts) if index not in results_at and part != base]) - early
    late: frozenset[str] = frozenset()
    if entry and entry.kind == "store":
        late, reads = reads, frozenset()
    elif entry and entry.accumulates:
        late = writes
    elif group == "multiply_accumulate" and len(parts) == 4:
        late = _set(parts[3:])
        reads = _set(parts[1:3])
    elif results == 1 and len(parts) == 2 and group in ("arithmetic", "shift", "multiply"):
        reads |= writes
    moved = listed or (parts[0] if memory and group.startswith("float") else "")
    return Instruction(
        address=address,
        bytes=size,
        mnemonic=mnemonic,
        group=group,
        operands=operands,
        reads=reads,
        early=early,
        late=late,
        writes=writes,
        base=_set([re.split(r"[,\]]", base)[0]]) if writes_back else frozenset(),
        words=len(_set([moved])) if moved else 2 if group.endswith("_double") else 1,
        indexed=len(_set([memory])) == 2,
        double="f64" in written,
    )


def _group(mnemonic: str, written: str, operands: str) -> str:
    """Return the group of an instruction; with a Q register it is a vector one, of floats or of integers."""
    groups = group_of()
    if _VECTOR.search(operands):
        name = written.split(".")[0]
        kinds = (".f", "") if ".f" in written else ("",)
        for base in (name, name[:-1]):  # in a VPT block it ends in "t" or "e"
            for kind in kinds:
                if group := groups.get(f"q:{base}{kind}"):
                    return group
            if group := groups.get(base):
                return group
    return groups.get(mnemonic, "")


def _mnemonic(written: str) -> str:
    """Return a mnemonic as in the groups: "vcvt" for "vcvtne.f32.s32", "add" for "addsne.w"."""
    groups = group_of()
    base = written.split(".")[0]
    unconditional = base[:-2] if base[-2:] in _CONDITIONS else base
    for candidate in (base, unconditional, base.removesuffix("s"), unconditional.removesuffix("s")):
        if candidate in groups:
            return candidate
    return written


def _set(texts: list[str]) -> frozenset[str]:
    """Return the registers in texts; d1 is s2 and s3, q1 is s4 to s7."""
    registers: set[str] = set()
    for match in _REGISTERS.finditer(" ".join(texts)):
        letter, low, high, single = match.groups()
        names = [f"{letter}{n}" for n in range(int(low), int(high) + 1)] if letter else [single]
        for name in names:
            if name[0] == "q":
                registers |= {f"s{4 * int(name[1:]) + index}" for index in range(4)}
            elif name[0] == "d":
                registers |= {f"s{2 * int(name[1:])}", f"s{2 * int(name[1:]) + 1}"}
            else:
                registers.add(_ALIASES.get(name, name))
    return frozenset(registers)
