"""The host's and the device's side of modules agree."""

import re
from pathlib import Path

from mtool.manifest.modules import exports, format, veneers
from mtool.manifest.modules.format import HEAD_BYTES, SIGNED_BYTES, Kind

CRT = Path(__file__).parents[3] / "crt"
HEADER = (CRT / "include" / "mt_module.h").read_text()
STATEMENT = re.compile(r"__asm__ volatile\(.*?\"memory\"\)", re.DOTALL)


def test_the_table_of_exports_is_the_one_in_c() -> None:
    assert (CRT / "modules" / "mt_module_exports.c").read_text() == exports.c_table()
    assert len(exports.BY_HASH) == len(exports.EXPORTS)
    hashes = [int(found, 16) for found in re.findall(r"EXPORT\((0x\w+)u, ", exports.c_table())]
    assert hashes == sorted(exports.BY_HASH)


def test_numbers_are_those_of_the_header() -> None:
    defined = {name: int(value, 0) for name, value in re.findall(r"#define (MT_\w+) (0x\w+|\d+)u", HEADER)}
    for one in format.Architecture:
        assert defined[f"MT_MACHINE_{one.name}"] == one
    for need in format.Needs:
        assert defined[f"MT_MACHINE_{need.name}"] == need
    assert (defined["MT_MODULE_HEAD_BYTES"], defined["MT_MODULE_SIGNED_BYTES"]) == (HEAD_BYTES, SIGNED_BYTES)
    assert (defined["MT_MODULE_NATIVE"], defined["MT_MODULE_BYTECODE"]) == (Kind.NATIVE, Kind.BYTECODE)


def test_assembly_keeps_the_register_of_modules() -> None:
    """s31, a part of q7, where there is an FPU, which mt_dsp, mt_f32 and mt_mve need; r9 elsewhere; s11 of RISC-V."""
    seen = kept = 0
    for path in (CRT / "include").glob("*.h"):
        text = path.read_text()
        kept += text.count("MT_KEPT(__asm__")
        has_fpu = path.name.startswith(("mt_dsp", "mt_f32", "mt_mve"))
        for found in STATEMENT.finditer(text):
            spoiled = found[0].rpartition(": ")[2]
            wanted = ('"s31"', '"q7"', "MT_F32_REGISTERS") if has_fpu else ('"r9"', '"s31"', '"q7"', '"s11"')
            if any(name in spoiled for name in wanted):
                seen += 1
                assert text[: found.start()].endswith("MT_KEPT("), (path.name, spoiled)
    assert seen == kept > 0


def test_veneers_jump_through_the_table() -> None:
    base = veneers.base_of(format.Architecture.ARMV7EM | format.Needs.FPU)
    assert base is not None and base.register == "s31"
    text = veneers.assembly(base, ["memcpy", "expf"])
    assert "expf:\n    vmov ip, s31\n    ldr.w pc, [ip, #4]\n" in text
    assert veneers.base_of(format.Architecture.ARMV6M) is None and veneers.base_of(0) is None
