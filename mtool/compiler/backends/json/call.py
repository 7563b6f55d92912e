"""The C of a region's call: by a driver of the device, or, on this computer, by its simulator."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mtool.base.errors import UsageError
from mtool.compiler.backends.interface import Operand, Region
from mtool.compiler.backends.json.device import bytes_of, dtype_of
from mtool.compiler.backends.json.external_compiler import filled
from mtool.compiler.ir import DType

SIMULATOR_PLACES = frozenset({"binary", "inputs", "outputs", "region"})
"""What a simulator's command may have in braces."""
_SOURCES = (".c", ".h", ".inc")
_HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Driver:
    """A device's driver: the name before `_run`, and its files by name."""

    name: str
    files: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Functions:
    """Functions of a driver besides the call: hooks by occasion, and those that clean and invalidate the cache.

    Hooks and the call are given the caller's resource if they `take_resource`.
    """

    hooks: Mapping[str, str]
    caches: Mapping[str, str]
    take_resource: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """The statements of a call, those of the core before and behind it, and what they need."""

    lines: Sequence[str]
    headers: tuple[str, ...]
    prepare: Sequence[str] = ()
    finish: Sequence[str] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)
    scratch_bytes: int = 0


def driver_of(path: Path, name: str) -> Driver:
    """Return the driver of a C file, or of a folder with C files and headers.

    Raises:
        UsageError: there is none, or the file's name is none in C and no other is given.
    """
    paths = [path] if path.is_file() else sorted(path.glob("*")) if path.is_dir() else []
    files = {one.name: one.read_bytes() for one in paths if one.suffix in _SOURCES and one.is_file()}
    if not any(one.endswith(".c") for one in files):
        raise UsageError(f"driver={path}: there is no C file", hint="give a .c file, or a folder of .c and .h files")
    chosen = name or path.stem
    if not chosen.isidentifier() or not chosen.isascii():
        raise UsageError(f"driver={path}: {chosen} is no name in C", hint="name the function: driver_name=NAME")
    return Driver(chosen, files)


def by_driver(
    backend: str,
    driver: Driver,
    region: Region,
    functions: Functions,
    *,
    half: bool,
    scratch_bytes: int,
    alignment: int,
) -> Call:
    """Return the call of `<driver>_run`."""
    header = f"{backend}/{driver.name}_call.h"
    made = _header(driver.name, functions)
    files = {f"{backend}/{name}": data for name, data in driver.files.items()} | {header: made}
    border = _Border(region, half, scratch_bytes, alignment)
    scratch = "scratch" if scratch_bytes else "NULL"
    lines = [
        *border.pointers(),
        f"const void *const inputs[] = {{{border.inputs()}}};",
        f"void *const outputs[] = {{{border.outputs()}}};",
        f"return {driver.name}_run(binary, inputs, outputs, {scratch}{', resource' * functions.take_resource});",
    ]
    return Call(lines, (header, *border.headers), border.before(), border.after(), files, border.scratch_bytes)


def by_simulator(
    backend: str, words: tuple[str, ...], region: Region, binary_bytes: int, *, half: bool, timeout_s: float
) -> Call:
    """Return the call of a simulator: files are written in a folder of its own, it runs there, files are read."""
    header, source = f"{backend}/{backend}_simulator.h", f"{backend}/{backend}_simulator.c"
    function = f"{backend}_simulate"
    files = {
        path: (_HERE / f"simulator{Path(path).suffix}").read_text().replace("@NAME@", backend).encode()
        for path in (header, source)
    }
    border = _Border(region, half, 0, 4)
    values = {
        "binary": ("model.bin",),
        "inputs": tuple(f"input{number}.bin" for number in range(len(region.inputs))),
        "outputs": tuple(f"output{number}.bin" for number in range(len(region.outputs))),
        "region": (region.name,),
    }
    argv = [json.dumps(word, ensure_ascii=False) for word in filled(words, values)]  # C has the same escapes
    sizes = [", ".join(str(bytes_of(one, half)) for one in side) for side in (region.inputs, region.outputs)]
    lines = [
        *border.pointers(),
        f"const void *const inputs[] = {{{border.inputs()}}};",
        f"void *const outputs[] = {{{border.outputs()}}};",
        f"static const uint32_t input_bytes[] = {{{sizes[0]}}};",
        f"static const uint32_t output_bytes[] = {{{sizes[1]}}};",
        f"static const char *const command[] = {{{', '.join(argv)}, NULL}};",
        f"const struct {backend}_job job = {{",
        f"    command, binary, {binary_bytes},",
        f"    inputs, input_bytes, {len(region.inputs)}, outputs, output_bytes, {len(region.outputs)},",
        f"    {max(1, round(timeout_s))},",
        "};",
        f"return {function}(&job);",
    ]
    return Call(lines, (header, *border.headers), border.before(), border.after(), files, border.scratch_bytes)


