"""The bytes of a module's file (.mtm). docs/modules.md has the table, crt/include/mt_module.h the other side."""

import hashlib
import re
import struct
from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Final

from pydantic import ValidationError

from mtool.base import records
from mtool.base.errors import CommunicationError, UsageError
from mtool.base.records import Strict
from mtool.manifest import OfModel, StateTensor, Tensor

MAGIC: Final = b"MTM1"
VERSION: Final = 1
SUFFIX: Final = ".mtm"
_NAME_BYTES: Final = 32
_NAME: Final = slice(72, 104)
_MODEL_HASH: Final = slice(104, 136)
_CONTENTS_HASH: Final = slice(136, 200)
_KEY_ID: Final = slice(200, 208)
_SIGNATURE: Final = slice(208, 272)
SIGNED_BYTES: Final = 208
HEAD_BYTES: Final = 272
ALIGNMENTS: Final = tuple(1 << n for n in range(4, 13))
"""What an image, and an arena, may be aligned to: 16 to 4096."""
MOST_TENSORS: Final = 255
MOST_IMPORTS: Final = 1024
MOST_OPERATORS: Final = 0xFFFD
MOST_DESCRIPTION_BYTES: Final = 1 << 16
MOST_BYTES: Final = 1 << 30
"""Of an image, and of an arena."""
_MOST_FILE_BYTES: Final = MOST_BYTES + (1 << 20)
TABLE_ALIGNMENT: Final = 32
"""Of the imports' addresses behind the arena, so that a memory protection unit can tell them apart."""


_Head = namedtuple(
    "_Head",
    "magic file_bytes kind version machine counter alignment image_bytes code_bytes entry inputs outputs imports "
    "operators text_bytes arena_bytes arena_alignment stack_bytes",
)
_NUMBERS: Final = struct.Struct("<4s17I")


class Kind(IntEnum):
    """What an image is."""

    NATIVE = 1
    BYTECODE = 2


class OperatorNote(Strict):
    """What a host says of an operator: its name, what a person calls it, its multiply-accumulates, its schedule."""

    name: OfModel
    label: str
    macs: int
    schedule: str = ""


class Description(Strict):
    """What a host needs to drive the model without its file. It stands in the module as JSON."""

    mtool_version: str
    model_file: OfModel
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    operators: tuple[OperatorNote, ...]
    states: tuple[StateTensor, ...] = ()


@dataclass(frozen=True, slots=True)
class Module:
    """A module's file, taken apart.

    Attributes:
        kind: what the image is.
        machine: what it needs of a core (mtool.manifest.modules.format).
        counter: firmware refuses a module whose counter is less than the one that it has.
        alignment: of the image, in the file and in the device's memory.
        image: code, then constants.
        code_bytes: of the image, those that are code.
        entry: where in the code it is entered.
        imports: hashes of the declarations of the firmware's functions, in the order of the table.
        name: the model's, an identifier of C of at most 31 bytes.
        model_hash: SHA-256 of the model's file.
        description: of inputs, outputs, operators and states.
        arena_bytes: the model's own memory.
        arena_alignment: of that.
        stack_bytes: that one inference needs; 0: not known.
        key_id: of the key that signed it, 8 bytes; zeros: nothing has.
        signature: Ed25519; zeros where nothing signed it.
    """

    kind: Kind
    machine: int
    counter: int
    alignment: int
    image: bytes
    code_bytes: int
    entry: int
    imports: tuple[int, ...]
    name: str
    model_hash: bytes
    description: Description
    arena_bytes: int
    arena_alignment: int
    stack_bytes: int
    key_id: bytes = bytes(8)
    signature: bytes = bytes(64)

    @property
    def is_signed(self) -> bool:
        """Whether it says that a key has signed it."""
        return any(self.key_id) or any(self.signature)

    def ram_bytes(self, pointer_bytes: int = 4) -> int:
        """Return the RAM that firmware gives it: the arena, the imports' addresses, the table of tensors."""
        tensors = len(self.description.inputs) + len(self.description.outputs)
        return _up(self.arena_bytes, TABLE_ALIGNMENT) + pointer_bytes * (len(self.imports) + 2 * tensors)


