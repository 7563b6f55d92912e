"""How a module names a function of the firmware: by a hash of its declaration."""

_OFFSET, _PRIME = 0x811C9DC5, 0x01000193


def declaration_hash(declaration: str) -> int:
    """Return FNV-1a, 32 bits, of a C declaration as docs/modules.md writes it: "float expf(float)"."""
    value = _OFFSET
    for byte in declaration.encode("ascii"):
        value = (value ^ byte) * _PRIME & 0xFFFFFFFF
    return value
