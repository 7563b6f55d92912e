"""`mtool module`: a model that firmware loads at run time, as one signed file."""

import dataclasses
import functools
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from mtool.base import configuration, plural
from mtool.base.errors import UsageError
from mtool.cli import parameters
from mtool.cli.output import Output, table

if TYPE_CHECKING:
    from mtool.commands.modules import ModuleUpdate
    from mtool.manifest.modules.format import Module

log = logging.getLogger(__name__)

_NATIVE = "native: position-independent code and constants"


def module(
    out: Output,
    model: Path,
    board: str = parameters.HOST,
    output: Path | None = None,
    *,
    key: Path | None = None,
    signer: str | None = None,
    next_key: Path | None = None,
    counter: int | None = None,
    since: Path | None = None,
    bytecode: bool = False,
    show: bool = False,
    options: parameters.ModuleOptions,
) -> None:
    """Make a module from a model: a file that firmware built with --modules loads at run time.

    It holds the model's position-independent code and constants, the firmware functions that they call, hashes, sizes
    and the interface. Without --key it is not signed, and only firmware built for development accepts it.
    """
    from mtool.commands import modules
    from mtool.compiler.bytecode.call import kernels_of
    from mtool.manifest.modules import format
    from mtool.manifest.modules.exports import BY_HASH
    from mtool.manifest.modules.format import HEAD_BYTES, Kind
    from mtool.manifest.modules.keys import PublicKey

    path, linked = model, tuple[str, ...]()
    renewal: ModuleUpdate | None = None
    if show:
        contents, data = modules.read_module(model)
        trust = _trust(contents, data, key)
    else:
        old = None if since is None else modules.read_module(since)
        before = None if old is None else old[0]
        if (settings := configuration.load()).options.get("guard"):
            log.warning("the module has no guard; %s has guard = true for the firmware alone", settings.file)
        if before is not None:
            options, counter = modules.options_since(before, options, counter)
        make = modules.make_bytecode if bytecode else functools.partial(modules.make_module, board=board)
        result = make(
            model, options=options, key=key, counter=counter or 0, since=before, signer=signer, next_key=next_key
        )
        contents, data, linked = result.module, result.data, result.linked
        path = output or Path(f"{contents.name}.mtm")
        modules.write_module(result, path)
        trust = "signed" if contents.is_signed else "not signed"
        renewal = None if old is None else modules.update_between(old, (contents, data))
    kernels = kernels_of(contents.image) if contents.kind == Kind.BYTECODE else ()
    imports = [BY_HASH[number].name if number in BY_HASH else f"0x{number:08x}" for number in contents.imports]
    constants = len(contents.image) - contents.code_bytes
    about = len(data) - HEAD_BYTES - len(contents.image)
    out.result(
        {
            "file": str(path),
            "bytes": len(data),
            "kind": contents.kind.name.lower(),
            "machine": format.describe(contents.machine),
            "name": contents.name,
            "model_hash": contents.model_hash.hex(),
            "counter": contents.counter,
            "code_bytes": contents.code_bytes,
            "constant_bytes": constants,
            "about_bytes": HEAD_BYTES + about,
            "arena_bytes": contents.arena_bytes,
            "ram_bytes": contents.ram_bytes(),
            "stack_bytes": contents.stack_bytes or None,
            "imports": imports,
            "kernels": list(kernels),
            "linked": list(linked),
            "signed": contents.is_signed,
            "key_id": contents.key_id.hex(),
            **({"next_key_id": PublicKey(contents.next_key).key_id.hex()} if contents.next_key else {}),
            "description": contents.description.model_dump(mode="json"),
            **({"since": dataclasses.asdict(renewal)} if renewal is not None else {}),
        }
    )
    sizes = {
        "code": contents.code_bytes,
        "constants": constants,
        "head, interface, names": HEAD_BYTES + about,
        "file": len(data),
        "RAM: arena": contents.arena_bytes,
        "RAM: tables": contents.ram_bytes() - contents.arena_bytes,
        "stack of its own code": contents.stack_bytes or "not known",
    }
    rows = [[what, size if isinstance(size, str) else f"{size:,}"] for what, size in sizes.items()]
    kind = _NATIVE if contents.kind == Kind.NATIVE else "bytecode: calls of the firmware's kernels"
    out.text(f"{path}: {contents.name}, {kind}")
    out.text(f"for {format.describe(contents.machine)}; counter {contents.counter}; {trust}")
    if contents.next_key:
        out.text(f"its signer's key is replaced by that with the id {PublicKey(contents.next_key).key_id.hex()}")
    out.text("", table(("", "bytes"), rows, right=(1,)), "")
    for what, tensors in (("input", contents.description.inputs), ("output", contents.description.outputs)):
        for tensor in tensors:
            out.text(f"{what} {tensor.name}: {tensor.dtype}[{','.join(map(str, tensor.shape))}]")
    if contents.kind == Kind.BYTECODE:
        out.text(f"kernels that the firmware needs: {', '.join(kernels)}")
    else:
        out.text(f"imports of the firmware: {', '.join(imports) or 'none'}")
    if linked:
        out.text(f"included from the compiler's library: {', '.join(linked)}")
    if renewal is not None:
        out.text(f"update of the module before: {renewal.describe()}")
    if not show and key is None:
        out.text("", "not signed: only firmware built with --unsigned-modules accepts it; sign it with --key FILE")


