"""Qualifiers of constants: an AVR has them in a memory of their own, elsewhere they say nothing."""

from mtool.compiler.kernels.target import Target


def qualified(code: str, target: Target) -> str:
    """Return code for a target: without what says nothing where flash is read as RAM is (crt/include/mt_flash.h)."""
    if target.flash_is_apart:
        return code
    return code.replace("MT_FLASH ", "").replace("MT_FLASH_COPY(", "memcpy(")
