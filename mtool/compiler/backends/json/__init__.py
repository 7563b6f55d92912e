"""json: any accelerator with a compiler of its own, which gets each region as two JSON files.

The flow is that of Marvell's backend of TVM: nodes and constants as JSON, an external compiler, a model binary that
lies in flash, and a simulator on this computer or a driver on the board that runs it. docs/backends-json.md has it all.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mtool.base.errors import UsageError
from mtool.compiler.backends.interface import Backend, BackendError, Buffer, Context, Operation, Product, Region
from mtool.compiler.backends.json import call, device
from mtool.compiler.backends.json.external_compiler import PLACES, compile_region, files_of, words_of

MODES = ("int8", "float16")
_COPY = 16.0  # instructions for each byte that goes to a device and back
_DEFAULT = Path(__file__).parent / "default.toml"


class Json(Backend):
    """Regions for an external compiler; its binary runs in a simulator here, and by a driver on a board."""

    name = "json"
    options: Mapping[str, str] = {
        "device": "the device file, which says what the accelerator takes and may have the next four",
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
        given = self.values.get("device", "")
        path = Path(given) if given else _DEFAULT
        self.device = device.read(path)
        here = path.resolve().parent if given else None
        self.name, self.layout = self.device.name, self.device.layout
        self.mode = self.one_of("mode", MODES, "int8")
        self.run = self.one_of("run", ("driver", "simulator", ""), "")
        self.timeout_s = self._seconds()
        self.memory = self.values.get("memory", self.device.memory)
        self.compiler = self._words("compiler", here, PLACES)
        self.simulator = self._words("simulator", here, call.SIMULATOR_PLACES)
        self.driver = self._driver(path)
        if self.run and not getattr(self, self.run):
            raise UsageError(f"the backend {self.name} has run={self.run}, and no {self.run}=")

    def refusal(self, operation: Operation, context: Context) -> str:
        """Also: integers of the device differ from those of the rest of the network."""
        roundings = () if context.tolerance else (context.rounding,)
        own = device.operation_on_device(operation) if self.mode == "float16" else operation
        return device.refusal(self.device, own, roundings)

    def cost(self, region: Region) -> float | None:
        """Return what a region costs that only moves elements: the copies at its border; others are worth theirs."""
        is_moved = all(one.kind in device.MOVES for one in region.operations)
        return _COPY * region.border_bytes if is_moved else None

    def claims(self, region: Region) -> str:
        """Return what of a region is more than the device has."""
        return device.too_much(self.device.limits, self._on_device(region))

    def files(self, region: Region) -> Mapping[str, bytes]:
        """Return the files that the external compiler reads."""
        return files_of(self._on_device(region), self.mode)

    def compile(self, region: Region, folder: Path) -> Product:
        """Return the call of the device or of its simulator, with the binary that the external compiler makes."""
        if not self.compiler:
            raise BackendError(
                f"the backend {self.name} has no compiler",
                hint="give compiler=CMD, or write its files alone: mtool partition",
            )
        is_simulated = self.run == "simulator" or (
            not self.run and region.context.target.cpu == "host" and bool(self.simulator)
        )
        if not is_simulated and self.driver is None:
            raise BackendError(
                f"the backend {self.name} has no driver for {region.context.board}",
                details=[] if not self.simulator else ["its simulator runs on this computer alone"],
                hint="give driver=FILE.c, or a folder",
            )
        own = self._on_device(region)
        made = compile_region(self.name, self.compiler, own, folder, mode=self.mode, timeout_s=self.timeout_s)
        alignment = max(made.alignment, self.device.alignment)
        scratch_bytes = 0 if is_simulated else max(made.scratch_bytes, self.device.scratch_bytes)
        of = call.Call(self.name, region, own, scratch_bytes, 4 if is_simulated else alignment)
        of.constant("binary", np.frombuffer(made.binary, np.uint8), f"what {self.name}'s compiler made")
        more: dict[str, Any] = {"alignment": alignment, "cycles": made.cycles, "can_fail": True}
        if is_simulated:
            call.by_simulator(of, self.simulator, len(made.binary), self.timeout_s)
            return of.product(**more)
        assert self.driver is not None
        call.by_driver(of, self.driver, self.device, scratch_bytes)
        uses = {f"input{number}": "reads" for number in range(len(region.inputs))}
        uses |= {f"output{number}": "writes" for number in range(len(region.outputs))}
        uses |= {"scratch": "both"} if of.scratch_bytes else {}
        if self.memory:
            more["buffers"] = dict.fromkeys(uses, Buffer(self.memory, alignment=alignment, cached=self.device.cached))
        if self.device.caches:
            more |= {"caches": self.device.caches, "device": uses | {"binary": "reads"}, "tensor_alignment": alignment}
        return of.product(hooks=self.device.hooks, resource=self.device.resource, **more)

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

    def _driver(self, path: Path) -> call.Driver | None:
        name = self.values.get("driver_name", self.device.driver_name)
        if "driver" in self.values:
            return call.driver_of(Path(self.values["driver"]), name)
        return call.driver_of(path.parent / self.device.driver, name) if self.device.driver else None
