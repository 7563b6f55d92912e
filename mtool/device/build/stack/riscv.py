"""The stack pointer and the calls in RISC-V code with compressed instructions (RV32IC; the ISA manual, volume I)."""

from mtool.device.build.stack.steps import Code, Kind, State, Step, signed

_ZERO, _RA, _SP, _T0 = 0, 1, 2, 5
_SAVED = range(8, 9)  # s0, the frame pointer
_WITHOUT_RESULT = (0x07, 0x0F, 0x23, 0x27)  # loads of floats, fences, stores


def step(code: Code, at: int, state: State) -> Step:
    """Return the effect of the instruction at an address, and update the state's registers."""
    state.constants[_ZERO] = 0
    word = code.read(at, 4)
    return _long(code, at, word, state) if word & 3 == 3 else _short(code, at, word & 0xFFFF, state)


def _bits(word: int, *fields: tuple[int, int, int]) -> int:
    """Return a number of fields: each is (the lowest bit in the word, the number of bits, the lowest bit there)."""
    return sum((word >> low & (1 << count) - 1) << to for low, count, to in fields)


def _add(end: int, to: int, of: int, number: int, state: State) -> Step:
    return state.added(to, of, number, sp=_SP, saved=_SAVED, end=end)


def _to_register(code: Code, at: int, end: int, register: int, state: State, *, is_call: bool, offset: int = 0) -> Step:
    """Read a jump to an address in a register, which may be known, and an offset."""
    base = state.constants.get(register)
    number = None if base is None else base + offset
    if number is not None:
        return Step(end, Kind.CALL if is_call else Kind.JUMP, number & ~1)
    if is_call:
        return Step(end, Kind.CALL_BY_POINTER)
    if register in (_RA, _T0):  # t0: functions that save registers for others return through it
        return Step(end, Kind.RETURN)
    return Step(end, Kind.SWITCH if register in state.sums or code.has_table(at) else Kind.JUMP_BY_POINTER)


def _short(code: Code, at: int, word: int, state: State) -> Step:
    end, to, of = at + 2, word >> 7 & 31, word >> 2 & 31
    immediate = signed(_bits(word, (2, 5, 0), (12, 1, 5)), 6)
    match (word & 3, word >> 13):
        case (0, 0):  # c.addi4spn
            number = _bits(word, (6, 1, 2), (5, 1, 3), (11, 2, 4), (7, 4, 6))
            return _add(end, 8 + (word >> 2 & 7), _SP, number, state)
        case (1, 0):  # c.addi
            return _add(end, to, to, immediate, state)
        case (1, 1) | (1, 5):  # c.jal, c.j
            number = _bits(
                word, (3, 3, 1), (11, 1, 4), (2, 1, 5), (7, 1, 6), (6, 1, 7), (9, 2, 8), (8, 1, 10), (12, 1, 11)
            )
            return Step(end, Kind.CALL if word >> 13 == 1 else Kind.JUMP, at + signed(number, 12))
        case (1, 2):  # c.li
            state.constants[to] = immediate
        case (1, 3) if to == _SP:  # c.addi16sp
            number = _bits(word, (6, 1, 4), (2, 1, 5), (5, 1, 6), (3, 2, 7), (12, 1, 9))
            return Step(end, pushed=-signed(number, 10))
        case (1, 3):  # c.lui
            state.constants[to] = immediate << 12
        case (1, 6) | (1, 7):  # c.beqz, c.bnez
            number = _bits(word, (3, 2, 1), (10, 2, 3), (2, 1, 5), (5, 2, 6), (12, 1, 8))
            return Step(end, Kind.BRANCH, at + signed(number, 9))
        case (2, 4) if of == 0 and to != 0:  # c.jr, c.jalr
            return _to_register(code, at, end, to, state, is_call=bool(word >> 12 & 1))
        case (2, 4) if not word >> 12 & 1:  # c.mv
            return _add(end, to, of, 0, state)
        case (2, 4) if to == _SP:  # c.add
            return state.sp_plus(of, 1, end)
        case (0, 2) | (0, 3):  # loads
            state.overwrite(8 + (word >> 2 & 7))
        case (1, 4):
            state.overwrite(8 + (word >> 7 & 7))
        case (2, 0) | (2, 2) | (2, 3):
            state.overwrite(to)
        case (2, 4):  # c.add
            state.overwrite(to)
            state.sums.add(to)
    return Step(end)


def _long(code: Code, at: int, word: int, state: State) -> Step:
    end, to, of, function = at + 4, word >> 7 & 31, word >> 15 & 31, word >> 12 & 7
    match word & 0x7F:
        case 0x13 if function == 0:  # addi
            return _add(end, to, of, signed(word >> 20, 12), state)
        case 0x33 if to == _SP and of == _SP and function == 0:  # add, sub
            return state.sp_plus(word >> 20 & 31, -1 if word >> 30 & 1 else 1, end)
        case 0x17 | 0x37 if to == _SP:
            return Step(end, is_unknown=True)
        case 0x37:  # lui
            state.constants[to] = signed(word & 0xFFFFF000, 32)
        case 0x17:  # auipc
            state.constants[to] = at + signed(word & 0xFFFFF000, 32)
        case 0x6F:  # jal
            number = _bits(word, (21, 10, 1), (20, 1, 11), (12, 8, 12), (31, 1, 20))
            return Step(end, Kind.JUMP if to == _ZERO else Kind.CALL, at + signed(number, 21))
        case 0x67:  # jalr
            return _to_register(code, at, end, of, state, is_call=to != _ZERO, offset=signed(word >> 20, 12))
        case 0x63:
            number = _bits(word, (8, 4, 1), (25, 6, 5), (7, 1, 11), (31, 1, 12))
            return Step(end, Kind.BRANCH, at + signed(number, 13))
        case 0x03 | 0x13 | 0x33 | 0x2F | 0x73:  # loads, arithmetic, atomic, special registers
            state.overwrite(to)
            if word & 0xFE00707F == 0x33:  # add
                state.sums.add(to)
            return Step(end, is_unknown=to == _SP)
        case opcode if opcode not in _WITHOUT_RESULT:  # of floats and vectors: perhaps into another kind of register
            state.overwrite(to)
    return Step(end)
