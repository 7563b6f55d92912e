"""Instructions, counted by the block: a block of code is decoded once, and added whenever it is run."""

from collections.abc import Callable

import unicorn


class Blocks(dict[int, int]):
    """The number of instructions of each block, by its address and its size in one number.

    Args:
        machine: where its code is read.
        count: returns how many instructions some bytes hold.
    """

    _SIZE_BITS = 16

    def __init__(self, machine: unicorn.Uc, count: Callable[[bytes], int]) -> None:
        self._machine = machine
        self._count = count

    def __missing__(self, key: int) -> int:
        address, size = key >> self._SIZE_BITS, key & ((1 << self._SIZE_BITS) - 1)
        self[key] = count = self._count(bytes(self._machine.mem_read(address, size)))
        return count


class Counter:
    """The instructions that a machine has run, and an event once there are so many.

    A block counts when it begins. It runs to its end or ends in a fault, after which nothing is measured: unicorn
    ends a block at each branch, and an instruction that its condition skips counts like any other.

    Args:
        machine: the emulated core.
        count: returns how many instructions some bytes hold.
        on_event: called before the block that would go over `event`; it sets another. True: the machine is to stop, and
            that block counts when it goes on.
    """

    def __init__(self, machine: unicorn.Uc, count: Callable[[bytes], int], on_event: Callable[[], bool]) -> None:
        self.total = 0
        self.event = 0
        blocks = Blocks(machine, count)

        def on_block(engine: unicorn.Uc, address: int, size: int, _: object) -> None:
            if self.total >= self.event and on_event():
                engine.emu_stop()
            else:
                self.total += blocks[address << 16 | size]

        machine.hook_add(unicorn.UC_HOOK_BLOCK, on_block)