def _trust(module: "Module", data: bytes, key: Path | None) -> str:
    """Return whether a module is signed, and check that it is signed by `key`, if that is given.

    Raises:
        UsageError: it is not signed by that key.
    """
    from mtool.commands import modules
    from mtool.manifest.modules.keys import read_public

    if key is None:
        return "signed; the signature is checked only with --key" if module.is_signed else "not signed"
    public = read_public(key)
    if not modules.is_signed_by(data, public):
        raise UsageError(
            "the module is not signed by this key",
            details=[f"expected  key id {public.key_id.hex()}", f"found     {module.key_id.hex()}"],
        )
    return "signed by this key"


# `mtool load`: load a module into a device.


def load(
    out: Output,
    module: Path,
    project: Path | None = None,
    board: str = "",
    port: str = "",
    probe: str = "",
    *,
    ram: bool = False,
    since: Path | None = None,
    trial: int | None = None,
    link_key: Path | None = None,
) -> None:
    """Load a module into a device: this adds its model without flashing the firmware again.

    It is written to the free slot of the flash. Once it is complete and checked, it replaces the module of the same
    name, or, if no slot is left, the one that was loaded first; mtool reports beforehand which one. An interrupted load
    leaves what was there, and the same command resumes it. Ends with exit code 2 if the module is not for this device,
    4 if it does not fit, 8 if the device stops answering, 10 if the device refuses it.
    """
    from mtool.commands import loading

    with out.progress(is_bytes=True) as progress:
        done = loading.load_module(
            module,
            project,
            port=port,
            probe=probe,
            board=board,
            ram=ram,
            since=since,
            trial=trial or 0,
            link_key=link_key,
            progress=progress,
        )
    names = list(dict.fromkeys(one.name for one in done.models))  # of several with the same name only one is visible
    out.result(
        {
            "module": str(module),
            "name": done.module.name,
            "model_hash": done.module.model_hash.hex(),
            "counter": done.module.counter,
            "place": done.place.name.lower(),
            "bytes": done.file_bytes,
            "there_bytes": done.there_bytes,
            "delta_bytes": done.delta_bytes,
            "replaced": done.replaced or None,
            "trial": done.trial,
            "is_confirmed": done.is_confirmed,
            "is_kept": done.is_kept,
            "seconds": round(done.seconds, 3),
            "models": [
                {"name": one.name, "place": one.place.name.lower(), "model_hash": one.model_hash} for one in done.models
            ],
        }
    )
    delta = f", sent as a delta of {done.delta_bytes:,} B" if done.delta_bytes else ""
    before = f", {done.there_bytes:,} B of it already there" if done.there_bytes else ""
    instead = f", in place of {done.replaced}" if done.replaced else ""
    out.text(f"{done.module.name} is in {done.place.name.lower()}: {done.file_bytes:,} B{before}{delta}{instead}")
    out.text(f"models on the device: {', '.join(names)}")
    if done.trial:
        out.text(f"on trial for {plural.count(done.trial, 'start')}: to keep it, load it again without --trial")
    elif trial:
        out.text("not on trial: the device keeps this module already")
    elif done.is_confirmed:
        out.text("the trial has ended: the device keeps this module")
    if not done.is_kept:
        what = "its RAM" if done.place.name == "RAM" else "its flash"
        out.text(f"the emulator has ended, and {what} with it: the module is gone")


# `mtool key`: a key pair for signing modules.


def key(out: Output, file: Path, *, encrypt: bool = False, link: bool = False) -> None:
    """Make a key pair (Ed25519) for modules: one key signs them, firmware is built with the other.

    The private key is a file that only you can read: keep a copy in a safe place. Firmware accepts only modules signed
    with its keys, so a lost key can't be replaced. Existing files are never overwritten.
    """
    from mtool.manifest import link_key
    from mtool.manifest.modules import keys

    if link:
        if encrypt:
            raise UsageError("--encrypt is for a private key, not for a link key", hint="leave it out")
        link_key.make(file)
        out.result({"link_key": str(file)})
        out.text(f"{file}  link key: firmware is built with it (--link-key); keep it secret")
        return
    public = keys.make(file, encrypt=encrypt)
    other = keys.public_path_of(file)
    out.result(
        {"private": str(file), "public": str(other), "public_key": public.raw.hex(), "key_id": public.key_id.hex()}
    )
    out.text(f"{file}      private: it signs modules; keep it secret, and keep a copy")
    out.text(f"{other}  public: firmware is built with it")
    out.text(f"key id {public.key_id.hex()}, public key {public.raw.hex()}")
