"""`mtool module`: a model that firmware takes at run time, as one signed file."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mtool.base.errors import UsageError
from mtool.cli import parameters
from mtool.cli.output import Output, table

if TYPE_CHECKING:
    from mtool.commands.module_update import Renewal
    from mtool.manifest.modules.format import Module

_NATIVE = "native: code and constants that run wherever they lie"


def module(
    out: Output,
    model: Annotated[
        Path,
        typer.Argument(metavar="MODEL", help="The model, .onnx or .tflite; with --show a module.", show_default=False),
    ],
    board: parameters.BoardName = parameters.HOST,
    output: Annotated[
        Path | None, parameters.output_file("OUT.mtm", "The file to write; default: <model>.mtm here.")
    ] = None,
    *,
    key: Annotated[
        Path | None,
        typer.Option(
            "--key",
            metavar="FILE",
            help="The private key that signs it (`mtool key`); with --show the public one that has.",
            show_default=False,
        ),
    ] = None,
    counter: Annotated[
        int | None,
        typer.Option(
            "--counter",
            help="Its age: firmware refuses a module with a lower one than it has; default: 0, or that of --since.",
            show_default=False,
        ),
    ] = None,
    since: Annotated[
        Path | None,
        typer.Option(
            "--since",
            metavar="OLD.mtm",
            help="The module that this one renews with other weights: its name, interface and, if possible, code stay.",
            show_default=False,
        ),
    ] = None,
    bytecode: Annotated[
        bool,
        typer.Option(
            "--bytecode",
            help="Calls of kernels that the firmware has, checked before they run, in place of code; for any board.",
        ),
    ] = False,
    show: Annotated[bool, typer.Option("--show", help="Tell what is in a module; nothing is made.")] = False,
    options: parameters.ModuleOptions,
) -> None:
    """Make a module of a model: a file that firmware built with --modules takes at run time.

    It has the model's code and constants, which run wherever they lie, what they call of the firmware, hashes, sizes
    and the interface. Without --key it is not signed, and only firmware for development takes it.
    """
    from mtool.commands import module_update, modules

    if show:
        found, data = modules.read_module(model)
        trust = _trust(found, data, key)
        _tell(out, found, data, trust, path=model)
        return
    old = None if since is None else modules.read_module(since)
    before = None if old is None else old[0]
    if before is not None:
        options, counter = module_update.options_since(before, options, counter)
    if bytecode:
        from mtool.commands.bytecode import make_bytecode

        made = make_bytecode(model, options=options, key=key, counter=counter or 0, since=before)
    else:
        made = modules.make_module(model, board=board, options=options, key=key, counter=counter or 0, since=before)
    target = output or Path(f"{made.module.name}.mtm")
    modules.write_module(made, target)
    trust = "signed" if made.module.is_signed else "not signed"
    renewal = None if old is None else module_update.renewal(old, (made.module, made.data))
    _tell(out, made.module, made.data, trust, path=target, linked=made.linked, renewal=renewal)
    if key is None:
        out.text("", "not signed: firmware takes it only if it was built to take such; sign it by --key FILE")


def _trust(found: "Module", data: bytes, key: Path | None) -> str:
    """Tell whether a module is signed, and by the key that is given.

    Raises:
        UsageError: it is not that key's.
    """
    from mtool.commands import modules
    from mtool.manifest.modules.keys import read_public

    if key is None:
        return "signed; by whom is not checked without --key" if found.is_signed else "not signed"
    public = read_public(key)
    if not modules.is_signed_by(data, public):
        raise UsageError(
            "the module is not signed by this key",
            details=[f"expected  key id {public.key_id.hex()}", f"found     {found.key_id.hex()}"],
        )
    return "signed by this key"


def _tell(
    out: Output,
    found: "Module",
    data: bytes,
    trust: str,
    *,
    path: Path,
    linked: tuple[str, ...] = (),
    renewal: "Renewal | None" = None,
) -> None:
    from mtool.compiler.bytecode.call import kernels_of
    from mtool.manifest.modules import machine
    from mtool.manifest.modules.exports import BY_HASH
    from mtool.manifest.modules.format import HEAD_BYTES, Kind

    kernels = kernels_of(found.image) if found.kind == Kind.BYTECODE else ()
    imports = [BY_HASH[one].name if one in BY_HASH else f"0x{one:08x}" for one in found.imports]
    constants = len(found.image) - found.code_bytes
    about = len(data) - HEAD_BYTES - len(found.image)
    out.result(
        {
            "file": str(path),
            "bytes": len(data),
            "kind": found.kind.name.lower(),
            "machine": machine.describe(found.machine),
            "name": found.name,
            "model_hash": found.model_hash.hex(),
            "counter": found.counter,
            "code_bytes": found.code_bytes,
            "constant_bytes": constants,
            "about_bytes": HEAD_BYTES + about,
            "arena_bytes": found.arena_bytes,
            "ram_bytes": found.ram_bytes(),
            "stack_bytes": found.stack_bytes or None,
            "imports": imports,
            "kernels": list(kernels),
            "linked": list(linked),
            "signed": found.is_signed,
            "key_id": found.key_id.hex(),
            "description": found.description.model_dump(mode="json"),
            **({"since": dataclasses.asdict(renewal)} if renewal is not None else {}),
        }
    )
    rows = [
        ["code", f"{found.code_bytes:,}"],
        ["constants", f"{constants:,}"],
        ["head, interface, names", f"{HEAD_BYTES + about:,}"],
        ["file", f"{len(data):,}"],
        ["RAM: arena", f"{found.arena_bytes:,}"],
        ["RAM: tables", f"{found.ram_bytes() - found.arena_bytes:,}"],
        ["stack of its own code", f"{found.stack_bytes:,}" if found.stack_bytes else "not known"],
    ]
    kind = _NATIVE if found.kind == Kind.NATIVE else "bytecode: calls of kernels that the firmware has"
    out.text(f"{path}: {found.name}, {kind}")
    out.text(f"for {machine.describe(found.machine)}; counter {found.counter}; {trust}")
    out.text("", table(("", "bytes"), rows, right=(1,)), "")
    for what, tensors in (("input", found.description.inputs), ("output", found.description.outputs)):
        for one in tensors:
            out.text(f"{what} {one.name}: {one.dtype}[{','.join(map(str, one.shape))}]")
    if found.kind == Kind.BYTECODE:
        out.text(f"kernels that the firmware needs: {', '.join(kernels)}")
    else:
        out.text(f"imports of the firmware: {', '.join(imports) or 'none'}")
    if linked:
        out.text(f"of the compiler's library, in the module: {', '.join(linked)}")
    if renewal is not None:
        out.text(f"since the module before: {renewal.describe()}")
