"""Make a module from a model, sign it, and read module files."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from mtool import boards
from mtool.base import files
from mtool.base.errors import UsageError, of_os_error
from mtool.base.escaping import encodable
from mtool.base.filetree import FileTree
from mtool.base.option_table import OPTIONS
from mtool.base.plural import count
from mtool.boards import Board
from mtool.compiler.codegen.conventions import Conventions
from mtool.compiler.frontend.hashing import file_hash
from mtool.manifest import Manifest
from mtool.manifest.delta import MOST_BYTES, delta_by_parts
from mtool.manifest.modules.format import (
    HEAD_BYTES,
    SIGNED_BYTES,
    Architecture,
    Description,
    Kind,
    Module,
    OperatorNote,
    pack,
    signed,
    size_in,
    unpack,
)
from mtool.stages.compiling import CompiledModel, compile
from mtool.stages.formatting import tensor
from mtool.stages.options import Options, schedule_choices
from mtool.version import __version__

if TYPE_CHECKING:
    from mtool.manifest.modules.keys import ExternalKey, PrivateKey, PublicKey

# A module that updates an earlier one: the same interface, if possible the same code, other weights.


log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ModuleUpdate:
    """The difference between a module and an earlier one.

    Attributes:
        delta_bytes: the bytes sent to a device that has the earlier one, without header; 0: the files are too large.
        parts: the delta's bytes for names and the interface, for the code, and for the constants.
        has_same_code: whether the code is identical.
    """

    delta_bytes: int
    parts: tuple[int, int, int]
    has_same_code: bool

    def describe(self) -> str:
        """Return it as text."""
        about, code, constants = self.parts
        same = ", which is unchanged" if self.has_same_code else ""
        if not self.delta_bytes:
            return "too large for a delta"
        return (
            f"a delta of {self.delta_bytes:,} B: {constants:,} for the constants, {code:,} for the code{same}, "
            f"{about:,} for names and the interface"
        )


def options_since(old: Module, options: Options, counter: int | None) -> tuple[Options, int]:
    """Return the options and counter of a module that updates another: the earlier one's, unless others are given.

    Raises:
        UsageError: the counter is below the earlier one's, so that a device would refuse the module.
    """
    if counter is not None and counter < old.counter:
        raise UsageError(
            f"--counter {counter} is below the counter of the --since module ({old.counter})",
            details=[f"expected {old.counter} or more"],
            hint=f"leave --counter out to keep {old.counter}",
        )
    return replace(options, name=options.name or old.name), old.counter if counter is None else counter


def with_schedules_of(old: Module, model: CompiledModel, compile: Callable[[Options], CompiledModel]) -> CompiledModel:
    """Return a model compiled with the schedules of an earlier module, where others were chosen for the new weights.

    Schedules that the user names stay. If an earlier schedule can't compute the new weights, a warning says so, and the
    model is returned unchanged.
    """
    before = {operator.name: operator.schedule for operator in old.description.operators if operator.schedule}
    others = {
        one.name: before[one.name]
        for one in model.manifest.operators
        if one.name in before and one.name not in model.options.schedules and before[one.name] != one.schedule
    }
    if not others:
        return model
    try:
        choices = schedule_choices([f"{name}={schedule}" for name, schedule in others.items()])
        again = compile(replace(model.options, schedules={**choices, **model.options.schedules}))
    except UsageError as refused:
        log.warning("the code changes: the earlier schedules can't compute the new weights: %s", refused.what)
        return model
    log.info("  %-9s          %s as before: %s", "schedules", count(len(others), "operator"), ", ".join(others))
    return again


def check_kind(old: Module, kind: Kind) -> None:
    """Refuse a module of another kind than the one that it updates: no code would stay the same.

    Raises:
        UsageError: one is native and the other bytecode.
    """
    if old.kind != kind:
        raise UsageError(
            f"the --since module is {old.kind.name.lower()}, but this one is {kind.name.lower()}",
            hint="give --bytecode" if old.kind == Kind.BYTECODE else "leave --bytecode out",
        )


def check_interface(old: Description, new: Description) -> None:
    """Check that callers of an earlier module can call the new one.

    Raises:
        UsageError: an input or output is missing, or has another name, type or shape.
    """
    for what, before, after in (("inputs", old.inputs, new.inputs), ("outputs", old.outputs, new.outputs)):
        expected, actual = ([(one.name, one.dtype, tuple(one.shape)) for one in some] for some in (before, after))
        if expected != actual:
            texts = [", ".join(f"{one.name}: {tensor(one)}" for one in some) or "none" for some in (before, after)]
            raise UsageError(
                f"the {what} differ from those of the --since module",
                details=[f"expected  {texts[0]}", f"found     {texts[1]}"],
                hint="without --since it is an independent module, which can also be loaded",
            )
        for was, now in zip(before, after, strict=True):
            if (was.scale, was.zero_point) != (now.scale, now.zero_point):
                log.warning("%s: the quantization has changed; callers must use the new scale and zero point", now.name)


def update_between(old: tuple[Module, bytes], new: tuple[Module, bytes]) -> ModuleUpdate:
    """Return the difference between a module and an earlier one, each given with the bytes of its file."""
    (before, old_data), (after, data) = old, new
    has_same_code = before.image[: before.code_bytes] == after.image[: after.code_bytes]
    if max(len(old_data), len(data)) > MOST_BYTES:
        return ModuleUpdate(0, (0, 0, 0), has_same_code)
    about = len(data) - HEAD_BYTES - len(after.image)
    delta, parts = delta_by_parts(old_data[HEAD_BYTES:], data[HEAD_BYTES:], (about, about + after.code_bytes))
    names, code, constants = parts
    return ModuleUpdate(len(delta), (names, code, constants), has_same_code)


_MOST_COUNTER = (1 << 32) - 1
_ALIGNMENT = 16  # of an image; the least alignment of an arena
_NAME_BYTES = 31


@dataclass(frozen=True, slots=True)
class ModuleFile:
    """A module as a file.

    Attributes:
        module: the module.
        data: the bytes of its file.
        linked: functions of the compiler's library that it contains.
    """

    module: Module
    data: bytes
    linked: tuple[str, ...] = ()


def make_module(
    path: str | Path,
    *,
    board: str | Board,
    options: Options | None = None,
    key: Path | None = None,
    counter: int = 0,
    since: Module | None = None,
    signer: str | None = None,
    next_key: Path | None = None,
) -> ModuleFile:
    """Compile a model to a native module for firmware on a board; nothing is written.

    Args:
        path: the model.
        board: a board or its name.
        options: how to compile it.
        key: the private key to sign it with; None: it is not signed.
        counter: 0 to 4,294,967,295: firmware refuses a module with a counter below that of the one it has.
        since: the module that this one updates with other weights; its code stays the same if possible.
        signer: a command that signs instead of a private key; `key` is then the public one.
        next_key: the public key that replaces the signer's on a device that loads the module into flash.

    Raises:
        UsageError: the counter, the key or an option is invalid for modules, the board does not support modules, or the
            interface differs from that of `since`.
        ModelError: the model can't be compiled.
        BuildError: the compiler is missing or fails, or the code can't be a module.
    """
    from mtool import project
    from mtool.base import filetree, resources
    from mtool.device.build import module_image
    from mtool.manifest.modules import entry
    from mtool.manifest.modules.exports import EXPORTS
    from mtool.project.levels import levels_of

    target = boards.get(board) if isinstance(board, str) else board
    module_image.check_board(target)
    # In which memory the device stores a module is unknown, and it has no variables: nothing is copied to RAM.
    memories = {name: memory.model_copy(update={"reads": None}) for name, memory in target.memories.items()}
    target = target.model_copy(update={"memories": memories})
    sign, start = signer_of(key, counter, signer), time.monotonic()
    chosen = _for_a_module(_unguarded(options))
    model = compile(path, board=target, options=chosen)
    _check(model.manifest.model, Kind.NATIVE, description_of(model.manifest), since)
    if since is not None:
        model = with_schedules_of(since, model, lambda turned: compile(path, board=target, options=turned))
    manifest = model.manifest
    call = FileTree({entry.FILE_NAME: entry.source(manifest).encode()})
    headers = filetree.from_folder(resources.path("crt") / "include")
    sources = FileTree({**call.files, **{name: headers[name] for name in project.runtime_headers([call], headers)}})
    level = "-O2"
    if chosen.template or target.templates:  # as in the board's project
        level = str(project.choose(target, chosen.template, chosen.of_template(target))[1].get("opt", level))
    levels = levels_of(model.files, manifest.model)
    image = module_image.link(model.sources().merged(sources), target, levels, level)
    header = model.files.text(f"{manifest.model}.h")
    arena_alignment = next(
        line.split()[-1] for line in header.splitlines() if "_ARENA_ALIGNMENT" in line and "#define" in line
    )
    module = Module(
        kind=Kind.NATIVE,
        machine=image.machine,
        counter=counter,
        alignment=image.alignment,
        image=image.data,
        code_bytes=image.code_bytes,
        entry=image.entry,
        imports=tuple(EXPORTS[name].hash for name in image.imports),
        name=manifest.model,
        model_hash=bytes.fromhex(manifest.model_hash),
        description=description_of(manifest),
        arena_bytes=manifest.arena_bytes,
        arena_alignment=max(_ALIGNMENT, int(arena_alignment)),
        stack_bytes=image.stack_bytes,
        next_key=_next_key(sign, next_key),
    )
    return _module_file(module, sign, "module", start, image.linked)


def _module_file(
    module: Module, signer: "PrivateKey | ExternalKey | None", what: str, start: float, linked: tuple[str, ...] = ()
) -> ModuleFile:
    log.info("  %-9s %4.1f s   %s B", what, time.monotonic() - start, f"{len(module.image):,}")
    data = sealed(module, signer)
    return ModuleFile(unpack(data), data, linked)


def sealed(module: Module, signer: "PrivateKey | ExternalKey | None") -> bytes:
    """Return the bytes of a module, signed with a key if there is one."""
    data = pack(module)
    return data if signer is None else signed(data, signer.public.key_id, signer.sign)


def write_module(module: ModuleFile, output: Path) -> None:
    """Write a module's file.

    Raises:
        UsageError: it can't be written.
    """
    files.write(output, module.data, follow=True)


def read_module(path: Path) -> tuple[Module, bytes]:
    """Read a module's file; return the module and its bytes.

    Raises:
        UsageError: the file does not exist, or is not a module.
    """
    if path.exists() and not path.is_file():  # opening a pipe would block
        raise UsageError(f"{path} is not a file", details=["expected a module (.mtm), as mtool module writes it"])
    try:
        with path.open("rb") as file:
            data = file.read(HEAD_BYTES)
            data += file.read(max(0, size_in(data) - len(data)) + 1)  # a surplus byte is reported by unpack
    except OSError as failed:
        raise of_os_error(failed, f"{path} can't be read") from None
    return unpack(data, str(path)), data


def is_signed_by(data: bytes, key: "PublicKey") -> bool:
    """Whether a module's bytes are signed with a key; `unpack` has checked the hash of its contents."""
    module = unpack(data)
    return module.key_id == key.key_id and key.has_signed(data[:SIGNED_BYTES], module.signature)


