"""The C that has the NPU compute a region, by the Ethos-U core driver."""

from collections.abc import Mapping

from mtool.compiler.backends.call import CallBuilder
from mtool.compiler.backends.ethos_u.vela import Compiled
from mtool.compiler.backends.interface import BackendError, Product, Region

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
    """Return what computes a region that Vela compiled; `driver` are the files of the driver, if it is copied.

    The memories stand in the arena one behind the other; the region's tensors are copied there and back.

    Raises:
        BackendError: Vela's tensors are not the region's.
    """
    tensors, places_of = (*region.inputs, *region.outputs), (*made.inputs, *made.outputs)
    sizes = [one.type.bytes for one in tensors]
    if len(made.inputs) != len(region.inputs) or sizes != [one.bytes for one in places_of]:
        raise BackendError(
            f"Vela has other inputs and outputs than {region.name}",
            details=[f"expected bytes: {sizes}", f"found: {[one.bytes for one in places_of]}"],
        )
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
    # Without the NPU's cycles these would be little of what it takes, and look like all.
    cost = _SETUP + sum(place.bytes for place in places_of) / 4 if made.cycles else 0.0
    return call.product(cost=cost, cycles=made.cycles, can_fail=True)
