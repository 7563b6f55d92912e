"""What stands around a backend's body: copies to memories of the board, and the care for the cache.

The core's statements and the device's are functions of their own, so that the body may return where it likes.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mtool.compiler.kernels.external.node import External
from mtool.compiler.kernels.schedule import Argument


@dataclass(frozen=True, slots=True)
class Frame:
    """A function's body that calls another function with the backend's, and that function."""

    body: str
    inner: str


def framed(attrs: External, name: str, arguments: Sequence[Argument], sizes: Mapping[str, int]) -> Frame:
    """Return the function around a backend's body.

    Args:
        attrs: the region.
        name: the node's.
        arguments: what the region's function is given.
        sizes: the bytes of each argument.
    """
    kinds = {one.name: one for one in arguments}
    lent = {one.name: one for one in attrs.lent}
    pool = {
        key: f"{attrs.model}_{one.memory}" + (f" + {one.offset}" if one.offset else "") for key, one in lent.items()
    }
    declared, copies, back = [], [], []
    for key in lent:
        kind = kinds[key].c_type if key in kinds else "uint8_t"
        place = pool[key] if kind == "uint8_t" else f"({kind} *)(void *)({pool[key]})"
        own = f"lent_{key}" if key in kinds else key
        declared.append(f"{kind} *const {own} = {place};")
        if key.startswith("input") and key in kinds:
            copies.append(f"memcpy({own}, {key}, {sizes[key]});")
        if key.startswith("output") and key in kinds:
            back.append(f"memcpy({key}, {own}, {sizes[key]});")

    def there(key: str) -> str:
        return f"lent_{key}" if key in lent and key in kinds else key

    working = [Argument(key, "uint8_t", "scratch") for key in lent if key not in kinds]
    own_arguments = [*arguments, *working]
    passed = ", ".join(there(one.name) for one in own_arguments)
    size = {**sizes, **{key: one.bytes for key, one in lent.items()}}
    result = "int32_t" if attrs.can_fail else "void"

    def function(part: str, text: str, kind: str) -> str:
        heads = ", ".join(one.declaration for one in own_arguments)
        body = _unused(own_arguments, text) + text.rstrip()
        return f"static {kind} {attrs.model}_{name}_{part}({heads})\n{{\n{body}\n}}\n"

    parts = [("prepare", attrs.prepare, "void"), ("device", attrs.body, result), ("finish", attrs.finish, "void")]
    calls = {part: f"{attrs.model}_{name}_{part}({passed});" for part, _, _ in parts}
    lines = [*declared, *copies, *([calls["prepare"]] if attrs.prepare else [])]
    lines += [f"{attrs.clean}({there(key)}, {size[key]});" for key in attrs.cleaned]
    if attrs.can_fail:
        lines += [f"const int32_t status = {calls['device']}", "if (status != 0)", "    return status;"]
    else:
        lines.append(calls["device"])
    lines += [f"{attrs.invalidate}({there(key)}, {size[key]});" for key in attrs.invalidated]
    lines += [*([calls["finish"]] if attrs.finish else []), *back, *(["return 0;"] if attrs.can_fail else [])]
    inner = "\n".join(function(*part) for part in parts if part[1])
    return Frame("\n".join(f"    {line}" for line in lines), inner)


def _unused(arguments: Sequence[Argument], text: str) -> str:
    """Return statements that use the parameters which a text does not name."""
    unused = [one.name for one in arguments if not re.search(rf"\b{one.name}\b", text)]
    return "".join(f"    (void){name};\n" for name in unused)