def description_of(manifest: Manifest) -> Description:
    """Return the part of a manifest that a host needs to drive the model."""
    return Description(
        mtool_version=__version__,
        model_file=manifest.model_file,
        inputs=manifest.inputs,
        outputs=manifest.outputs,
        operators=tuple(
            OperatorNote(name=operator.name, label=operator.label, macs=operator.macs, schedule=operator.schedule)
            for operator in manifest.operators
        ),
        states=manifest.states,
    )


def _check(name: str, kind: Kind, description: Description, since: Module | None) -> None:
    """Refuse a model's name that is too long for a module, and a module that can't update an earlier one.

    Raises:
        UsageError: the name is too long, or the kind or interface differs from that of `since`.
    """
    if len(name) > _NAME_BYTES:
        raise UsageError(
            f"model name too long for a module: {name}",
            details=[f"expected at most {_NAME_BYTES} characters, found {len(name)}"],
            hint="give it a shorter name: --name NAME",
        )
    if since is not None:
        check_kind(since, kind)
        check_interface(since.description, description)


def signer_of(key: Path | None, counter: int = 0, command: str | None = None) -> "PrivateKey | ExternalKey | None":
    """Return the private key in a file, or that of a command whose public key is in the file; None without a file.

    Raises:
        UsageError: the file has no such key, or the module's counter is negative or too large.
    """
    if not 0 <= counter <= _MOST_COUNTER:
        raise UsageError(f"--counter {counter} is out of range", details=[f"expected 0 to {_MOST_COUNTER}"])
    if key is None:
        if command is not None:
            raise UsageError("--signer needs the public key of its pair", hint="give it: --key FILE.pub")
        return None
    from mtool.manifest.modules.keys import external, read_private

    return read_private(key) if command is None else external(command, key)


