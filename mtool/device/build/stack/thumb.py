"""The stack pointer and the calls in Thumb code (Armv6-M to Armv8.1-M; Arm DDI 0553, C2.4)."""

from mtool.device.build.stack.steps import Code, Kind, State, Step, signed

_SP, _LR, _PC = 13, 14, 15
_SAVED = range(4, 12)


def step(code: Code, at: int, state: State) -> Step:
    """Return the effect of the instruction at an address, and update the state's registers."""
    first = code.read(at, 2)
    if first >> 11 in (0b11101, 0b11110, 0b11111):
        return _long(code, at, first, code.read(at + 2, 2), state)
    return _short(code, at, first, state)


def _add(end: int, to: int, of: int, number: int, state: State) -> Step:
    return state.added(to, of, number, sp=_SP, saved=_SAVED, end=end)


def _short(code: Code, at: int, word: int, state: State) -> Step:
    end = at + 2
    low, byte, register = word & 7, word & 0xFF, word >> 8 & 7
    match word >> 8:
        case 0xB4 | 0xB5:  # push
            return Step(end, pushed=4 * (word & 0x1FF).bit_count())
        case 0xBC | 0xBD:  # pop
            kind = Kind.RETURN if word & 0x100 else Kind.ON
            return Step(end, kind, pushed=-4 * (word & 0x1FF).bit_count())
        case 0xB0:  # add, sub sp
            number = 4 * (word & 0x7F)
            return Step(end, pushed=number if word & 0x80 else -number)
        case 0x44 if low | word >> 4 & 8 == _SP:  # add sp, rm
            return state.sp_plus(word >> 3 & 15, 1, end)
        case 0x46:  # mov
            to, of = low | word >> 4 & 8, word >> 3 & 15
            if to == _PC:
                return Step(end, Kind.RETURN if of == _LR else Kind.SWITCH)
            return _add(end, to, of, 0, state)
        case 0x47 if word & 0x80:  # blx
            return Step(end, Kind.CALL_BY_POINTER)
        case 0x47:  # bx
            return Step(end, Kind.RETURN if word >> 3 & 15 == _LR else Kind.JUMP_BY_POINTER)
        case 0xBF if word & 15:  # it
            state.conditional = 5 - (word & 15 & -(word & 15)).bit_length() + 1  # this one, and up to four
        case 0x42 if word >> 6 & 3 == 1 and word >> 3 & 7 in state.constants:  # negs
            state.constants[low] = -state.constants[word >> 3 & 7]
            return Step(end)
        case high if high & 0xF5 == 0xB1:  # cbz, cbnz
            return Step(end, Kind.BRANCH, at + 4 + 2 * (word >> 3 & 31 | word >> 4 & 32))
    match word >> 11:
        case 0b10101:  # add rd, sp
            return _add(end, register, _SP, 4 * byte, state)
        case 0b00110 | 0b00111:  # adds, subs
            return _add(end, register, register, -byte if word & 0x800 else byte, state)
        case 0b00011 if word & 0x400:  # adds, subs of 3 bits
            number = word >> 6 & 7
            return _add(end, low, word >> 3 & 7, -number if word & 0x200 else number, state)
        case 0b00100:  # movs
            state.constants[register] = byte
        case 0b00000 if word >> 3 & 7 in state.constants:  # lsls
            state.constants[low] = state.constants[word >> 3 & 7] << (word >> 6 & 31)
        case 0b01001:  # ldr rd, [pc]
            state.constants[register] = signed(code.read((at + 4 & ~3) + 4 * byte, 4), 32)
        case 0b11010 | 0b11011 if word >> 8 & 15 < 14:
            return Step(end, Kind.BRANCH, at + 4 + 2 * signed(byte, 8))
        case 0b11100:
            return Step(end, Kind.JUMP, at + 4 + 2 * signed(word & 0x7FF, 11))
        case group:
            state.overwrite(register if group in (0b10011, 0b10100) else low)  # ldr rd, [sp]; adr
    return Step(end)


