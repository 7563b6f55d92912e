"""The bytes of a module's file (.mtm), which crt/include/mt_module.h describes."""

import hashlib
import re
import struct
from collections import namedtuple
from collections.abc import Callable
from enum import IntEnum, IntFlag
from typing import Final

from pydantic import ValidationError

from mtool.base import records
from mtool.base.errors import CommunicationError, UsageError
from mtool.base.frozen import frozen
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
_NAMES_KEY: Final = 0x100
_KEY_BYTES: Final = 32
SIGNED_BYTES: Final = 208
HEAD_BYTES: Final = 272
ALIGNMENTS: Final = tuple(1 << n for n in range(4, 13))
"""The possible alignments of an image and of an arena: 16 to 4096."""
MOST_TENSORS: Final = 255
MOST_IMPORTS: Final = 1024
MOST_OPERATORS: Final = 0xFFFD
MOST_DESCRIPTION_BYTES: Final = 1 << 16
MOST_BYTES: Final = 1 << 30
"""Of an image, and of an arena."""
_MOST_FILE_BYTES: Final = MOST_BYTES + (1 << 20)
TABLE_ALIGNMENT: Final = 32
"""The alignment of the imports' addresses after the arena, so that a memory protection unit can separate them."""


_Head = namedtuple(
    "_Head",
    "magic file_bytes kind version machine counter alignment image_bytes code_bytes entry inputs outputs imports "
    "operators text_bytes arena_bytes arena_alignment stack_bytes",
)
_NUMBERS: Final = struct.Struct("<4s17I")


class Kind(IntEnum):
    """The kind of an image."""

    NATIVE = 1
    BYTECODE = 2


class OperatorNote(Strict):
    """A host's notes on an operator: its name, a readable label, its multiply-accumulates, its schedule."""

    name: OfModel
    label: str
    macs: int
    schedule: str = ""


class Description(Strict):
    """What a host needs to drive the model without its file. The module holds it as JSON."""

    mtool_version: str
    model_file: OfModel
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    operators: tuple[OperatorNote, ...]
    states: tuple[StateTensor, ...] = ()


@frozen
class Module:
    """A module's file, parsed.

    Attributes:
        kind: the kind of the image.
        machine: the core that it requires (see the end of this file).
        counter: firmware refuses a module whose counter is lower than that of the one it has.
        alignment: of the image, in the file and in the device's memory.
        image: code, then constants.
        code_bytes: the size of the code at the image's start.
        entry: the entry point, an offset in the code.
        imports: hashes of the declarations of the firmware's functions, in the order of the table.
        name: the model's, a C identifier of at most 31 bytes.
        model_hash: SHA-256 of the model's file.
        description: of inputs, outputs, operators and states.
        arena_bytes: the size of the model's working memory.
        arena_alignment: the arena's alignment.
        stack_bytes: the stack that one inference needs; 0: unknown.
        key_id: 8 bytes of the key that signed it; zeros if it is not signed.
        signature: Ed25519; zeros if it is not signed.
        next_key: the public key that replaces the signer's on a device that loads it into flash; empty: none does.
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
    next_key: bytes = b""

    @property
    def is_signed(self) -> bool:
        """Whether it carries a signature (which may be wrong)."""
        return any(self.key_id) or any(self.signature)

    def ram_bytes(self, pointer_bytes: int = 4) -> int:
        """Return the RAM that firmware reserves for it: the arena, the imports' addresses, the table of tensors."""
        tensors = len(self.description.inputs) + len(self.description.outputs)
        return _up(self.arena_bytes, TABLE_ALIGNMENT) + pointer_bytes * (len(self.imports) + 2 * tensors)


