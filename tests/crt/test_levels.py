"""SIMD32 assembly, which takes many registers, compiles at each optimization level, inlined anywhere."""

import subprocess
from pathlib import Path

import amount
import pytest

from mtool.boards import get
from tests.crt import firmware

LEVELS = ("-O0", "-Og", "-O1", "-Os", "-O2", "-O3")
HARDER = ("-fno-ivopts", "-fno-omit-frame-pointer", "-flto", "-ffat-lto-objects")
WITH_SIMD32 = ("mps2_an386", "stm32f746g_disco", "mps3_an547")

TILES = ("MT_DSP_COLUMNS", "MT_DSP_COLUMNS_2X2")
SCALINGS = ("MT_BY_FLOAT", "MT_ONCE", "MT_TWICE", "MT_EXACT + 4")
SLIDES = {
    "mt_dsp_slide": "3, 0.5f",
    "mt_dsp_slide_by": "&by, MT_TWICE",
    "mt_dsp_slide_exact": "&by, 4",
    "mt_dsp_slide_sized": "&by, 4",
}


def instances() -> list[str]:
    """Every function of tiles and of dense layers that a model's operators may share: its name and its macro's call."""
    found = []
    for by in SCALINGS:
        for tile in TILES:
            for loop in ("3, 0", "0, 4"):
                for apart in (0, 1):
                    found += [f"{tile}_PLAIN(f{{}}, {loop}, {apart}, {by})"]
                    found += [f"{tile}_RANGE(f{{}}, {loop}, {apart}, {by}, 1)"]
        for fields in ("8, 2, 64", "8, 2, 0", "4, 1, 64", "4, 1, 0"):
            found += [f"MT_DSP_COLUMNS_3X4_PLAIN(f{{}}, {fields}, {by})"]
            found += [f"MT_DSP_COLUMNS_3X4_RANGE(f{{}}, {fields}, {by}, 1)"]
        found += [f"MT_DSP_ROWS_PLAIN(f{{}}, 8, {by})", f"MT_DSP_ROWS_RANGE(f{{}}, 8, {by}, 1)"]
    for bits in ("8, 0", "4, 999", "2, 64", "1, 64"):
        found += [f"MT_DSP_ROWS8_PLAIN(f{{}}, 4, {bits}, MT_EXACT + 4)"]
        found += [f"MT_DSP_ROWS8_RANGE(f{{}}, 4, {bits}, MT_EXACT + 4, 1)"]
    return [one.format(number) for number, one in enumerate(found)]


def planes() -> list[str]:
    """Depthwise layers, which are written out where a model calls them: here, where 12 other values are live."""
    lines = []
    kept = [f"k{number}" for number in range(12)]
    for name, scaling in SLIDES.items():
        for stride, limits, offset in ((1, "-128, 127", 0), (2, "-11, 100", -7)):
            zero = "" if name == "mt_dsp_slide_exact" else "-5, "
            sizes, floats = ("&sizes", "1, ") if name == "mt_dsp_slide_sized" else ("3, 5, 25, 5", "")
            weights = f"scratch, output, weights + 3, {int(offset != 0) if floats else offset}"
            lines += [
                f"void {name}{stride}(const int8_t *input, int8_t *output, const uint32_t *weights, int16_t *scratch);",
                f"void {name}{stride}(const int8_t *input, int8_t *output, const uint32_t *weights, int16_t *scratch)",
                "{",
                "    int32_t " + ", ".join(f"{one} = input[{number}]" for number, one in enumerate(kept)) + ";",
                "    for (int32_t c = 0; c < 5; ++c, ++input, ++output, weights += 6) {",
                "        struct mt_dsp_fixed by;",
                "        const struct mt_dsp_plane_sizes sizes = {k0, k1, k2, k3, k4};" * ("sizes" in sizes),
                "        memcpy(&by, weights, sizeof(by));",
                "        scratch[c] = *input;",
                f"        {name}({weights}, {scaling}, 12, {stride},",
                f"                     {sizes}, {floats}{zero}{limits});",
                *(f"        {one} += {other} ^ c;" for one, other in zip(kept, kept[1:] + kept[:1], strict=True)),
                "    }",
                f"    *output = (int8_t)({' ^ '.join(kept)});",
                "}",
            ]
    return lines


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS if amount.IS_ALL else ("-Og", "-Os", "-O2"))
@pytest.mark.parametrize("harder", [(), *((one,) for one in HARDER[:2]), HARDER], ids=" ".join)
@pytest.mark.parametrize("fpu", [(), ("-mfloat-abi=soft",)], ids=["fpu", "no_fpu"])
@pytest.mark.parametrize("name", WITH_SIMD32)
def test_simd32_compiles(name: str, fpu: tuple[str, ...], harder: tuple[str, ...], level: str, tmp_path: Path) -> None:
    if not amount.IS_ALL and (name, harder) != ("mps2_an386", HARDER):
        pytest.skip("a part: MTOOL_TESTS=all tries every core and option")
    headers = ("tile_3x2", "tile_2x2", "tile_3x4", "gemv", "depthwise3x3")
    functions = instances()
    lines = [f'#include "mt_dsp_{name}_int8.h"' for name in headers] + functions + planes()
    lines += ["typedef void (*any)(void);", "extern const any all[];"]
    lines += ["const any all[] = {" + ", ".join(f"(any)f{number}" for number in range(len(functions))) + "};"]
    (tmp_path / "all.c").write_text("\n".join(lines) + "\n")
    board = get(name)
    flags = [*board.cflags, "-std=c99", "-Wall", "-Wextra", "-Werror", f"-I{firmware.CRT / 'include'}", *harder, *fpu]
    subprocess.run([board.toolchain, *flags, level, "-c", "all.c"], cwd=tmp_path, check=True)


