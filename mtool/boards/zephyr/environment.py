"""What Zephyr's CMake code needs in its environment: the tree, a compiler, and roots of boards outside the tree."""

import os
from collections.abc import Mapping
from pathlib import Path

from mtool.base import configuration, proc

ROOTS = ("BOARD_ROOT", "SOC_ROOT", "DTS_ROOT", "ARCH_ROOT", "MODULE_EXT_ROOT")

# What Zephyr calls the compilers that it can take from the system, and the variable that says where one is installed:
# {prefix} is the compiler's path without its last word, {folder} the folder above its bin.
VARIANTS: Mapping[str, tuple[str, str, str]] = {
    "arm-none-eabi-gcc": ("gnuarmemb", "GNUARMEMB_TOOLCHAIN_PATH", "{folder}"),
    "riscv64-unknown-elf-gcc": ("cross-compile", "CROSS_COMPILE", "{prefix}"),
    "cc": ("host", "", ""),
}


def roots() -> dict[str, list[Path]]:
    """Return the folders with further boards, chips and bindings: those of the environment, then mtool.toml's.

    Zephyr separates several by semicolons. A path that is not absolute is one of the working folder.
    """
    config = configuration.load()
    found: dict[str, list[Path]] = {}
    for name in ROOTS:
        named = [Path(each) for each in os.environ.get(name, "").split(";") if each]
        paths = [path.absolute() for path in (*named, *getattr(config, name.lower(), ()))]
        if paths:
            found[name] = list(dict.fromkeys(paths))
    return found


def variant_of(compiler: str) -> dict[str, str]:
    """Return the variables that give Zephyr a compiler of the system; none, if one was chosen or an SDK is there.

    Raises:
        BuildError: the compiler is not installed.
    """
    if "ZEPHYR_TOOLCHAIN_VARIANT" in os.environ or has_sdk() or compiler not in VARIANTS:
        return {}
    path = Path(proc.find(compiler, hint="see what installs it: mtool doctor"))
    variant, name, value = VARIANTS[compiler]
    given = {name: value.format(prefix=str(path).removesuffix("gcc"), folder=path.resolve().parents[1])} if name else {}
    return {"ZEPHYR_TOOLCHAIN_VARIANT": variant, **given}


def has_sdk() -> bool:
    """Return whether there is a Zephyr SDK: it is named, or has registered itself with CMake, where Zephyr looks."""
    registered = Path.home() / ".cmake" / "packages" / "Zephyr-sdk"
    return "ZEPHYR_SDK_INSTALL_DIR" in os.environ or any(registered.glob("*"))