def pack(module: Module) -> bytes:
    """Return the bytes of a module with the key id and the signature that it has.

    Raises:
        UsageError: its description is too long.
    """
    text = module.description.model_dump_json(exclude_defaults=True).encode()
    if len(text) > MOST_DESCRIPTION_BYTES:
        raise UsageError(
            f"{module.name} has too many names, scales or initial values of states for a module",
            details=[f"expected at most {MOST_DESCRIPTION_BYTES:,} bytes of description, found {len(text):,}"],
        )
    inputs, outputs = module.description.inputs, module.description.outputs
    parts = [struct.pack("<2I", one.arena_offset or 0, one.bytes) for one in (*inputs, *outputs)]
    parts += [struct.pack("<I", value) for value in module.imports]
    contents = b"".join([*parts, text])
    image_at = _up(HEAD_BYTES + len(contents), module.alignment)
    contents += bytes(image_at - HEAD_BYTES - len(contents)) + module.image
    numbers = _NUMBERS.pack(*_Head(
        MAGIC, HEAD_BYTES + len(contents), module.kind, VERSION, module.machine, module.counter, module.alignment,
        len(module.image), module.code_bytes, module.entry, len(inputs), len(outputs), len(module.imports),
        len(module.description.operators), len(text), module.arena_bytes, module.arena_alignment, module.stack_bytes,
    ))  # fmt: skip
    name = module.name.encode("ascii").ljust(_NAME_BYTES, b"\0")
    head = numbers + name + module.model_hash + hashlib.sha512(contents).digest() + module.key_id + module.signature
    assert len(head) == HEAD_BYTES
    return head + contents


def signed(data: bytes, key_id: bytes, sign: Callable[[bytes], bytes]) -> bytes:
    """Return the bytes of a module signed: `sign` gives the signature of what is before it."""
    head = data[: _KEY_ID.start] + key_id
    return head + sign(head) + data[HEAD_BYTES:]


def size_in(head: bytes) -> int:
    """Return the bytes that a head says its file has, at most those of any; 0: it is no module's head."""
    if len(head) < HEAD_BYTES or head[: len(MAGIC)] != MAGIC:
        return 0
    return min(int.from_bytes(head[4:8], "little"), _MOST_FILE_BYTES)


def unpack(data: bytes, what: str = "the module") -> Module:
    """Return a module from its bytes; its signature is not looked at.

    Raises:
        UsageError: the bytes are no module, are cut, or hold what no module may.
    """

    def refuse(why: str, *, found: object = None, expected: object = None) -> UsageError:
        details = [] if found is None else [f"found {found}, expected {expected}"]
        return UsageError(f"{what} is no module that can be read: {why}", details=details)

    if data[: len(MAGIC)] != MAGIC:
        raise refuse(f"it does not begin with {MAGIC.decode()}")
    if len(data) < HEAD_BYTES:
        raise refuse("it is shorter than a head", found=f"{len(data)} bytes", expected=f"{HEAD_BYTES} or more")
    head = _Head(*_NUMBERS.unpack_from(data))
    if head.version != VERSION:
        raise refuse("it is of another version of the format", found=head.version, expected=VERSION)
    if head.kind not in list(Kind):
        raise refuse("its kind is unknown", found=head.kind, expected="1 or 2")
    alignments = head.alignment, head.arena_alignment
    if not {*alignments} <= {*ALIGNMENTS}:
        raise refuse("an alignment is none", found=alignments, expected="16 to 4096, a power of two")
    for count, most, of in (
        (head.inputs, MOST_TENSORS, "inputs"), (head.outputs, MOST_TENSORS, "outputs"),
        (head.imports, MOST_IMPORTS, "imports"), (head.operators, MOST_OPERATORS, "operators"),
        (head.text_bytes, MOST_DESCRIPTION_BYTES, "bytes of description"),
        (head.image_bytes, MOST_BYTES, "bytes of image"), (head.arena_bytes, MOST_BYTES, "bytes of arena"),
    ):  # fmt: skip
        if count > most:
            raise refuse(f"it has too many {of}", found=count, expected=f"at most {most}")
    imports_at = HEAD_BYTES + 8 * (head.inputs + head.outputs)
    text_at = imports_at + 4 * head.imports
    image_at = _up(text_at + head.text_bytes, head.alignment)
    size = image_at + head.image_bytes
    if head.file_bytes != size:
        raise refuse("its head gives a wrong size", found=f"{head.file_bytes} bytes", expected=f"{size}")
    if len(data) != size:
        raise refuse("its size is wrong", found=f"{len(data)} bytes", expected=f"{size}")
    if head.code_bytes > head.image_bytes or head.entry >= max(head.code_bytes, 1):
        expected = f"below {head.code_bytes}"
        raise refuse("its entry or its code lies outside of its image", found=head.entry, expected=expected)
    if hashlib.sha512(data[HEAD_BYTES:]).digest() != data[_CONTENTS_HASH]:
        raise refuse("its contents have another hash than its head says; it is damaged")
    name, _, rest = data[_NAME].partition(b"\0")
    if not name or any(rest) or not name.decode("latin-1").isidentifier() or not name.isascii():
        raise refuse("its name is no name", found=data[_NAME], expected="a C identifier of at most 31 bytes")
    try:
        description = Description.model_validate_json(data[text_at : text_at + head.text_bytes])
    except ValidationError as error:
        raise refuse(f"its description is malformed: {'; '.join(records.lines(error))}") from None
    tensors = (*description.inputs, *description.outputs)
    places = [struct.unpack_from("<2I", data, HEAD_BYTES + 8 * number) for number in range(head.inputs + head.outputs)]
    if [(one.arena_offset, one.bytes) for one in tensors] != places or len(description.inputs) != head.inputs:
        raise refuse("its description and its table of tensors differ")
    if any(offset + size > head.arena_bytes for offset, size in places):
        raise refuse("a tensor lies outside of the arena")
    if len(description.operators) != head.operators:
        raise refuse("operators are missing", found=len(description.operators), expected=head.operators)
    return Module(
        kind=Kind(head.kind), machine=head.machine, counter=head.counter, alignment=head.alignment,
        image=data[image_at:], code_bytes=head.code_bytes, entry=head.entry,
        imports=struct.unpack_from(f"<{head.imports}I", data, imports_at), name=name.decode("ascii"),
        model_hash=data[_MODEL_HASH], description=description, arena_bytes=head.arena_bytes,
        arena_alignment=head.arena_alignment, stack_bytes=head.stack_bytes, key_id=data[_KEY_ID],
        signature=data[_SIGNATURE],
    )  # fmt: skip