def _next_key(signer: "PrivateKey | ExternalKey | None", next_key: Path | None) -> bytes:
    """Return the public key that replaces the signer's; empty: none does.

    Raises:
        UsageError: the file has no public key, or the signer's, or the module is not signed.
    """
    if next_key is None:
        return b""
    if signer is None:
        raise UsageError("--next-key is for a signed module", hint="sign it with the current key: --key FILE")
    from mtool.manifest.modules.keys import read_public

    new_key = read_public(next_key).raw
    if new_key == signer.public.raw:
        raise UsageError(f"--next-key {next_key} is the key that signs the module", hint="give the new key")
    return new_key


def _unguarded(options: Options | None) -> Options:
    """Return the options, if they have no guard.

    Raises:
        UsageError: they have.
    """
    if options is not None and options.guard:
        what = "--guard is not for modules, whose arena and constants have no fixed place"
        raise UsageError(what, hint="leave --guard out")
    return options or Options()


def _for_a_module(options: Options) -> Options:
    """Return the options with the caller's arena, the only interface of a module.

    Raises:
        UsageError: another interface, pools or a backend are requested.
    """
    if options.conventions not in (Conventions(), Conventions(context=True)) or options.io != "arena":
        raise UsageError(
            "a module has a fixed entry point, and its inputs and outputs are in its arena",
            hint="leave --interface-api, --operators-api, --executor and --io out",
        )
    if options.pools:
        raise UsageError("a module's arena is one block of the firmware's memory", hint="leave --pool out")
    if options.backends:
        raise UsageError("a module can't use backends", hint="leave --backend out")
    return replace(options, conventions=Conventions(context=True), weights="text", arenas="caller")


