"""The costs of calling conventions: the table is complete, and the typed image contains nothing of the others."""

import re
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import models
import onnx
import pytest
from elftools.elf.elffile import ELFFile
from script import load

from mtool import boards, commands
from mtool.compiler.codegen import Conventions, conventions

ROOT = Path(__file__).parents[2]
BOARD = "mps2_an386"
MOST_ENTRY_BYTES = 64
OTHERS = re.compile(r"mt_(packed|tensor|functions|graph|server|link|cobs|crc32|model|work)|_packed$|_functions$|_rpc")

pytestmark = pytest.mark.skipif(
    any(shutil.which(program) is None for program in ("arm-none-eabi-gcc", "qemu-system-arm", "cmake", "ninja")),
    reason="the Arm toolchain or QEMU is not installed",
)


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load("aot_table")


@pytest.fixture(scope="module")
def speech(script: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("speech") / "micro_speech.onnx"
    onnx.save(script.micro_speech(), path)
    return path


def symbols(elf: Path) -> set[str]:
    with elf.open("rb") as file:
        return {symbol.name for symbol in ELFFile(file).get_section_by_name(".symtab").iter_symbols()}


def built(path: Path, folder: Path, chosen: Conventions) -> commands.BuiltProject:
    options = commands.Options(conventions=chosen)
    return commands.prepare(path, board=BOARD, folder=folder, options=options, kinds=commands.ALL_KINDS)


def test_the_model_is_what_others_call_micro_speech(speech: Path) -> None:
    found = commands.compile(speech, board=BOARD).manifest
    assert [tensor.shape for tensor in (*found.inputs, *found.outputs)] == [(1, 49, 40, 1), (1, 4)]
    assert found.macs == 25 * 20 * 8 * 10 * 8 + 4000 * 4


@pytest.mark.slow
def test_a_typed_image_links_nothing_of_the_others(speech: Path, tmp_path: Path) -> None:
    prepared = built(speech, tmp_path / "typed", conventions())
    alone = symbols(prepared.built.firmware["standalone"])
    assert "micro_speech_run" in alone
    assert not [name for name in alone if OTHERS.search(name)]
    driven = symbols(prepared.built.firmware["host_driven"])
    assert "mt_server_run" in driven
    assert not [name for name in driven if name.startswith(("mt_packed", "mt_functions", "mt_graph"))]


@pytest.mark.slow
def test_a_packed_image_has_them_and_no_server(speech: Path, tmp_path: Path) -> None:
    prepared = built(speech, tmp_path / "packed", conventions("packed", "packed"))
    alone = symbols(prepared.built.firmware["standalone"])
    assert {"micro_speech_run", "micro_speech_conv_0_packed"} <= alone
    assert any(name.startswith("mt_packed_check") for name in alone)  # the compiler may make it a version of its own
    assert not [name for name in alone if name.startswith(("mt_server", "mt_link", "mt_functions", "mt_graph"))]
    assert "mt_functions_invoke" in symbols(prepared.built.firmware["host_driven"])


def entry_frame(path: Path, folder: Path) -> int:
    """Return the stack of the typed entry point: what lies above an operator's own frame."""
    folder.mkdir()
    compiled = commands.compile(path, board=BOARD)
    for name, data in compiled.sources().files.items():
        (folder / name).write_bytes(data)
    flags = ["-O2", "-std=c99", "-fstack-usage", "-I.", *boards.get(BOARD).cflags]
    name = compiled.manifest.model
    subprocess.run(["arm-none-eabi-gcc", *flags, "-c", f"{name}.c"], cwd=folder, check=True)
    usage = (folder / f"{name}.su").read_text()
    found = re.search(rf":{name}_run\t(\d+)\tstatic$", usage, re.MULTILINE)
    assert found is not None, usage
    return int(found[1])


def test_the_typed_entry_point_costs_little_stack(speech: Path, tmp_path: Path) -> None:
    assert entry_frame(speech, tmp_path / "speech") <= MOST_ENTRY_BYTES


@models.needed
def test_the_typed_entry_point_of_kws_costs_little_stack(tmp_path: Path) -> None:
    assert entry_frame(models.path("kws/kws_int8_qdq"), tmp_path / "kws") <= MOST_ENTRY_BYTES


@pytest.mark.slow
def test_the_rows(script: ModuleType, speech: Path) -> None:
    assert list(script.RFC) == list(script.ROWS)[:4]
    rows = {name: script.measure(speech, BOARD, script.ROWS[name][1]) for name in script.RFC}
    texts, stacks = [row.text for row in rows.values()], [row.stack for row in rows.values()]
    assert texts == sorted(texts, reverse=True) and stacks == sorted(stacks, reverse=True)
    assert stacks[0] - stacks[-1] > 200
    units = {("a model", "-Os"): ((900, 700), (800, 690))}
    page = script.markdown({"a model": rows}, BOARD, units)
    assert "| a model | `-Os` | 900 | 800 | 100 | 700 | 690 | 10 |" in page
    for name, row in rows.items():
        saved = rows["packed"].total - row.total
        figures = f"{row.text:,} | {row.data:,} | {row.bss:,} | {row.total:,} | {saved:,} | {row.stack:,} |"
        assert f"| {name} |" in page and figures in page


def test_the_page_is_of_this_script(script: ModuleType) -> None:
    page = (ROOT / "docs" / "aot-table.md").read_text()
    for name, (options, _) in script.ROWS.items():
        assert f"| {name} | " in page and options in page
