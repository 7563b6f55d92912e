"""Ethos-U: int8 and uint8 regions on Arm's NPU, compiled by Vela and run by the Ethos-U core driver.

The NPU rounds as TFLite's reference kernels do, so that results are theirs with `--rounding tflite`; elsewhere they may
be one step off, which `--tolerance 1` must allow.
"""

from collections.abc import Mapping
from pathlib import Path

from mtool.base.errors import UsageError
from mtool.compiler.backends.call import CallBuilder
from mtool.compiler.backends.ethos_u import vela
from mtool.compiler.backends.ethos_u.vela import COMPILED, Compiled, precompiled
from mtool.compiler.backends.ethos_u.writing import PATTERNS, padded_name, tflite_of
from mtool.compiler.backends.interface import (
    Backend,
    BackendError,
    Context,
    Operation,
    OperationsRefused,
    Product,
    Region,
)


class EthosU(Backend):
    """Regions of quantized operations on an Ethos-U55, U65 or U85."""

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
                raise UsageError(f"the backend {self.name} has {key}={self.values[key]}, which does not exist")

    def refusal(self, operation: Operation, context: Context) -> str:
        """Also: its arithmetic is not that of the rest of the network; files compiled by Vela are used unchanged."""
        why = super().refusal(operation, context)
        if not why and operation.kind != COMPILED and "config" not in self.values:
            return "config= must name the NPU, for instance config=ethos-u55-128"
        if why or operation.kind == COMPILED or context.rounding == "tflite" or context.tolerance:
            return why
        return "it rounds as TFLite does: give --rounding tflite, or --tolerance 1"

    def claims(self, region: Region) -> str:
        """Refuse a region that adds operations to one that Vela has compiled already."""
        is_alone = len(region.operations) == 1 or all(one.kind != COMPILED for one in region.operations)
        return "" if is_alone else "Vela has compiled a part of it"

    def compile(self, region: Region, folder: Path) -> Product:
        """Return the region as compiled by Vela, now or before."""
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
        """Return the driver's files that are compiled with the calls."""
        if "driver" not in self.values:
            return {}
        paths = sorted(Path(self.values["driver"]).iterdir())
        return {f"{FOLDER}/{path.name}": path.read_bytes() for path in paths if path.suffix in (".c", ".h")}


def _why(operation: Operation, reasons: Mapping[str, str]) -> str:
    """Return why Vela refuses an operation, or the padding before it; "": it does not."""
    tensors = [*(one.tensor for one in operation.outputs), *(padded_name(one) for one in operation.variables)]
    return next((reasons[name] for name in tensors if name in reasons), "")


# The C that has the NPU compute a region, by the Ethos-U core driver.


FOLDER = "ethos_u"
"""The folder of its files, in the model's own."""
_ALIGNMENT = 16  # of all base addresses and of the command stream
_SETUP = 500.0  # instructions of the driver, about

_HEADER = """\
/* Calls of the Ethos-U core driver, whose header ethosu_driver.h and whose sources are the project's. */
#ifndef MT_ETHOS_U_H
#define MT_ETHOS_U_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/*
 * Have the NPU compute a region, and wait for it.
 *
 * commands: what Vela made, of `bytes` bytes; it is aligned to 16 bytes, as all base addresses are.
 * addresses, sizes: of the `count` memories that the command stream knows by their numbers.
 * Returns 0, what ethosu_invoke_v3 returned, or 1 if there was no driver.
 */
int32_t mt_ethos_u_run(const uint8_t *commands, size_t bytes, uint64_t *addresses, const size_t *sizes, int count);

#endif
"""

_SOURCE = """\
#include "mt_ethos_u.h"

#ifdef __has_include
#if !__has_include("ethosu_driver.h")
#define HAS_NO_DRIVER
#endif
#endif

#ifdef HAS_NO_DRIVER
#error "no Ethos-U driver: add its sources and ethosu_driver.h to your build, or --backend ethos_u:driver=DIR does"
#else

#include "ethosu_driver.h" /* the project's own; --backend ethos_u:driver=DIR copies it from a folder */

int32_t mt_ethos_u_run(const uint8_t *commands, size_t bytes, uint64_t *addresses, const size_t *sizes, int count)
{
    struct ethosu_driver *const driver = ethosu_reserve_driver();
    int status;
    if (driver == NULL)
        return 1;
    status = ethosu_invoke_v3(driver, commands, (int)bytes, addresses, sizes, count, NULL);
    ethosu_release_driver(driver);
    return status;
}

#endif
"""


def product_of(region: Region, made: Compiled, driver: Mapping[str, bytes]) -> Product:
    """Return the product for a region that Vela compiled; `driver`: the driver's files, if they are copied.

    The memories lie in the arena one after the other; the region's tensors are copied there and back.

    Raises:
        BackendError: Vela's tensors do not match the region's.
    """
    tensors, places_of = (*region.inputs, *region.outputs), (*made.inputs, *made.outputs)
    sizes = [one.type.bytes for one in tensors]
    if len(made.inputs) != len(region.inputs) or sizes != [one.bytes for one in places_of]:
        what = f"the inputs and outputs in Vela's output do not match {region.name}"
        raise BackendError(what, details=[f"expected bytes: {sizes}", f"found: {[one.bytes for one in places_of]}"])
    call = CallBuilder(region, _ALIGNMENT)
    starts = {
        base: call.reserve(-(-size // _ALIGNMENT) * _ALIGNMENT) if size else 0
        for base, size in enumerate(made.bases)
        if base != made.constant_base and base not in made.same
    }
    constants = "(uintptr_t)constants" if made.constants.size else "(uintptr_t)commands"  # nothing is read there
    places = [
        constants if base == made.constant_base else f"(uintptr_t)(scratch + {starts[made.same.get(base, base)]})"
        for base in range(len(made.bases))
    ]  # fmt: skip
    call.lines += [
        f"uint64_t addresses[{len(places)}] = {{{', '.join(places)}}};",
        f"static const size_t sizes[{len(places)}] = {{{', '.join(map(str, made.bases))}}};",
        *(
            f"memcpy(scratch + {starts[place.base] + place.offset}, input{number}, {place.bytes});"
            for number, place in enumerate(made.inputs)
        ),
        f"const int32_t status = mt_ethos_u_run(commands, {made.commands.size}, addresses, sizes, {len(places)});",
        "if (status != 0)",
        "    return status;",
        *(
            f"memcpy(output{number}, scratch + {starts[place.base] + place.offset}, {place.bytes});"
            for number, place in enumerate(made.outputs)
        ),
        "return 0;",
    ]
    call.headers.append(f"{FOLDER}/mt_ethos_u.h")
    call.files |= {f"{FOLDER}/mt_ethos_u.h": _HEADER.encode(), f"{FOLDER}/mt_ethos_u.c": _SOURCE.encode(), **driver}
    aligned = f"aligned to {_ALIGNMENT} bytes"
    layout = f"{aligned}: the driver's actions and the NPU's command stream, as Vela made them"
    call.constant("commands", made.commands, layout)
    if made.constants.size:
        call.constant("constants", made.constants, f"{aligned}: weights, scales and tables, as Vela encoded them")
    # Without the NPU's cycles, these would be a small part of the time but look like all of it.
    cost = _SETUP + sum(place.bytes for place in places_of) / 4 if made.cycles else 0.0
    return call.product(cost=cost, cycles=made.cycles, can_fail=True)
