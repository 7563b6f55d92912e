"""The C of a native module's one function, which runs an operator or an inference, or initializes the states."""

from mtool.base.errors import UsageError
from mtool.manifest import Manifest

FILE_NAME = "mt_module_call.c"


def source(manifest: Manifest) -> str:
    """Return the C of `mt_module_call` for a model whose caller provides the arena.

    Raises:
        UsageError: the model was compiled with an interface that modules do not support.
    """
    refuse_interface(manifest)
    model = manifest.model
    begin = [f"        {manifest.symbols['reset']}(arena);"] if manifest.states else []
    lines = [
        '#include "mt_module.h"',
        f'#include "{model}.h"',
        f'#include "{model}_operators.h"',
        "",
        "int32_t mt_module_call(void *arena, uint32_t number);",
        "",
        "int32_t mt_module_call(void *arena, uint32_t number)",
        "{",
        "    if (number == MT_MODULE_RUN) {",
        f"        const struct {model}_inputs inputs = {model}_arena_inputs(arena);",
        f"        const struct {model}_outputs outputs = {model}_arena_outputs(arena);",
        f"        return {model}_run(arena, &inputs, &outputs);",
        "    }",
        "    if (number == MT_MODULE_BEGIN) {",
        *begin,
        "        return 0;",
        "    }",
        f"    return {model}_operator((uint16_t)number, arena);",
        "}",
        "",
    ]
    return "\n".join(lines)


def refuse_interface(manifest: Manifest) -> None:
    """Refuse a model that a host could not drive through a module.

    Raises:
        UsageError: its inputs are not in the arena, it takes rows, or an accelerator computes a part of it.
    """
    if not manifest.caller_has_arena or manifest.io != "arena" or manifest.interface_api != "c":
        raise UsageError("a module's model needs the typed interface, with inputs in an arena that the caller provides")
    if manifest.stream_input is not None or any(one.backend for one in manifest.operators) or manifest.inner_regions:
        raise UsageError("a module's model can't use an accelerator or take its input by rows")
    if not manifest.arena_bytes:
        raise UsageError("the model has no arena, so a module has nothing to compute")
