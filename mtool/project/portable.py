"""One package for many cores: the model's C for each kind of core, selected by the compiler's macros."""

from collections.abc import Mapping, Sequence

from mtool.base.filetree import FileTree
from mtool.base.frozen import frozen
from mtool.base.option_values import Format
from mtool.manifest import Manifest, total_arena_bytes, total_constant_bytes


@frozen
class Core:
    """A kind of core: the macros that identify it, and the board for which its C is compiled.

    `lacks` are the board's features that the kind does not have. `ram` and `flash` are the most bytes that one of the
    kind has; 0: no limit.
    """

    name: str
    macros: str
    board: str
    describes: str
    ram: int = 0
    flash: int = 0
    lacks: frozenset[str] = frozenset()

    def refusal(self, manifest: Manifest) -> str:
        """Return why a firmware's models fit no core of this kind; "": they fit one."""
        for what, needs, most in (
            ("RAM", total_arena_bytes(manifest.models), self.ram),
            ("flash", total_constant_bytes(manifest.models), self.flash),
        ):
            if most and needs > most:
                return f"it needs {needs:,} bytes of {what}, and these cores have at most {most:,}"
        return ""


# The ATmega1284 has the most RAM, the ATmega2560 the most flash.
_AVR = Core(
    "avr", "defined(__AVR__)", "arduino_mega2560", "8-bit AVR: constants are read from flash", 16 << 10, 256 << 10
)
_MVE = Core(
    "mve", "defined(__ARM_FEATURE_MVE) && (__ARM_FEATURE_MVE & 2)", "mps3_an547", "Cortex-M55, M85: Helium with floats"
)
_DSP = Core(
    "dsp",
    "defined(__ARM_FEATURE_DSP) && defined(__ARM_FP)",
    "mps2_an386",
    "Cortex-M4, M7, M33 with FPU: SIMD in 32 bits",
)
_DSP_NO_FPU = Core(
    "dsp_no_fpu", "defined(__ARM_FEATURE_DSP)", "mps2_an386", "Cortex-M4, M33 without FPU: SIMD in 32 bits",
    lacks=frozenset({"fpu"}),
)  # fmt: skip
_XTENSA = Core("xtensa", "defined(__XTENSA__)", "esp32s3_devkitc", "Xtensa: ESP32, ESP32-S2, ESP32-S3")
_RISCV = Core("riscv", "", "esp32c3_devkitm", "RISC-V: ESP32-C3, C6, H2, P4")
_PLAIN = Core("plain", "", "mps2_an385", "any other core of 32 bits: C99 alone")

CORES: Mapping[Format, tuple[Core, ...]] = {
    "arduino-lib": (_AVR, _MVE, _DSP, _DSP_NO_FPU, _XTENSA, _PLAIN),
    "platformio-lib": (_AVR, _MVE, _DSP, _DSP_NO_FPU, _XTENSA, _PLAIN),
    "idf-component": (_XTENSA, _RISCV),
    "cmsis-pack": (_MVE, _DSP, _DSP_NO_FPU, _PLAIN),
    "zephyr-module": (_MVE, _DSP, _DSP_NO_FPU, _PLAIN),
}
"""The packages for many cores, unless a board is given; the first core whose macros match is used."""

_QUIET = "MTOOL_QUIET"
"""The macro with which a package for many cores does not print for which one it is compiled."""


def merged(
    model: str,
    variants: Mapping[Core, FileTree],
    refused: Mapping[Core, str] | None = None,
    *,
    models: Sequence[str] = (),
) -> FileTree:
    """Return the sources of all cores in one folder.

    Args:
        model: the C name of the model, or of a firmware of several.
        variants: each core's sources, with the runtime headers that they include; the last one is the fallback.
        refused: the cores that can't run the model, and why; there, the reason becomes a compiler error.
        models: the C names of the firmware's models.

    The runtime is included once; files other than C are left out. Each core has its own files of the model in a folder
    with its name; a header of the model includes the core's, and a source for another core compiles to nothing.
    """
    files: dict[str, bytes] = {}
    chooser = f"{model}_core.h"
    names = models or (model,)
    prefixes = tuple(f"{name}{end}" for name in {model, *names} for end in "._")
    for core, sources in variants.items():
        for name in sources:
            if not name.startswith(prefixes):
                files |= {name: sources[name]} if name.endswith((".c", ".h")) else {}
            elif name.endswith(".c"):
                says = _report(model, core) if name == f"{names[0]}.c" else ""
                files[f"{core.name}/{name[:-2]}_{core.name}.c"] = _guarded(model, core, sources[name], says)
            elif name.endswith(".h"):
                files[f"{core.name}/{name}"] = sources[name]
                files[name] = _leads(model, name, [core for core in variants if name in variants[core]])
    return FileTree({**files, chooser: _chooser(model, [*variants], refused or {})})


def _macro(model: str, core: Core) -> str:
    return f"{model.upper()}_CORE_{core.name.upper()}"


def _chooser(model: str, cores: list[Core], refused: Mapping[Core, str]) -> bytes:
    guard = f"{model.upper()}_CORE_H"
    says = "/* The core that the compiler compiles for, by its own macros. */"
    choices = [(core.macros, f'#error "{model}: {why}"') for core, why in refused.items()]
    choices += [(core.macros, f"#define {_macro(model, core)} /* {core.describes} */") for core in cores]
    lines = [says, f"#ifndef {guard}", f"#define {guard}", ""]
    for number, (macros, line) in enumerate(choices):
        last = number == len(choices) - 1
        lines += ["#else" if last and number else f"#{'el' if number else ''}if {macros or '1'}", line]
    return "\n".join([*lines, "#endif", "", "#endif", ""]).encode()


def _leads(model: str, name: str, cores: list[Core]) -> bytes:
    lines = [f"/* {name} of the core. */", f'#include "{model}_core.h"', ""]
    for core in cores:
        lines += [f"#ifdef {_macro(model, core)}", f'#include "{core.name}/{name}"', "#endif"]
    return "\n".join([*lines, ""]).encode()


def _report(model: str, core: Core) -> str:
    """Return the C with which the compiler prints, once in a build, for which core it compiles a model."""
    message = f'#pragma message("{model}: {core.describes}")'
    return f"""#ifndef {_QUIET}
#ifdef __clang__ /* to which a message is a warning, and with -Werror an error */
#pragma clang diagnostic push
#pragma clang diagnostic warning "-W#pragma-messages"
{message}
#pragma clang diagnostic pop
#elif defined(__GNUC__)
{message}
#endif
#endif
"""


def _guarded(model: str, core: Core, source: bytes, says: str) -> bytes:
    begin = f'#include "{model}_core.h"\n\n#ifdef {_macro(model, core)}\n{says}'
    end = f"#else\ntypedef int {model}_is_for_another_core; /* C wants something in a file */\n#endif\n"
    return begin.encode() + source + end.encode()
