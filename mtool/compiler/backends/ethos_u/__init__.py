"""Ethos-U: int8 and uint8 regions by Arm's NPU, compiled by Vela and run by the Ethos-U core driver.

The NPU rounds as TFLite's reference kernels do, so that results are theirs with `--rounding tflite`; elsewhere they may
be one step off, and `--tolerance 1` has to allow that.
"""

from collections.abc import Mapping
from pathlib import Path

from mtool.base.errors import UsageError
from mtool.compiler.backends.ethos_u import vela
from mtool.compiler.backends.ethos_u.call import FOLDER, product_of
from mtool.compiler.backends.ethos_u.claiming import PATTERNS
from mtool.compiler.backends.ethos_u.vela import COMPILED, precompiled
from mtool.compiler.backends.ethos_u.writing import padded_name, tflite_of
from mtool.compiler.backends.interface import Backend, Context, Operation, OperationsRefused, Product, Region


class EthosU(Backend):
    """Regions of quantised operations by an Ethos-U55, U65 or U85."""

    name = "ethos_u"
    layout = "NHWC"
    patterns = PATTERNS
    options: Mapping[str, str] = {
        "config": f"the NPU: {', '.join(vela.CONFIGURATIONS)}",
        "system": "a system configuration of Vela, or of the file `ini`: clocks and memories' speeds",
        "memory": "a memory mode of Vela, or of the file `ini`: Shared_Sram, Sram_Only, Dedicated_Sram",
        "ini": "a configuration file of Vela's",
        "optimise": "Performance or Size; default: Performance",
        "driver": "a folder with ethosu_driver.h and C sources that the project has not by itself",
    }

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self.one_of("config", ("", *vela.CONFIGURATIONS))
        self.one_of("optimise", ("Performance", "Size"), "Performance")
        for key, is_there in (("ini", Path.is_file), ("driver", Path.is_dir)):
            if key in self.values and not is_there(Path(self.values[key])):
                raise UsageError(f"the backend {self.name} has {key}={self.values[key]}, which is not there")

    def refusal(self, operation: Operation, context: Context) -> str:
        """Also: its arithmetic is not that of the rest of the network; what Vela has compiled is what it is."""
        why = super().refusal(operation, context)
        if not why and operation.kind != COMPILED and "config" not in self.values:
            return "config= has to say for which NPU, for instance config=ethos-u55-128"
        if why or operation.kind == COMPILED or context.rounding == "tflite" or context.tolerance:
            return why
        return "it rounds as TFLite does: give --rounding tflite, or --tolerance 1"

    def claims(self, region: Region) -> str:
        """Return that what Vela has compiled is a region by itself, if it is not."""
        is_alone = len(region.operations) == 1 or all(one.kind != COMPILED for one in region.operations)
        return "" if is_alone else "Vela has compiled a part of it"

    def compile(self, region: Region, folder: Path) -> Product:
        """Return the region as Vela compiles it, or has compiled it."""
        if region.operations[0].kind == COMPILED:
            return product_of(region, precompiled(region.operations[0]), self._driver())
        path = folder / f"{region.name}.tflite"
        path.write_bytes(tflite_of(region))
        names = [f"{one.kind} {', '.join(one.origins) or one.name}" for one in region.operations]
        try:
            made = vela.compiled(path, self._vela_options(), names)
        except OperationsRefused as failed:
            reasons = {one.name: why for one in region.operations if (why := _why(one, failed.reasons))}
            raise OperationsRefused(failed.what, reasons, details=failed.details, hint=failed.hint) from failed
        return product_of(region, made, self._driver())

    def _vela_options(self) -> list[str]:
        names = {"config": "accelerator-config", "system": "system-config", "memory": "memory-mode"}
        names |= {"ini": "config", "optimise": "optimise"}
        values = {names[key]: value for key, value in self.values.items() if key in names}
        if "ini" in self.values:
            values["config"] = str(Path(self.values["ini"]).resolve())
        return [f"--{name}={value}" for name, value in values.items()]

    def _driver(self) -> dict[str, bytes]:
        """Return the files of the driver that stand beside the calls."""
        if "driver" not in self.values:
            return {}
        paths = sorted(Path(self.values["driver"]).iterdir())
        return {f"{FOLDER}/{path.name}": path.read_bytes() for path in paths if path.suffix in (".c", ".h")}


def _why(operation: Operation, reasons: Mapping[str, str]) -> str:
    """Return why Vela refuses an operation, or the padding before it; "": it does not."""
    tensors = [*(one.tensor for one in operation.outputs), *(padded_name(one) for one in operation.variables)]
    return next((reasons[name] for name in tensors if name in reasons), "")
