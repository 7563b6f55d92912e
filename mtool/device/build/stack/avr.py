"""The stack pointer and the calls in AVR code (Atmel 0856, AVR instruction set manual)."""

from mtool.device.build.stack.steps import Code, Kind, State, Step, signed

_SPL = 0x3D  # the I/O address of the stack pointer's low byte
_LOW = 100  # in the state's constants: the low byte that was subtracted from a pair of registers, at 100 + the pair
_WRITES = (0x2, 0x3, 0x6, 0x7, 0x8, 0x9, 0xA, 0xB, 0x24)  # sbc, add, sub, adc, and, eor, or, mov; loads


def step(code: Code, at: int, state: State) -> Step:
    """Return the effect of the instruction at an address, and update the state's registers."""
    word = code.read(at, 2)
    end, register = at + 2, word >> 4 & 31
    if word & 0xFE0F == 0x920F:  # push
        return Step(end, pushed=1)
    if word & 0xFE0F == 0x900F:  # pop
        return Step(end, pushed=-1)
    if word & 0xFE0C == 0x940C:  # a jump or call to any address
        target = 2 * ((word >> 3 & 0x3E | word & 1) << 16 | code.read(at + 2, 2))
        return Step(at + 4, Kind.CALL if word & 2 else Kind.JUMP, target)
    if word & 0xFC00 == 0x1000 or word & 0xFC08 == 0xFC00 or word & 0xFD00 == 0x9900:  # cpse, sbrc, sbrs, sbic, sbis
        return Step(end, Kind.BRANCH, end + _bytes(code.read(end, 2)))
    if word == 0xD000:  # a call of the next instruction: to push
        return Step(end, pushed=code.link)
    if word >> 12 in (0xC, 0xD):  # a jump or call nearby
        target = end + 2 * signed(word & 0xFFF, 12)
        return Step(end, Kind.JUMP if word >> 12 == 0xC else Kind.CALL, target)
    if word & 0xF800 == 0xF000:
        return Step(end, Kind.BRANCH, end + 2 * signed(word >> 3 & 0x7F, 7))
    match word:
        case 0x9508 | 0x9518:
            return Step(end, Kind.RETURN)
        case 0x9509 | 0x9519:
            return Step(end, Kind.CALL_BY_POINTER)
        case 0x9409 | 0x9419:
            return Step(end, Kind.JUMP_BY_POINTER)
    if word >> 11 in (0b10110, 0b10111) and (word >> 5 & 0x30 | word & 15) == _SPL:  # in, out
        if word >> 11 == 0b10110:
            state.frames[register] = state.depth
        elif register in state.frames:
            return Step(end, pushed=state.frames[register] - state.depth)
        else:
            return Step(end, is_unknown=True)
    elif word >> 9 == 0x96 >> 1:  # adiw, sbiw
        pair, number = 24 + 2 * (word >> 4 & 3), word >> 2 & 0x30 | word & 15
        if pair in state.frames:
            state.frames[pair] += number if word & 0x100 else -number
    elif word >> 12 in (0x4, 0x5):  # sbci, subi
        register, number = 16 + (word >> 4 & 15), word >> 4 & 0xF0 | word & 15
        if word >> 12 == 0x5:
            state.constants[_LOW + register] = number
        elif register - 1 in state.frames and (low := state.constants.pop(_LOW + register - 1, None)) is not None:
            state.frames[register - 1] += signed(number << 8 | low, 16)
    elif word >> 8 == 0x01 and (of := 2 * (word & 15)) in state.frames:  # movw
        state.frames[2 * (word >> 4 & 15)] = state.frames[of]
    elif word >> 10 in _WRITES:
        state.frames.pop(register & ~1, None)
    elif word >> 12 == 0xE:  # ldi
        state.frames.pop(16 + (word >> 4 & 14), None)
    return Step(end + _bytes(word) - 2)


def _bytes(word: int) -> int:
    """Return the bytes of an instruction: jmp, call, lds and sts have 4."""
    return 4 if word & 0xFE0C == 0x940C or word & 0xFC0F == 0x9000 else 2