def pack(module: Module) -> bytes:
    """Return the bytes of a module, with its key id and signature.

    Raises:
        UsageError: its description is too long.
    """
    text = module.description.model_dump_json(exclude_defaults=True).encode()
    if len(text) > MOST_DESCRIPTION_BYTES:
        raise UsageError(
            f"{module.name} has too many names, scales or initial state values for a module",
            details=[f"expected at most {MOST_DESCRIPTION_BYTES:,} bytes of description, found {len(text):,}"],
        )
    inputs, outputs = module.description.inputs, module.description.outputs
    parts = [struct.pack("<2I", tensor.arena_offset or 0, tensor.bytes) for tensor in (*inputs, *outputs)]
    parts += [struct.pack("<I", value) for value in module.imports]
    contents = b"".join([*parts, text])
    image_at = _up(HEAD_BYTES + len(contents), module.alignment)
    image = module.image + module.next_key
    contents += bytes(image_at - HEAD_BYTES - len(contents)) + image
    kind = module.kind | (_NAMES_KEY if module.next_key else 0)
    numbers = _NUMBERS.pack(*_Head(
        MAGIC, HEAD_BYTES + len(contents), kind, VERSION, module.machine, module.counter, module.alignment,
        len(image), module.code_bytes, module.entry, len(inputs), len(outputs), len(module.imports),
        len(module.description.operators), len(text), module.arena_bytes, module.arena_alignment, module.stack_bytes,
    ))  # fmt: skip
    name = module.name.encode("ascii").ljust(_NAME_BYTES, b"\0")
    head = numbers + name + module.model_hash + hashlib.sha512(contents).digest() + module.key_id + module.signature
    assert len(head) == HEAD_BYTES
    return head + contents


def signed(data: bytes, key_id: bytes, sign: Callable[[bytes], bytes]) -> bytes:
    """Return a signed copy of a module's bytes: `sign` returns the signature of the signed part."""
    head = data[: _KEY_ID.start] + key_id
    return head + sign(head) + data[HEAD_BYTES:]


def size_in(head: bytes) -> int:
    """Return the file size from a header, at most the largest of any module; 0: it is not a module's header."""
    if len(head) < HEAD_BYTES or head[: len(MAGIC)] != MAGIC:
        return 0
    return min(int.from_bytes(head[4:8], "little"), _MOST_FILE_BYTES)


