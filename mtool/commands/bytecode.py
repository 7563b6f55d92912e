"""Make a bytecode module of a model."""

import logging
import time
from pathlib import Path

from mtool.base.errors import UsageError
from mtool.base.escaping import encodable
from mtool.commands.module_update import check_interface, check_kind
from mtool.commands.modules import Made, check_counter, check_name, sealed, signer_of
from mtool.compiler.bytecode.model import compile_bytecode
from mtool.compiler.frontend.reading import file_hash
from mtool.manifest.modules.format import Description, Kind, Module, OperatorNote, unpack
from mtool.manifest.modules.machine import Architecture
from mtool.stages.options import Options
from mtool.version import __version__

log = logging.getLogger(__name__)

_ALIGNMENT = 16


def make_bytecode(
    path: str | Path,
    *,
    options: Options | None = None,
    key: Path | None = None,
    counter: int = 0,
    since: Module | None = None,
) -> Made:
    """Compile a model to a bytecode module, for firmware on any board that has the kernels; nothing is written.

    Args:
        path: the model.
        options: how to read it.
        key: the private key that signs it; None: nothing does.
        counter: firmware refuses a module with a counter below that of the one that it has.
        since: the module that this one renews.

    Raises:
        UsageError: the counter, the key or an option is none for bytecode, or the interface is another than that of
            `since`.
        ModelError: the model can't be compiled, or the library has no kernel for an operator.
    """
    check_counter(counter)
    signer, chosen = signer_of(key), options or Options()
    _check(chosen)
    start, source = time.monotonic(), Path(path)
    model = compile_bytecode(source, chosen)
    check_name(model.name)
    image = model.image
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
        description=Description(
            mtool_version=__version__,
            model_file=encodable(source.name),
            inputs=model.interface.inputs,
            outputs=model.interface.outputs,
            operators=tuple(OperatorNote(name=name, label=label, macs=macs) for name, label, macs in model.operators()),
        ),
        arena_bytes=image.arena_bytes,
        arena_alignment=_ALIGNMENT,
        stack_bytes=0,
    )
    if since is not None:
        check_kind(since, Kind.BYTECODE)
        check_interface(since.description, module.description)
    log.info("  %-9s %4.1f s   %s B", "bytecode", time.monotonic() - start, f"{len(image.data):,}")
    data = sealed(module, signer)
    return Made(unpack(data), data, (), ())


def _check(options: Options) -> None:
    """Refuse options of what is compiled to C alone.

    Raises:
        UsageError: there is one.
    """
    usual = Options()
    given = [
        f"--{name}" for name, value, default in (
            ("schedule", options.schedules, usual.schedules),
            ("tuned", options.tuned, usual.tuned),
            ("partial", options.partial, usual.partial),
            ("optimize", options.optimize, usual.optimize),
            ("backend", options.backends, usual.backends),
            ("pool", options.pools, usual.pools),
        )
        if value != default
    ]  # fmt: skip
    if given:
        raise UsageError(f"{given[0]} is of code, and a bytecode module has none", hint=f"leave {given[0]} out")
