"""json: any accelerator with its own compiler, which gets each region as two JSON files.

The flow is that of Marvell's backend of TVM: nodes and constants as JSON, an external compiler, a model binary that
lies in flash, and a simulator on this computer or a driver on the board that runs it. See docs/backends-json.md.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mtool.base.errors import UsageError
from mtool.base.frozen import frozen
from mtool.compiler.backends.call import CallBuilder
from mtool.compiler.backends.interface import Backend, BackendError, Buffer, Context, Operation, Product, Region
from mtool.compiler.backends.json import device
from mtool.compiler.backends.json.device import Device
from mtool.compiler.backends.json.external_compiler import PLACES, compile_region, files_of, filled, words_of

# The C of a region's call: by a driver of the device, or, on this computer, by its simulator.


SIMULATOR_PLACES = frozenset({"binary", "inputs", "outputs", "region"})
"""The placeholders of a simulator's command."""
_SOURCES = (".c", ".h", ".inc")
_HERE = Path(__file__).parent


@frozen
class Driver:
    """A device's driver: the name before `_run`, and its files by name."""

    name: str
    files: Mapping[str, bytes]


class Call(CallBuilder):
    """A call; float32 tensors at the border are converted to float16 and back if the device needs that.

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
        for side, operands, device_operands, steps, statement in (
            ("input", region.inputs, self.sides[0], self.prepare, "half_{0}[i] = mt_f16_store({0}[i]);"),
            ("output", region.outputs, self.sides[1], self.finish, "{0}[i] = mt_f16_load(half_{0}[i]);"),
        ):
            declarations, loops, names = [], [], []
            for number, (operand, other) in enumerate(zip(operands, device_operands, strict=True)):
                name = f"{side}{number}"
                names.append(f"half_{name}" if operand.dtype is not other.dtype else name)
                if operand.dtype is not other.dtype:
                    place = self.reserve(other.type.bytes)
                    declarations.append(f"uint16_t *const half_{name} = (uint16_t *)(void *)(scratch + {place});")
                    loops.append(f"for (int32_t i = 0; i < {operand.type.count}; ++i)")
                    loops.append(f"    {statement.format(name)}")
            steps += [*declarations, *loops]
            pointers += declarations
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
        UsageError: there is no C file, or the file's name is not valid in C and no other is given.
    """
    paths = [path] if path.is_file() else sorted(path.glob("*")) if path.is_dir() else []
    files = {file.name: file.read_bytes() for file in paths if file.suffix in _SOURCES and file.is_file()}
    if not any(file.endswith(".c") for file in files):
        raise UsageError(f"driver={path}: there is no C file", hint="give a .c file, or a folder of .c and .h files")
    chosen = name or path.stem
    if not chosen.isidentifier() or not chosen.isascii():
        message = f"driver={path}: {chosen} is not a valid name in C"
        raise UsageError(message, hint="name the function: driver_name=NAME")
    return Driver(chosen, files)


def by_driver(call: Call, driver: Driver, device: Device, scratch_bytes: int) -> None:
    """Append the call of `<driver>_run` with its working memory."""
    header = f"{driver.name}_call.h"
    call.include(header, {**driver.files, header: _header(driver.name, device)})
    scratch = "scratch" if scratch_bytes else "NULL"
    resource = ", resource" * device.resource
    call.lines.append(f"return {driver.name}_run(binary, inputs, outputs, {scratch}{resource});")


def by_simulator(call: Call, words: tuple[str, ...], binary_bytes: int, timeout_s: float) -> None:
    """Append the call of a simulator: write input files to a new folder, run it, read output files."""
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
    sizes = [", ".join(str(operand.type.bytes) for operand in side) for side in call.sides]
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
    parameter = "void *resource" if device.resource else "void"
    declared = "".join(f"\nint32_t {hook}({parameter});" for hook in dict.fromkeys(device.hooks.values()))
    cares = "".join(
        f"\nvoid {care}(const void *address, size_t bytes);" for care in dict.fromkeys(device.caches.values())
    )
    more = ",\n" + " " * len(f"int32_t {name}_run(") + parameter if device.resource else ""
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


MODES = ("int8", "float16")
_COPY = 16.0  # instructions for each byte that goes to a device and back
_DEFAULT = Path(__file__).parent / "default.toml"