def _up(number: int, alignment: int) -> int:
    return -(-number // alignment) * alignment


# How a module names a function of the firmware: by a hash of its declaration.


_OFFSET, _PRIME = 0x811C9DC5, 0x01000193


def declaration_hash(declaration: str) -> int:
    """Return FNV-1a, 32 bits, of a C declaration as docs/modules.md writes it: "float expf(float)"."""
    value = _OFFSET
    for byte in declaration.encode("ascii"):
        value = (value ^ byte) * _PRIME & 0xFFFFFFFF
    return value


# What a device says of a module that it has, read piece by piece: the head, and the description, not the image.


@dataclass(frozen=True, slots=True)
class Interface:
    """What a host needs of a module on a device: the model's name, hash and description; counter and sizes."""

    name: str
    model_hash: str
    description: Description
    counter: int
    arena_bytes: int
    code_bytes: int
    constant_bytes: int


def read(fetch: Callable[[int, int], bytes]) -> Interface:
    """Return the interface of a module; `fetch` returns so many bytes of its file from an offset on.

    Raises:
        CommunicationError: what is fetched is no module's.
    """
    data = fetch(0, HEAD_BYTES)
    if data[: len(MAGIC)] != MAGIC:
        raise CommunicationError("the device has a module that does not begin like one")
    head = _Head(*_NUMBERS.unpack_from(data))
    is_small = head.imports <= MOST_IMPORTS and head.text_bytes <= MOST_DESCRIPTION_BYTES
    if max(head.inputs, head.outputs) > MOST_TENSORS or not is_small:
        raise CommunicationError("the device has a module with more of something than any may have")
    try:
        text = fetch(HEAD_BYTES + 8 * (head.inputs + head.outputs) + 4 * head.imports, head.text_bytes)
        description = Description.model_validate_json(text)
    except ValidationError as error:
        raise CommunicationError(
            "the device has a module whose description this mtool does not know", details=records.lines(error, 5)
        ) from None
    counts = (len(description.inputs), len(description.outputs), len(description.operators))
    if counts != (head.inputs, head.outputs, head.operators):
        raise CommunicationError("the device has a module whose description and head differ")
    name, constant_bytes = data[_NAME].partition(b"\0")[0], max(head.image_bytes - head.code_bytes, 0)
    return Interface(
        name.decode("ascii", "replace"), data[_MODEL_HASH].hex(), description, head.counter, head.arena_bytes,
        head.code_bytes, constant_bytes,
    )  # fmt: skip


# What a module's code needs of a core and its ABI, as one number: crt/include/mt_module.h has the same list.


class Architecture(IntEnum):
    """Bits 0 to 7. Of Arm's, a core runs those below its own too, but for MVE and what a flag says."""

    ANY = 0
    ARMV6M = 1
    ARMV7M = 2
    ARMV7EM = 3
    ARMV8M_BASE = 4
    ARMV8M_MAIN = 5
    ARMV81M_MAIN = 6
    RV32 = 16


class Needs(IntFlag):
    """Bits 8 to 31. HARD_FLOAT is the ABI, and has to be the firmware's; the others it may have besides."""

    HARD_FLOAT = 0x100
    FPU = 0x10000
    DOUBLE = 0x20000
    DSP = 0x40000
    MVE = 0x80000
    MVE_FLOAT = 0x100000
    RV_M = 0x200000
    RV_C = 0x400000
    RV_VECTOR = 0x800000


ARCHITECTURE_BITS = 0xFF


def describe(machine: int) -> str:
    """Return a machine as a person writes it: "ARMV7EM, HARD_FLOAT, FPU, DSP"."""
    known = {one.value: one.name for one in Architecture}
    number = machine & ARCHITECTURE_BITS
    flags = [one.name for one in Needs if machine & one and one.name]
    rest = machine & ~ARCHITECTURE_BITS & ~sum(Needs)
    return ", ".join([known.get(number, f"architecture {number}"), *flags, *([f"0x{rest:x}"] if rest else [])])


_ARCHITECTURES = {
    "__ARM_ARCH_6M__": Architecture.ARMV6M,
    "__ARM_ARCH_7M__": Architecture.ARMV7M,
    "__ARM_ARCH_7EM__": Architecture.ARMV7EM,
    "__ARM_ARCH_8M_BASE__": Architecture.ARMV8M_BASE,
    "__ARM_ARCH_8M_MAIN__": Architecture.ARMV8M_MAIN,
    "__ARM_ARCH_8_1M_MAIN__": Architecture.ARMV81M_MAIN,
}
_DEFINE = re.compile(r"^#define (\w+) ?(.*)$", re.MULTILINE)


def of_macros(text: str) -> int:
    """Return the machine that a compiler's macros (`-dM -E`) tell of, as mt_module_machine does; 0: none of those."""
    macros = dict(_DEFINE.findall(text))

    def number(name: str) -> int:
        return int(macros.get(name, "0").rstrip("UL") or "1", 0)

    found = [one for name, one in _ARCHITECTURES.items() if name in macros]
    if "__riscv" in macros and number("__riscv_xlen") == 32:
        found = [Architecture.RV32]
    if not found:
        return Architecture.ANY
    arm_fp, mve, flen = number("__ARM_FP"), number("__ARM_FEATURE_MVE"), number("__riscv_flen")
    hard = {"__ARM_PCS_VFP", "__riscv_float_abi_single", "__riscv_float_abi_double"}
    told = {
        Needs.HARD_FLOAT: bool(hard & {*macros}),
        Needs.FPU: bool(arm_fp & 4) or flen > 0,
        Needs.DOUBLE: bool(arm_fp & 8) or flen >= 64,
        Needs.DSP: "__ARM_FEATURE_DSP" in macros,
        Needs.MVE: bool(mve & 1),
        Needs.MVE_FLOAT: bool(mve & 2),
        Needs.RV_M: "__riscv_mul" in macros,
        Needs.RV_C: "__riscv_compressed" in macros,
        Needs.RV_VECTOR: "__riscv_vector" in macros or "MT_RVV" in macros,
    }
    return found[0] | sum(need for need, is_so in told.items() if is_so)


def runs(core: int, machine: int) -> bool:
    """Whether firmware of a core and an ABI takes code for a machine; mt_module.c decides alike."""
    own, wanted = core & ARCHITECTURE_BITS, machine & ARCHITECTURE_BITS
    if wanted == Architecture.ANY:
        return machine == Architecture.ANY
    both_arm = max(own, wanted) < Architecture.RV32
    older = both_arm and wanted < own and (own != Architecture.ARMV8M_BASE or wanted == Architecture.ARMV6M)
    needs = machine & ~core & ~ARCHITECTURE_BITS
    return (wanted == own or older) and not (core ^ machine) & Needs.HARD_FLOAT and not needs
