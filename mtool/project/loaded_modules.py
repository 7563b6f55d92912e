"""Firmware that takes modules (`--modules`): their signers, sizes and kinds, and the runtime for them."""

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Final

from mtool.base import resources
from mtool.base.errors import UsageError
from mtool.base.filetree import FileTree, from_folder
from mtool.base.frozen import frozen
from mtool.boards import Board
from mtool.manifest.modules.keys import is_weak

MODULES: Final = "modules"
KEY: Final = "module_key"
SLOT_BYTES: Final = "module_slot_bytes"
RAM_BYTES: Final = "module_ram_bytes"
KINDS: Final = "module_kinds"
"""Names of a template's options."""

NONE: Final = "none"
SIGNED: Final = "signed"
UNSIGNED: Final = "unsigned"
"""The values of the option `modules`: take none, those signed with one key, or also unsigned ones."""

COMPILED: Final = ("crt/modules/", "crt/bytecode/")
"""The folders of a project with the sources that are compiled for modules."""

_KEY_BYTES = 32
_MOST_DEFAULT = 512 << 10
_LEAST_DEFAULT = 16 << 10
_PART = 8  # the default for the RAM of modules and for a slot in emulated flash is this fraction of the memory
_UNIT = 4096
_SLOT_IN_FLASH = 128 << 10  # of a real board, whose partition has as many slots as fit
_SLOTS, _LEAST_SLOTS, _MOST_SLOTS = 4, 2, 8  # of the emulated flash; mt_slots.h
_JOURNAL_BYTES = 2 * 4096


@frozen
class AcceptedModules:
    """The modules that a firmware takes.

    Attributes:
        public_keys: the signers' public keys, each as 32 numbers.
        kinds: the module kinds it runs: "native", "bytecode" or both.
        takes_unsigned: it also takes unsigned modules.
        slot_bytes: the least size of a slot for a module that survives a reset.
        flash_bytes: the RAM that emulates flash: the slots, and the journal of their contents.
        ram_bytes: the RAM for the memory of modules, and for the file of one that is loaded into RAM.
        memory: the board's memory with that RAM, and with the emulated flash.
        simulates_flash: the board is emulated, and has a memory that is otherwise unused.
    """

    public_keys: tuple[tuple[int, ...], ...]
    kinds: tuple[str, ...]
    takes_unsigned: bool
    slot_bytes: int
    flash_bytes: int
    ram_bytes: int
    memory: str
    simulates_flash: bool


def read(options: Mapping[str, str | int | bool], board: Board) -> AcceptedModules | None:
    """Return the modules that a firmware accepts, from its template's options; None: none.

    Raises:
        UsageError: the key is missing or malformed, or a size is not a multiple of 4096.
    """
    if options.get(MODULES, NONE) == NONE:
        return None
    unsigned = options[MODULES] == UNSIGNED
    digits = str(options[KEY])
    try:
        raw = bytes.fromhex(digits)
    except ValueError:
        raw = b""
    if len(raw) != _KEY_BYTES and not (unsigned and not digits):
        raise UsageError(
            "firmware that takes modules needs their signer's public key",
            details=[] if not digits else [f"expected 64 hexadecimal digits, found {digits[:80]!r}"],
            hint="create a key pair with mtool key FILE, then use --modules --module-key FILE.pub",
        )
    if raw and is_weak(raw):
        raise UsageError(
            "the module key is insecure: anyone can sign for it, as its point has low order",
            hint="create another with mtool key FILE",
        )
    memory = _memory(board)
    default = _default(board.memories[memory].size) if memory else _LEAST_DEFAULT
    slot_bytes = default if board.emulator is not None else _SLOT_IN_FLASH
    sizes = {SLOT_BYTES: int(options[SLOT_BYTES]) or slot_bytes, RAM_BYTES: int(options[RAM_BYTES]) or default}
    for name, size in sizes.items():
        if size % _UNIT:
            raise UsageError(f"{name} must be a multiple of {_UNIT}", details=[f"found {size}"])
    simulates = board.emulator is not None and bool(memory) and not board.memories[memory].holds
    kinds = ("native", "bytecode") if options[KINDS] == "both" else (str(options[KINDS]),)
    slots = min(max((_SLOTS if simulates else 1) * default // sizes[SLOT_BYTES], _LEAST_SLOTS), _MOST_SLOTS)
    return AcceptedModules(
        public_keys=(tuple(raw),) if raw else (),
        kinds=kinds,
        takes_unsigned=unsigned,
        slot_bytes=sizes[SLOT_BYTES],
        flash_bytes=slots * sizes[SLOT_BYTES] + _JOURNAL_BYTES,
        ram_bytes=sizes[RAM_BYTES],
        memory=memory,
        simulates_flash=simulates,
    )


def _memory(board: Board) -> str:
    """Return the memory for modules: an otherwise unused one, or that of the arena; "": none."""
    unused = [name for name, memory in board.memories.items() if not memory.holds]
    return max(unused, key=lambda name: board.memories[name].size) if unused else board.region_for("arena") or ""


def _default(whole: int) -> int:
    """Return an eighth of a memory, rounded down to a power of two."""
    size = _MOST_DEFAULT
    while size > max(whole // _PART, _LEAST_DEFAULT):
        size //= 2
    return size


def sources(runtime: str, accepted: AcceptedModules) -> FileTree:
    """Return the runtime's files for modules, beside the folder of the runtime's other sources."""
    crt = resources.path("crt")
    beside = PurePosixPath(runtime).parent
    folders = ["modules", "third_party", *["bytecode"] * ("bytecode" in accepted.kinds)]
    tree = FileTree()
    for name in folders:
        tree = tree.merged(from_folder(crt / name), str(beside / name))
    return tree