def test_bytecode_compiles_without_an_fpu(tmp_path: Path) -> None:
    board = get("mps2_an386")
    flags = [*board.cflags, "-mfloat-abi=soft", "-std=c99", "-O1", "-Werror", f"-I{firmware.CRT / 'include'}"]
    sources = sorted((firmware.CRT / "bytecode").glob("mt_bytecode*.c"))
    subprocess.run([board.toolchain, *flags, "-fsyntax-only", *sources], cwd=tmp_path, check=True)


@pytest.mark.parametrize(
    ("header", "size", "call"),
    [
        ("tile_3x2", "MT_DSP_MAC4_SIZE", "MT_DSP_COLUMNS_PLAIN(f, 0, 4, 0, MT_ONCE)"),
        ("tile_3x2", "MT_DSP_APART4_SIZE", "MT_DSP_COLUMNS_PLAIN(f, 0, 4, 1, MT_ONCE)"),
        ("tile_2x2", "MT_DSP_2X2_MAC4_SIZE", "MT_DSP_COLUMNS_2X2_PLAIN(f, 0, 4, 0, MT_ONCE)"),
        ("tile_2x2", "MT_DSP_2X2_APART4_SIZE", "MT_DSP_COLUMNS_2X2_PLAIN(f, 0, 4, 1, MT_ONCE)"),
        ("tile_3x4", "MT_DSP_3X4_WORD1_SIZE", "MT_DSP_COLUMNS_3X4_PLAIN(f, 4, 1, 0, MT_ONCE)"),
        ("tile_3x4", "MT_DSP_3X4_WORD2_SIZE", "MT_DSP_COLUMNS_3X4_PLAIN(f, 4, 2, 0, MT_ONCE)"),
        ("gemv", "MT_DSP_ROW8_4_SIZE", "MT_DSP_ROWS8_PLAIN(f, 4, 8, 0, MT_EXACT + 4)"),
        ("gemv", "MT_DSP_ROW8_4_BITS_SIZE", "MT_DSP_ROWS8_PLAIN(f, 4, 4, 999, MT_EXACT + 4)"),
        ("gemv", "MT_DSP_ROW8_4_FIELDS_SIZE", "MT_DSP_ROWS8_PLAIN(f, 4, 2, 64, MT_EXACT + 4)"),
    ],
)
def test_a_loop_of_another_size_than_its_entry_jumps_by_is_an_error(
    header: str, size: str, call: str, tmp_path: Path
) -> None:
    name = f"mt_dsp_{header}_int8.h"
    text = (firmware.CRT / "include" / name).read_text()
    (tmp_path / name).write_text(text.replace(f"#define {size} ", f"#define {size} 4 + "))
    (tmp_path / "one.c").write_text(
        f'#include "{name}"\n{call}\nextern const void *all;\nconst void *all = (void *)f;\n'
    )
    board = get("mps2_an386")
    flags = [*board.cflags, "-std=c99", "-O2", f"-I{tmp_path}", f"-I{firmware.CRT / 'include'}"]
    done = subprocess.run([board.toolchain, *flags, "-c", "one.c"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode and "by which its entry jumps" in done.stderr