class Json(Backend):
    """Regions for an external compiler; its binary runs in a simulator on this computer or with a driver on a board."""

    name = "json"
    options: Mapping[str, str] = {
        "device": "the device file, which describes what the accelerator supports and may have the next four",
        "compiler": "the external compiler's command, with {nodes}, {constants}, {output}, {report}, {region}, {mode}",
        "simulator": "the simulator's command, with {binary}, {inputs}, {outputs}, {region}",
        "driver": "the driver: a C file, or a folder of C files and headers",
        "driver_name": "what stands before _run in it; default: the file's or folder's name",
        "memory": "the board's memory where inputs, outputs and scratch of the driver lie; default: the arena's",
        "mode": "int8: tensors as they are (default); float16: float32 is converted to float16 at the border",
        "run": "driver or simulator; default: the simulator on this computer, if there is one",
        "timeout": "the seconds that the compiler may take; default: 60",
    }

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        file = self.values.get("device", "")
        path = Path(file) if file else _DEFAULT
        self.device = device.read(path)
        here = path.resolve().parent if file else None
        self.name, self.layout = self.device.name, self.device.layout
        self.mode = self.one_of("mode", MODES, "int8")
        self.run = self.one_of("run", ("driver", "simulator", ""), "")
        self.timeout_s = self._seconds()
        self.memory = self.values.get("memory", self.device.memory)
        self.compiler = self._words("compiler", here, PLACES)
        self.simulator = self._words("simulator", here, SIMULATOR_PLACES)
        self.driver = self._driver(path)
        if self.run and not getattr(self, self.run):
            raise UsageError(f"the backend {self.name} has run={self.run}, but no {self.run}=")

    def refusal(self, operation: Operation, context: Context) -> str:
        """Also: integers of the device differ from those of the rest of the network."""
        roundings = () if context.tolerance else (context.rounding,)
        on_device = device.operation_on_device(operation) if self.mode == "float16" else operation
        return device.refusal(self.device, on_device, roundings)

    def cost(self, region: Region) -> float | None:
        """Return the cost of a region that only moves elements: the copies at its border; None for any other region."""
        is_moved = all(operation.kind in device.MOVES for operation in region.operations)
        return _COPY * region.border_bytes if is_moved else None

    def claims(self, region: Region) -> str:
        """Return which of the device's limits a region exceeds."""
        return device.too_much(self.device.limits, self._on_device(region))

    def files(self, region: Region) -> Mapping[str, bytes]:
        """Return the files that the external compiler reads."""
        return files_of(self._on_device(region), self.mode)

    def compile(self, region: Region, folder: Path) -> Product:
        """Return the call of the device or of its simulator, with the binary that the external compiler makes."""
        if not self.compiler:
            message = f"the backend {self.name} has no compiler"
            raise BackendError(message, hint="give compiler=CMD, or write only its input files: mtool partition")
        is_simulated = self.run == "simulator" or (
            not self.run and region.context.target.cpu == "host" and bool(self.simulator)
        )
        if not is_simulated and self.driver is None:
            message = f"the backend {self.name} has no driver for {region.context.board}"
            details = [] if not self.simulator else ["its simulator runs only on this computer"]
            raise BackendError(message, details=details, hint="give driver=FILE.c, or a folder")
        on_device = self._on_device(region)
        compiled = compile_region(self.name, self.compiler, on_device, folder, mode=self.mode, timeout_s=self.timeout_s)
        alignment = max(compiled.alignment, self.device.alignment)
        scratch_bytes = 0 if is_simulated else max(compiled.scratch_bytes, self.device.scratch_bytes)
        call = Call(self.name, region, on_device, scratch_bytes, 4 if is_simulated else alignment)
        call.constant("binary", np.frombuffer(compiled.binary, np.uint8), f"what {self.name}'s compiler made")
        more: dict[str, Any] = {"alignment": alignment, "cycles": compiled.cycles, "can_fail": True}
        if is_simulated:
            by_simulator(call, self.simulator, len(compiled.binary), self.timeout_s)
            return call.product(**more)
        assert self.driver is not None
        by_driver(call, self.driver, self.device, scratch_bytes)
        uses = {f"input{number}": "reads" for number in range(len(region.inputs))}
        uses |= {f"output{number}": "writes" for number in range(len(region.outputs))}
        uses |= {"scratch": "both"} if call.scratch_bytes else {}
        if self.memory:
            more["buffers"] = dict.fromkeys(uses, Buffer(self.memory, alignment=alignment, cached=self.device.cached))
        if self.device.caches:
            more |= {"caches": self.device.caches, "device": uses | {"binary": "reads"}, "tensor_alignment": alignment}
        return call.product(hooks=self.device.hooks, resource=self.device.resource, **more)

    def _on_device(self, region: Region) -> Region:
        return device.on_device(region) if self.mode == "float16" else region

    def _seconds(self) -> float:
        text = self.values.get("timeout", "60")
        if not re.fullmatch(r"\d{1,5}(\.\d{1,3})?", text, re.ASCII) or not float(text):
            raise UsageError(f"the backend {self.name} has timeout={text}; expected seconds")
        return float(text)

    def _words(self, key: str, here: Path | None, places: frozenset[str]) -> tuple[str, ...]:
        text = self.values.get(key, getattr(self.device, key))
        return words_of(text, key, here, places) if text or key in self.values else ()

    def _driver(self, path: Path) -> Driver | None:
        name = self.values.get("driver_name", self.device.driver_name)
        if "driver" in self.values:
            return driver_of(Path(self.values["driver"]), name)
        return driver_of(path.parent / self.device.driver, name) if self.device.driver else None