def make_bytecode(
    path: str | Path,
    *,
    options: Options | None = None,
    key: Path | None = None,
    counter: int = 0,
    since: Module | None = None,
    signer: str | None = None,
    next_key: Path | None = None,
) -> ModuleFile:
    """Compile a model to a bytecode module, for firmware on any board that has the kernels; nothing is written.

    Args:
        path: the model.
        options: how to read it.
        key, counter, signer, next_key: as of `make_module`.
        since: the module that this one updates.

    Raises:
        UsageError: the counter, the key or an option is invalid for bytecode, or the interface differs from that of
            `since`.
        ModelError: the model can't be compiled, or the library has no kernel for an operator.
    """
    from mtool.compiler.bytecode.model import compile_bytecode

    sign, chosen = signer_of(key, counter, signer), _unguarded(options)
    for name in ("schedule", "tuned", "partial", "optimize", "backend", "pool"):
        field = OPTIONS[name].python_name
        if getattr(chosen, field) != getattr(Options(), field):
            what = f"--{name} is for machine code, which a bytecode module does not have"
            raise UsageError(what, hint=f"leave --{name} out")
    start, source = time.monotonic(), Path(path)
    model = compile_bytecode(source, chosen)
    image, interface = model.image, model.interface
    description = Description(
        mtool_version=__version__,
        model_file=encodable(source.name),
        inputs=interface.inputs,
        outputs=interface.outputs,
        operators=tuple(OperatorNote(name=name, label=label, macs=macs) for name, label, macs in model.operators()),
    )
    _check(model.name, Kind.BYTECODE, description, since)
    module = Module(
        kind=Kind.BYTECODE,
        machine=Architecture.ANY,
        counter=counter,
        alignment=_ALIGNMENT,
        image=image.data,
        code_bytes=image.code_bytes,
        entry=0,
        imports=(),
        name=model.name,
        model_hash=bytes.fromhex(file_hash(source)),
        description=description,
        arena_bytes=image.arena_bytes,
        arena_alignment=_ALIGNMENT,
        stack_bytes=0,
        next_key=_next_key(sign, next_key),
    )
    return _module_file(module, sign, "bytecode", start)
