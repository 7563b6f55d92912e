"""The C of a region's call: by a driver of the device, or, on this computer, by its simulator."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mtool.base.errors import UsageError
from mtool.compiler.backends.call import CallBuilder
from mtool.compiler.backends.interface import Region
from mtool.compiler.backends.json.device import Device
from mtool.compiler.backends.json.external_compiler import filled

SIMULATOR_PLACES = frozenset({"binary", "inputs", "outputs", "region"})
"""What a simulator's command may have in braces."""
_SOURCES = (".c", ".h", ".inc")
_HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Driver:
    """A device's driver: the name before `_run`, and its files by name."""

    name: str
    files: Mapping[str, bytes]


class Call(CallBuilder):
    """A call; what crosses the border as float32 is converted to float16 and back where the device wants that.

    Args:
        backend: the backend's name.
        region: the region, and as the device has it.
        scratch_bytes, alignment: of the driver's working memory.
    """

    def __init__(self, backend: str, region: Region, device_region: Region, scratch_bytes: int, alignment: int) -> None:
        super().__init__(region, alignment, scratch_bytes=scratch_bytes)
        self.backend = backend
        self.sides = (device_region.inputs, device_region.outputs)
        pointers, borders = [], []
        for side, operands, theirs, steps, statement in (
            ("input", region.inputs, self.sides[0], self.prepare, "half_{0}[i] = mt_f16_store({0}[i]);"),
            ("output", region.outputs, self.sides[1], self.finish, "{0}[i] = mt_f16_load(half_{0}[i]);"),
        ):
            made, loops, names = [], [], []
            for number, (operand, other) in enumerate(zip(operands, theirs, strict=True)):
                name = f"{side}{number}"
                names.append(f"half_{name}" if operand.dtype is not other.dtype else name)
                if operand.dtype is not other.dtype:
                    place = self.reserve(other.type.bytes)
                    made.append(f"uint16_t *const half_{name} = (uint16_t *)(void *)(scratch + {place});")
                    loops.append(f"for (int32_t i = 0; i < {operand.type.count}; ++i)")
                    loops.append(f"    {statement.format(name)}")
            steps += [*made, *loops]
            pointers += made
            borders.append(", ".join(names))
        self.lines += [
            *pointers,
            f"const void *const inputs[] = {{{borders[0]}}};",
            f"void *const outputs[] = {{{borders[1]}}};",
        ]
        self._is_converting = bool(pointers)

    def include(self, header: str, files: Mapping[str, bytes]) -> None:
        """Add a header, and files below the folder of the backend."""
        self.headers += [f"{self.backend}/{header}", *(["mt_half.h"] if self._is_converting else [])]
        self.files |= {f"{self.backend}/{name}": data for name, data in files.items()}


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


def by_driver(call: Call, driver: Driver, device: Device, scratch_bytes: int) -> None:
    """Append the call of `<driver>_run`, which has some bytes of working memory."""
    header = f"{driver.name}_call.h"
    call.include(header, {**driver.files, header: _header(driver.name, device)})
    scratch = "scratch" if scratch_bytes else "NULL"
    resource = ", resource" * device.resource
    call.lines.append(f"return {driver.name}_run(binary, inputs, outputs, {scratch}{resource});")


def by_simulator(call: Call, words: tuple[str, ...], binary_bytes: int, timeout_s: float) -> None:
    """Append the call of a simulator: files are written in a folder of its own, it runs there, files are read."""
    backend, region = call.backend, call.region
    header, source = f"{backend}_simulator.h", f"{backend}_simulator.c"
    texts = {name: (_HERE / f"simulator{Path(name).suffix}").read_text() for name in (header, source)}
    call.include(header, {name: text.replace("@NAME@", backend).encode() for name, text in texts.items()})
    values = {
        "binary": ("model.bin",),
        "inputs": tuple(f"input{number}.bin" for number in range(len(region.inputs))),
        "outputs": tuple(f"output{number}.bin" for number in range(len(region.outputs))),
        "region": (region.name,),
    }
    argv = [json.dumps(word, ensure_ascii=False) for word in filled(words, values)]  # C has the same escapes
    sizes = [", ".join(str(one.type.bytes) for one in side) for side in call.sides]
    call.lines += [
        f"static const uint32_t input_bytes[] = {{{sizes[0]}}};",
        f"static const uint32_t output_bytes[] = {{{sizes[1]}}};",
        f"static const char *const command[] = {{{', '.join(argv)}, NULL}};",
        f"const struct {backend}_job job = {{",
        f"    command, binary, {binary_bytes},",
        f"    inputs, input_bytes, {len(region.inputs)}, outputs, output_bytes, {len(region.outputs)},",
        f"    {max(1, round(timeout_s))},",
        "};",
        f"return {backend}_simulate(&job);",
    ]


def _header(name: str, device: Device) -> bytes:
    guard = f"{name.upper()}_CALL_H"
    given = "void *resource" if device.resource else "void"
    declared = "".join(f"\nint32_t {hook}({given});" for hook in dict.fromkeys(device.hooks.values()))
    cares = "".join(
        f"\nvoid {care}(const void *address, size_t bytes);" for care in dict.fromkeys(device.caches.values())
    )
    more = ",\n" + " " * len(f"int32_t {name}_run(") + given if device.resource else ""
    around = f"\n/* Called around its work, as mtool.h says: 0, or a status. */{declared}\n" if declared else ""
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