def _header(name: str, functions: Functions) -> bytes:
    guard = f"{name.upper()}_CALL_H"
    given = "void *resource" if functions.take_resource else "void"
    declared = "".join(f"\nint32_t {hook}({given});" for hook in dict.fromkeys(functions.hooks.values()))
    cares = "".join(
        f"\nvoid {care}(const void *address, size_t bytes);" for care in dict.fromkeys(functions.caches.values())
    )
    more = ",\n" + " " * len(f"int32_t {name}_run(") + given if functions.take_resource else ""
    around = f"\n/* Called around its work, as mt_device.h says: 0, or a status. */{declared}\n" if declared else ""
    around += f"\n/* Of the core's cache, before and after its work. */{cares}\n" if cares else ""
    return f"""/* The call of the driver, by mtool. */
#ifndef {guard}
#define {guard}

#include <stddef.h>
#include <stdint.h>

/* Compute a region: its model binary, its inputs and outputs in the order of the nodes file, and working memory of
 * the size that the device file or the compiler's report asks for. Returns 0, or a status of the driver's own. */
int32_t {name}_run(const uint8_t *binary, const void *const *inputs, void *const *outputs, void *scratch{more});
{around}
#endif
""".encode()


class _Border:
    """What crosses a region's border: float32 tensors are converted to float16 and back where the device wants that."""

    def __init__(self, region: Region, half: bool, scratch_bytes: int, alignment: int) -> None:
        self.region, self.half = region, half
        self.at: dict[str, int] = {}
        end = scratch_bytes
        for side, operands in (("input", region.inputs), ("output", region.outputs)):
            for number, operand in enumerate(operands):
                if self._is_converted(operand):
                    end += -end % alignment
                    self.at[f"{side}{number}"] = end
                    end += bytes_of(operand, half)
        self.scratch_bytes = end

    def _is_converted(self, operand: Operand) -> bool:
        return operand.dtype is DType.FLOAT32 and dtype_of(operand, self.half) is DType.FLOAT16

    @property
    def headers(self) -> tuple[str, ...]:
        return ("mt_half.h",) if self.at else ()

    def inputs(self) -> str:
        return self._names("input", len(self.region.inputs))

    def outputs(self) -> str:
        return self._names("output", len(self.region.outputs))

    def _names(self, side: str, count: int) -> str:
        names = [f"{side}{number}" for number in range(count)]
        return ", ".join(f"half_{name}" if name in self.at else name for name in names)

    def pointers(self, side: str = "") -> list[str]:
        return [
            f"uint16_t *const half_{name} = (uint16_t *)(void *)(scratch + {place});"
            for name, place in self.at.items()
            if name.startswith(side)
        ]

    def before(self) -> list[str]:
        loops = self._loops("input", self.region.inputs, "half_{0}[i] = mt_f16_store({0}[i]);")
        return [*self.pointers("input"), *loops] if loops else []

    def after(self) -> list[str]:
        loops = self._loops("output", self.region.outputs, "{0}[i] = mt_f16_load(half_{0}[i]);")
        return [*self.pointers("output"), *loops] if loops else []

    def _loops(self, side: str, operands: Sequence[Operand], statement: str) -> list[str]:
        lines = []
        for number, operand in enumerate(operands):
            name = f"{side}{number}"
            if name in self.at:
                lines.append(f"for (int32_t i = 0; i < {operand.type.count}; ++i)")
                lines.append(f"    {statement.format(name)}")
        return lines