def unpack(data: bytes, what: str = "the module") -> Module:
    """Parse a module from its bytes; its signature is not checked.

    Raises:
        UsageError: the bytes are not a module, are truncated, or hold something that a module can't have.
    """

    def refuse(why: str, *, found: object = None, expected: object = None) -> UsageError:
        details = [] if found is None else [f"found {found}, expected {expected}"]
        return UsageError(f"{what} can't be read: {why}", details=details)

    if data[: len(MAGIC)] != MAGIC:
        raise refuse(f"not a module: it does not begin with {MAGIC.decode()}")
    if len(data) < HEAD_BYTES:
        raise refuse("the file is too short for a header", found=f"{len(data)} bytes", expected=f"{HEAD_BYTES} or more")
    head = _Head(*_NUMBERS.unpack_from(data))
    if head.version != VERSION:
        raise refuse("unknown version of the format", found=head.version, expected=VERSION)
    kind, key_bytes = head.kind & ~_NAMES_KEY, _KEY_BYTES if head.kind & _NAMES_KEY else 0
    if kind not in list(Kind):
        raise refuse("unknown kind of module", found=head.kind, expected="1 or 2")
    alignments = head.alignment, head.arena_alignment
    if not {*alignments} <= {*ALIGNMENTS}:
        raise refuse("wrong alignments of image and arena", found=alignments, expected="16 to 4096, a power of two")
    for count, most, of in (
        (head.inputs, MOST_TENSORS, "inputs"), (head.outputs, MOST_TENSORS, "outputs"),
        (head.imports, MOST_IMPORTS, "imports"), (head.operators, MOST_OPERATORS, "operators"),
        (head.text_bytes, MOST_DESCRIPTION_BYTES, "bytes of description"),
        (head.image_bytes, MOST_BYTES, "bytes of image"), (head.arena_bytes, MOST_BYTES, "bytes of arena"),
    ):  # fmt: skip
        if count > most:
            raise refuse(f"too many {of}", found=count, expected=f"at most {most}")
    imports_at = HEAD_BYTES + 8 * (head.inputs + head.outputs)
    text_at = imports_at + 4 * head.imports
    image_at = _up(text_at + head.text_bytes, head.alignment)
    size = image_at + head.image_bytes
    if head.file_bytes != size:
        raise refuse("the size in its header is wrong", found=f"{head.file_bytes} bytes", expected=f"{size}")
    if len(data) != size:
        raise refuse("the file's size is wrong", found=f"{len(data)} bytes", expected=f"{size}")
    image_end = size - key_bytes
    if head.code_bytes > image_end - image_at or head.entry >= max(head.code_bytes, 1):
        expected = f"below {head.code_bytes}"
        raise refuse("its entry point or its code is outside of its image", found=head.entry, expected=expected)
    if hashlib.sha512(data[HEAD_BYTES:]).digest() != data[_CONTENTS_HASH]:
        raise refuse("the file is damaged: its contents do not match the hash in its header")
    name, _, rest = data[_NAME].partition(b"\0")
    if not name or any(rest) or not name.decode("latin-1").isidentifier() or not name.isascii():
        raise refuse("its name is invalid", found=data[_NAME], expected="a C identifier of at most 31 bytes")
    try:
        description = Description.model_validate_json(data[text_at : text_at + head.text_bytes])
    except ValidationError as error:
        raise refuse(f"its description is malformed: {'; '.join(records.lines(error))}") from None
    tensors = (*description.inputs, *description.outputs)
    places = [struct.unpack_from("<2I", data, HEAD_BYTES + 8 * number) for number in range(head.inputs + head.outputs)]
    if [(tensor.arena_offset, tensor.bytes) for tensor in tensors] != places or len(description.inputs) != head.inputs:
        raise refuse("its description does not match its table of tensors")
    if any(offset + size > head.arena_bytes for offset, size in places):
        raise refuse("a tensor is outside of the arena")
    if len(description.operators) != head.operators:
        raise refuse("wrong number of operators", found=len(description.operators), expected=head.operators)
    return Module(
        kind=Kind(kind), machine=head.machine, counter=head.counter, alignment=head.alignment,
        image=data[image_at:image_end], code_bytes=head.code_bytes, entry=head.entry,
        imports=struct.unpack_from(f"<{head.imports}I", data, imports_at), name=name.decode("ascii"),
        model_hash=data[_MODEL_HASH], description=description, arena_bytes=head.arena_bytes,
        arena_alignment=head.arena_alignment, stack_bytes=head.stack_bytes, key_id=data[_KEY_ID],
        signature=data[_SIGNATURE], next_key=data[image_end:],
    )  # fmt: skip


