"""The protected areas of a model, in whole granules that contain nothing else; and models without protection."""

import re
from pathlib import Path
from typing import Any

import onnx
import pytest
import stateful

import mtool
from mtool import boards, commands
from mtool.boards.protection import needed_unit, unit_of
from mtool.cli import app
from mtool.manifest import Manifest
from mtool.stages.options import protects

DIGITS = Path(__file__).parents[3] / "examples" / "digits" / "digits_int8.onnx"
V7, V8, PMP = needed_unit("cortex-m4"), needed_unit("cortex-m55"), needed_unit("rv32imc")


def regions(start: int, size: int) -> int:
    """Return how many regions of PMSAv7 cover an area: powers of two at a multiple of them, in eighths."""
    end, count = start + size, 0
    while start < end:
        reach = start
        for order in range(8, 33):
            eighth = 1 << (order - 3)
            if start % eighth == 0:
                reach = max(reach, min((start >> order) + 1 << order, end // eighth * eighth))
        assert reach > start
        start, count = reach, count + 1
    return count


@pytest.mark.parametrize("size", [1, 32, 33, 255, 256, 257, 768, 8796, 28228, 65536, 65537])
def test_granules_of_pmsa_v7_are_covered_by_two_regions(size: int) -> None:
    granule, padded = V7.granule(size), V7.padded(size)
    assert padded % granule == 0 and size <= padded < size + granule and granule <= max(32, size // 4 + 1)
    assert max(regions(at * granule, padded) for at in range(16)) <= 2
    assert regions(V7.window(size), padded) == 1
    assert (V8.granule(size), PMP.granule(size)) == (32, 16)


@pytest.mark.parametrize("board", ["mps2_an386", "mps3_an547", "qemu_riscv32"])
def test_models_of_one_arena_have_their_own_of_it(board: str, tmp_path: Path) -> None:
    proto, pairs = stateful.recurrent("GRU", "torch", 1)
    onnx.save(proto, tmp_path / "cell.onnx")
    options = [mtool.Options(states=tuple(pairs), name=name, protect=True) for name in ("left", "right")]
    options.insert(1, mtool.Options(protect=True))
    models = mtool.compile_models(
        [tmp_path / "cell.onnx", DIGITS, tmp_path / "cell.onnx"], board=board, options=options
    )
    manifests = [one.manifest for one in models]
    unit = needed_unit(boards.get(board).cpu)
    for one in manifests:
        own = spans(one)
        for state in one.states:
            assert any(begin <= state.arena_offset and state.arena_offset + state.bytes <= end for begin, end in own)
        for tensor in (*one.inputs, *one.outputs):
            assert tensor.arena_offset is not None
            assert any(begin <= tensor.arena_offset <= tensor.arena_offset + tensor.bytes <= end for begin, end in own)
        for other in manifests:
            kept = [(state.arena_offset, state.arena_offset + state.bytes) for state in other.states]
            assert other is one or not any(begin < last and first < end for begin, end in own for first, last in kept)
        assert one.protection is not None and all(
            area.offset % area.granule == 0 and area.bytes % area.granule == 0 and area.granule % unit.least == 0
            for area in one.protection.areas
        )
    source = models[0].files["left_digits_int8_right.c"].decode()
    end = max(end for one in manifests for _, end in spans(one))
    assert f"left_digits_int8_right_arena[{end}];" in source


def spans(one: Manifest) -> list[tuple[int, int]]:
    """Return the parts of the arena that a model has while it runs."""
    assert one.protection is not None
    return [
        (area.offset, area.offset + area.bytes) for area in one.protection.areas if area.name in ("arena", "states")
    ]


@pytest.mark.parametrize(
    ("words", "reported"),
    [
        ("--board host", "host has none that mtool knows"),
        ("--board mps2_an383", "cortex-m0plus has none"),
        ("--board arduino_mega2560", "has none that mtool knows"),
        ("--board qemu_riscv64", "leave out --protect; cores that have it: cortex-m3, "),
        ("--board qemu_riscv32 --template zephyr", "leave out --protect, or use --template baremetal"),
        ("--board sim_m4", "the template unicorn does not support memory protection"),
        ("--board mps2_an386 --interface-api packed", "does not work with packed functions"),
        ("--board mps2_an386 --executor graph", "does not work with packed functions"),
        ("--board mps2_an386 --arena-section .bss.fast", "leave out one of them"),
    ],
)
def test_missing_memory_protection_is_reported(
    words: str, reported: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert app.invoke(["build", str(DIGITS), "--protect", *words.split()]) == 2
    assert reported in capsys.readouterr().err
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("board", "options", "why"),
    [
        ("mps2_an386", {}, ""),
        ("mps3_an547", {"io": "external"}, ""),
        ("qemu_riscv32", {}, ""),
        ("nucleo_l4r5zi", {"template": "zephyr"}, ""),
        ("microbit", {}, "cortex-m0 has none"),
        ("qemu_riscv32", {"template": "zephyr"}, "the template does not support it"),
        ("mps2_an386", {"conventions": "packed"}, "called directly"),
        ("mps2_an386", {"arenas": "interleaved"}, "--arena interleaved"),
        ("mps2_an386", {"protect": False}, None),
    ],
)
def test_modules_are_protected_wherever_that_is_possible(
    board: str, options: dict[str, Any], why: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    target, modules = boards.get(board), {"template_options": {"modules": "unsigned"}}
    assert protects(target, mtool.Options(**options, **modules)) == (why == "")
    assert bool(caplog.records) == bool(why) and (why or "") in caplog.text
    assert not protects(target, mtool.Options(**options))


def test_without_memory_protection_nothing_changes(tmp_path: Path) -> None:
    model = mtool.compile(DIGITS, board="mps2_an386")
    assert model.manifest.protection is None and "areas" not in model.files["digits_int8_rpc.c"].decode()
    assert unit_of("xtensa-lx7") is None


def test_the_linker_script_defines_both_ends_of_every_area(tmp_path: Path) -> None:
    options = mtool.Options(io="external", protect=True, template="zephyr")
    folder = commands.write_project(mtool.compile(DIGITS, board="mps2_an386", options=options), tmp_path / "project")
    declared = re.findall(r"\b(?:digits_int8|mt)_\w+_(?:start|end|low|top)\b", (folder / "src/protect.c").read_text())
    declared += re.findall(r"\bdigits_int8_\w+_(?:start|end)\b", (folder / "model/digits_int8_rpc.c").read_text())
    defined = set(re.findall(r"(\w+) = \.;", (folder / "src/protect.ld").read_text()))
    assert {"digits_int8_inputs_start", "digits_int8_variables_end", "mt_constants_end"} < {*declared} <= defined