def _long(code: Code, at: int, first: int, second: int, state: State) -> Step:
    end = at + 4
    to, base = second >> 8 & 15, first & 15
    match first:
        case 0xE92D:  # push
            return Step(end, pushed=4 * second.bit_count())
        case 0xE8BD:  # pop
            return Step(end, Kind.RETURN if second >> _PC else Kind.ON, pushed=-4 * second.bit_count())
        case 0xED2D | 0xED6D:  # vpush
            return Step(end, pushed=4 * (second & 0xFF))
        case 0xECBD | 0xECFD:  # vpop
            return Step(end, pushed=-4 * (second & 0xFF))
        case 0xF84D if to == 0b1101:  # str [sp, #-n]!
            return Step(end, pushed=second & 0xFF)
        case 0xF85D if to == 0b1011:  # ldr [sp], #n
            return Step(end, Kind.RETURN if second >> 12 == _PC else Kind.ON, pushed=-(second & 0xFF))
        case 0xE96D:  # strd [sp, #-n]!
            return Step(end, pushed=4 * (second & 0xFF))
        case 0xE8FD:  # ldrd [sp], #n
            return Step(end, pushed=-4 * (second & 0xFF))
        case 0xEBAD | 0xEB0D | 0xEBBD | 0xEB1D if to == _SP:  # sub, add sp, sp, rm
            if second & 0x70F0:  # shifted
                return Step(end, is_unknown=True)
            return state.sp_plus(second & 15, -1 if first & 0xA0 == 0xA0 else 1, end)
        case 0xF8DF | 0xF85F:  # ldr rd, [pc]
            offset = second & 0xFFF
            number = code.read((at + 4 & ~3) + (offset if first & 0x80 else -offset), 4)
            if second >> 12 == _PC:  # a jump to a far function
                return Step(end, Kind.JUMP, number & ~1)
            state.constants[second >> 12] = signed(number, 32)
            return Step(end)
    if first & 0xFF70 == 0xF850 and second >> 12 == _PC:  # ldr pc
        return Step(end, Kind.SWITCH if code.has_table(at) else Kind.JUMP_BY_POINTER)
    if first & 0xFFF0 == 0xE8D0 and second & 0xFFE0 == 0xF000:  # tbb, tbh
        return Step(end, Kind.SWITCH)
    if first & 0xFFF0 == 0xF380 and second & 0xFFFE == 0x8808:  # msr msp, psp
        return Step(end, is_unknown=True)
    if first >> 11 == 0b11110 and second >> 15:
        return _branch(at, first, second)
    plain = (first >> 10 & 1) << 11 | (second >> 12 & 7) << 8 | second & 0xFF
    match first & 0xFBF0:
        case 0xF240:  # movw
            state.constants[to] = base << 12 | plain
        case 0xF2C0 if to in state.constants:  # movt
            state.constants[to] = signed((base << 12 | plain) << 16 | state.constants[to] & 0xFFFF, 32)
        case 0xF040 | 0xF050 if base == _PC:  # mov
            state.constants[to] = _expanded(plain)
        case 0xF100 | 0xF110 if to != _PC:  # add
            return _add(end, to, base, _expanded(plain), state)
        case 0xF1A0 | 0xF1B0 if to != _PC:  # sub
            return _add(end, to, base, -_expanded(plain), state)
        case 0xF200:  # addw
            return _add(end, to, base, plain, state)
        case 0xF2A0:  # subw
            return _add(end, to, base, -plain, state)
        case _:
            state.overwrite(to, second >> 12)
    return Step(end)


def _branch(at: int, first: int, second: int) -> Step:
    end = at + 4
    sign = first >> 10 & 1
    ones = second >> 13 & 1, second >> 11 & 1
    if second & 0x1000:  # bl, b
        i1, i2 = (1 - (bit ^ sign) for bit in ones)
        offset = sign << 24 | i1 << 23 | i2 << 22 | (first & 0x3FF) << 12 | (second & 0x7FF) << 1
        return Step(end, Kind.CALL if second & 0x4000 else Kind.JUMP, at + 4 + signed(offset, 25))
    if not second & 0x4000 and first >> 6 & 15 < 14:
        offset = sign << 20 | ones[1] << 19 | ones[0] << 18 | (first & 0x3F) << 12 | (second & 0x7FF) << 1
        return Step(end, Kind.BRANCH, at + 4 + signed(offset, 21))
    if first & 0xFF8F == 0xF00F and second & 0xF001 == 0xC001:  # le: the end of a loop of Armv8.1-M
        return Step(end, Kind.BRANCH, at + 4 - 2 * (second >> 11 & 1 | (second & 0x7FE)))
    if first & 0xFF80 == 0xF000 and second & 0xF001 == 0xC001:  # wls: jumps over the loop
        return Step(end, Kind.BRANCH, at + 4 + 2 * (second >> 11 & 1 | (second & 0x7FE)))
    return Step(end)  # barriers, moves of special registers


def _expanded(value: int) -> int:
    """Return the constant of 12 bits that an instruction stands for (ThumbExpandImm)."""
    byte = value & 0xFF
    if value >> 10 == 0:
        return (byte, byte << 16 | byte, byte << 24 | byte << 8, byte * 0x01010101)[value >> 8]
    turn, number = value >> 7, 0x80 | value & 0x7F
    return (number >> turn | number << (32 - turn)) & 0xFFFFFFFF