def _up(number: int, alignment: int) -> int:
    return -(-number // alignment) * alignment


# A module names a function of the firmware by a hash of its declaration.


_OFFSET, _PRIME = 0x811C9DC5, 0x01000193


def declaration_hash(declaration: str) -> int:
    """Return FNV-1a, 32 bits, of a C declaration: "float expf(float)"."""
    value = _OFFSET
    for byte in declaration.encode("ascii"):
        value = (value ^ byte) * _PRIME & 0xFFFFFFFF
    return value


# What a device reports about a loaded module, read piece by piece: the header and the description, not the image.


@frozen
class Interface:
    """What a host needs to know about a device's module: the model's name, hash and description; counter and sizes."""

    name: str
    model_hash: str
    description: Description
    counter: int
    arena_bytes: int
    code_bytes: int
    constant_bytes: int


def read(fetch: Callable[[int, int], bytes]) -> Interface:
    """Return the interface of a module; `fetch` returns a number of bytes of its file from an offset on.

    Raises:
        CommunicationError: the fetched bytes are not a module's.
    """
    data = fetch(0, HEAD_BYTES)
    if data[: len(MAGIC)] != MAGIC:
        raise CommunicationError("the device's module has no valid header")
    head = _Head(*_NUMBERS.unpack_from(data))
    is_small = head.imports <= MOST_IMPORTS and head.text_bytes <= MOST_DESCRIPTION_BYTES
    if max(head.inputs, head.outputs) > MOST_TENSORS or not is_small:
        raise CommunicationError("the device's module exceeds a limit of the format")
    try:
        text = fetch(HEAD_BYTES + 8 * (head.inputs + head.outputs) + 4 * head.imports, head.text_bytes)
        description = Description.model_validate_json(text)
    except ValidationError as error:
        raise CommunicationError(
            "this mtool can't read the description of the device's module", details=records.lines(error, 5)
        ) from None
    counts = (len(description.inputs), len(description.outputs), len(description.operators))
    if counts != (head.inputs, head.outputs, head.operators):
        raise CommunicationError("the description of the device's module does not match its header")
    name, constant_bytes = data[_NAME].partition(b"\0")[0], max(head.image_bytes - head.code_bytes, 0)
    return Interface(
        name.decode("ascii", "replace"), data[_MODEL_HASH].hex(), description, head.counter, head.arena_bytes,
        head.code_bytes, constant_bytes,
    )  # fmt: skip


# A module's requirements on the core and its ABI, as one number: crt/include/mt_module.h has the same list.


class Architecture(IntEnum):
    """Bits 0 to 7. An Arm core also runs code for those below its own, except for MVE and what a flag requires."""

    ANY = 0
    ARMV6M = 1
    ARMV7M = 2
    ARMV7EM = 3
    ARMV8M_BASE = 4
    ARMV8M_MAIN = 5
    ARMV81M_MAIN = 6
    RV32 = 16


class Needs(IntFlag):
    """Bits 8 to 31. HARD_FLOAT is the ABI, and must equal the firmware's; the firmware may have more of the others."""

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
    """Return a machine as text: "ARMV7EM, HARD_FLOAT, FPU, DSP"."""
    names = {architecture.value: architecture.name for architecture in Architecture}
    number = machine & ARCHITECTURE_BITS
    flags = [need.name for need in Needs if machine & need and need.name]
    rest = machine & ~ARCHITECTURE_BITS & ~sum(Needs)
    return ", ".join([names.get(number, f"architecture {number}"), *flags, *([f"0x{rest:x}"] if rest else [])])


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
    """Return the machine from a compiler's macros (`-dM -E`), as mt_module_machine does; 0: an unsupported one."""
    macros = dict(_DEFINE.findall(text))

    def number(name: str) -> int:
        return int(macros.get(name, "0").rstrip("UL") or "1", 0)

    architectures = [architecture for name, architecture in _ARCHITECTURES.items() if name in macros]
    if "__riscv" in macros and number("__riscv_xlen") == 32:
        architectures = [Architecture.RV32]
    if not architectures:
        return Architecture.ANY
    arm_fp, mve, flen = number("__ARM_FP"), number("__ARM_FEATURE_MVE"), number("__riscv_flen")
    hard = {"__ARM_PCS_VFP", "__riscv_float_abi_single", "__riscv_float_abi_double"}
    needs = {
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
    return architectures[0] | sum(need for need, is_so in needs.items() if is_so)


def runs(core: int, machine: int) -> bool:
    """Return whether firmware for a core and an ABI accepts code for a machine; mt_module.c decides alike."""
    firmware, code = core & ARCHITECTURE_BITS, machine & ARCHITECTURE_BITS
    if code == Architecture.ANY:
        return machine == Architecture.ANY
    both_arm = max(firmware, code) < Architecture.RV32
    older = both_arm and code < firmware and (firmware != Architecture.ARMV8M_BASE or code == Architecture.ARMV6M)
    needs = machine & ~core & ~ARCHITECTURE_BITS
    return (code == firmware or older) and not (core ^ machine) & Needs.HARD_FLOAT and not needs
