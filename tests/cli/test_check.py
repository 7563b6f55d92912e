"""mtool check: operators, sizes, where the model fits."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from mtool import boards, commands
from mtool.base import filetree, proc
from mtool.cli import app
from mtool.cli.check import operator_rows
from mtool.compiler.codegen import generation, weights
from mtool.stages import fitting

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits_int8.onnx"

Captured = pytest.CaptureFixture[str]


def test_it_lists_operators_sizes_and_boards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.chdir(tmp_path)
    assert app.invoke(["check", str(DIGITS), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {fit["board"] for fit in document["boards"]} == set(boards.load_all())
    assert [fit["board"] for fit in document["boards"] if not fit["fits"]] == ["arduino_uno"]
    assert document["manifest"]["macs"] == sum(operator["macs"] for operator in document["manifest"]["operators"])
    (disco,) = [fit for fit in document["boards"] if fit["board"] == "stm32f746g_disco"]
    assert disco["flash_bytes"] > 15_008 and disco["flash_limit_bytes"] == 1 << 20
    shares = {part["what"]: part["estimated"] for memory in disco["memories"] for part in memory["parts"]}
    assert shares == {
        "weights": False,
        "the model's code": True, "libraries": True, "runtime": True, "tables": True,
        "arena": False, "server's buffers": False, "data": True, "stack": False,
    }  # fmt: skip
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_all_boards_are_all(capsys: Captured) -> None:
    assert app.invoke(["check", str(DIGITS), "--board", "all"]) == 0  # though it does not fit each of them
    assert f"{len(boards.load_all()) - 1} of {len(boards.load_all())} boards fit" in capsys.readouterr().out


@pytest.mark.slow
def test_no_schedules_are_shown_for_several_boards(capsys: Captured) -> None:
    """They are the first board's alone, and so are the sizes of constants that they want."""
    boards_ = ["--board", "host", "--board", "mps2_an386"]
    assert app.invoke(["check", str(DIGITS), *boards_, "--json"]) == 0
    sizes = [fit["constant_bytes"] for fit in json.loads(capsys.readouterr().out)["boards"]]
    alone = {name: commands.compile(DIGITS, board=name).manifest.constant_bytes for name in ("host", "mps2_an386")}
    assert sorted(sizes) == sorted(alone.values()) and len({*sizes}) == 2
    assert app.invoke(["check", str(DIGITS), *boards_]) == 0
    shown = capsys.readouterr().out
    assert f"constants {min(sizes):,} to {max(sizes):,} B, depending on the board" in shown
    used = {one.schedule.partition(":")[0] for one in commands.compile(DIGITS, board="host").manifest.operators}
    assert "conv2d 3x3" in shown and "schedule" not in shown and not any(name in shown for name in used)


def test_several_models_need_named_boards(capsys: Captured) -> None:
    assert app.invoke(["check", str(DIGITS), str(DIGITS), "-b", "all"]) == 2
    assert "--board is required for several models" in capsys.readouterr().err


def test_the_most_urgent_model_waits_for_the_longest_stretch_of_all(tmp_path: Path, capsys: Captured) -> None:
    """A model of one operator is all of a share, and still the shorter one."""
    shape = [1, 32]
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xy"]
    weights = numpy_helper.from_array(np.ones((32, 32), np.float32), "w")
    chain = [helper.make_node("MatMul", [a, "w"], [b]) for a, b in zip("xab", "aby", strict=True)]
    for name, nodes in {"one": [helper.make_node("Relu", ["x"], ["y"])], "chain": chain}.items():
        graph = helper.make_graph(nodes, name, value[:1], value[1:], [weights] if len(nodes) > 1 else [])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / f"{name}.onnx")
    one, chained = str(tmp_path / "one.onnx"), str(tmp_path / "chain.onnx")
    names = ["--name", "urgent", "--name", "chain", "--name", "one"]
    tasks = ["--interface-api", "step", "--arena", "interleaved", "--board", "mps2_an386"]
    assert app.invoke(["check", one, chained, one, *names, *tasks]) == 0
    reported = capsys.readouterr().out
    assert re.search(r"urgent waits for at most \d+% of an inference of chain\n", reported)
    assert "one.onnx, chain.onnx, one.onnx fit mps2_an386" in reported


def test_an_operator_by_rows_is_one_row() -> None:
    manifest = commands.compile(DIGITS, board="host", options=commands.Options(partial="always")).manifest
    rows = operator_rows(manifest.operators)
    assert len(rows) < len(manifest.operators) and any(" parts" in label for _, label, *_ in rows)
    assert len({one.whole or one.name for one in manifest.operators}) >= len(rows)
    assert sum(int(macs.replace(",", "")) for *_, macs in rows) == manifest.macs
    twice = [manifest.operators[-1], manifest.operators[-1]]
    assert [row[1] for row in operator_rows(twice)] == [f"{twice[0].label}, 2 times"]


def test_it_writes_no_c_that_nothing_looks_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an estimate the constants' sizes are enough; where no memory is known, the manifest is all."""

    def refuse(*_: object) -> str:
        raise AssertionError("C is written")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(generation.weights, "weights_source", refuse)
    (fit,) = commands.check(DIGITS, [boards.get("mps2_an386")]).fits
    assert fit.flash is not None and fit.flash.bytes > 15_008
    monkeypatch.setattr(generation, "source", refuse)
    found = commands.check(DIGITS, [boards.get("host")])
    assert found.manifest.macs and found.fits[0].fits and not found.fits[0].needs
    with pytest.raises(AssertionError, match="C is written"):
        commands.check(DIGITS, [boards.get("mps2_an386")])


def test_a_build_is_compared_with_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large constants lie in a file of bytes for one builder, in C for the other."""
    monkeypatch.setattr(weights, "LARGE_BYTES", 0)
    compared = []
    monkeypatch.setattr(fitting, "firmware_of", lambda folder, tree: compared.append(tree))
    for name in ("mps2_an386", "arduino_due"):
        written = filetree.from_folder(commands.write_project(commands.compile(DIGITS, board=name), tmp_path / name))
        commands.check(DIGITS, [boards.get(name)], folder=tmp_path / name)
        assert compared.pop().files.items() <= written.files.items()
        assert any(path.endswith(".bin") for path in written) == (name == "mps2_an386")


def test_models_that_share_constants_in_ram_have_them_once() -> None:
    board = boards.get("nucleo_l4r5zi")  # whose flash waits, so that weights lie in RAM
    each = [commands.Options(name=name) for name in ("a", "b")]
    first, second = (one.manifest for one in commands.compile_models([DIGITS] * 2, board=board, options=each))
    assert first.constant_bytes_in_ram > 0
    assert second.constant_bytes_in_ram == 0 and second.shared_constant_bytes == first.constant_bytes
    (fit,) = commands.check_models([DIGITS] * 2, [board], each).fits
    assert fit.time is not None and fit.fits


def test_weights_in_ram_count_as_ram(capsys: Captured) -> None:
    """A NUCLEO-L4R5ZI waits for its flash, and mtool's overlay sets the clock that times hold at."""
    assert app.invoke(["check", str(DIGITS), "--board", "nucleo_l4r5zi", "--optimize", "speed"]) == 0
    shown = capsys.readouterr().out
    compiled = commands.compile(DIGITS, board="nucleo_l4r5zi", options=commands.Options(optimize="speed"))
    in_ram = compiled.manifest.constant_bytes_in_ram
    tables = compiled.files.text("digits_int8_weights.c")
    kinds = {"int8_t": 1, "uint32_t": 4, "int32_t": 4, "float": 4}
    of_arrays = re.findall(r"^(\w+) \w+\[(\d+)\] = {$", tables, re.MULTILINE)  # neither const nor in flash
    assert in_ram == sum(kinds[kind] * int(count) for kind, count in of_arrays) > 1000
    assert f"#define DIGITS_INT8_WEIGHTS_IN_RAM_BYTES {in_ram}\n" in compiled.files.text("digits_int8.h")
    assert f"{in_ram:,} B of weights in RAM besides" in shown and "weights in RAM" in shown.partition("sram ")[2]
    assert (
        "ms at 120 MHz ±" in shown and "times are for 120 MHz, the clock that mtool's overlay for Zephyr sets" in shown
    )


@pytest.mark.slow
@pytest.mark.skipif(
    any(shutil.which(program) is None for program in ("arm-none-eabi-gcc", "cmake", "ninja")),
    reason="the Arm toolchain is not installed",
)
def test_a_build_ends_with_its_flash_and_ram(tmp_path: Path, capsys: Captured) -> None:
    """As binutils' size has them: text and data, data and bss with the stack and the arena."""
    arguments = ["build", str(DIGITS), "--board", "mps2_an386", "-d", str(tmp_path / "p")]
    assert app.invoke([*arguments, "--schedule", "dense_5=c99_rows:weights=ram", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    sizes = document["sizes"]["standalone"]
    elf = document["firmware"]["standalone"]
    text, data, bss = map(
        int, proc.run(["arm-none-eabi-size", elf], what="size", timeout_s=60).output.splitlines()[1].split()[:3]
    )
    assert sizes["flash_bytes"] == text + data and sizes["ram_bytes"] == data + bss
    assert data >= sizes["weights_in_ram_bytes"] > 0
    assert sizes["memories"]["ssram1"] == text + data and sizes["memories"]["ssram23"] == data + bss
    assert app.invoke([*arguments, "--schedule", "dense_5=c99_rows:weights=ram"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"standalone .*\n  ssram1   needs .*, fits .*\n  ssram23  needs .* weights in RAM", shown)


def test_a_named_board_is_reported_in_full(capsys: Captured) -> None:
    assert app.invoke(["check", str(DIGITS), "--board", "mps2_an386"]) == 0
    shown = capsys.readouterr().out
    assert "conv2d 3x3" in shown and "231 k MACs" in shown and "of 4 MB" in shown
    flash, ram, longest, _, verdict = shown.splitlines()[-5:]
    assert re.fullmatch(r"  longest operator of digits_int8: conv_3, \d\d% of an inference, [\d.]+ ms ± 35%", longest)
    assert verdict == "digits_int8.onnx fits mps2_an386"
    assert re.fullmatch(
        r"  ssram1   needs \d+ KB of 4,096 KB, fits     weights \d\d KB, the model's code about [\d,]+ K?B, .*", flash
    )
    assert re.fullmatch(
        r"  ssram23  needs 1\d KB of 4,096 KB, fits     arena [\d,]+ B, server's buffers 4,096 B, data about .*", ram
    )


def test_a_board_that_was_named_and_is_too_small_ends_with_4(capsys: Captured) -> None:
    assert app.invoke(["check", str(DIGITS), "--board", "arduino_uno"]) == 4
    first, flash, sram, hint, code = capsys.readouterr().err.splitlines()
    assert first == "error: digits_int8.onnx does not fit arduino_uno"
    assert re.match(r"  flash    needs \d\d KB of 32 KB, .*     weights 15 KB, ", flash)
    assert re.match(r"  sram     needs [\d,]+ B of 2,048 B, [\d,]+ B too many     arena 1,615 B, ", sram)
    assert (hint, code) == ("try a smaller model, or a board with more memory: mtool boards", "exit 4")
    assert app.invoke(["check", str(DIGITS), "-b", "arduino_uno", "-b", "mps2_an386", "-b", "arduino_uno"]) == 4
    assert capsys.readouterr().err.count("arduino_uno: sram") == 2


def test_a_build_decides_if_only_the_estimate_is_too_large(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, tmp_path: Path
) -> None:
    board = boards.get("mps2_an386")
    small = board.memories["ssram1"].model_copy(update={"size": 24 << 10})
    memories = {**board.memories, "ssram1": small}
    monkeypatch.setattr(boards, "get", lambda name: board.model_copy(update={"memories": memories}))
    assert app.invoke(["check", str(DIGITS), "--board", "mps2_an386", "-d", str(tmp_path)]) == 4
    assert "mtool build measures them" in capsys.readouterr().err


def test_options_of_the_build_count(capsys: Captured) -> None:
    needs = []
    for buffers in ("1024", "65536"):
        options = ["-b", "stm32f746g_disco", "--option", f"rpc_buffer_bytes={buffers}", "--json"]
        assert app.invoke(["check", str(DIGITS), *options]) == 0
        needs.append(json.loads(capsys.readouterr().out)["boards"][0]["ram_bytes"])
    assert needs[1] - needs[0] == 65536 - 1024
    assert app.invoke(["check", str(DIGITS), "-b", "stm32f746g_disco", "--option", "nonsense=1"]) == 2


@pytest.mark.parametrize(("name", "per_mac"), [("mps2_an385", 74), ("rpi_pico", 165), ("mps2_an386", 0)])
def test_float_without_an_fpu_is_reported_with_what_int8_would_take(
    name: str, per_mac: int, tmp_path: Path, capsys: Captured
) -> None:
    weights = numpy_helper.from_array(np.ones((200, 50), np.float32), "w")
    given, made = (
        helper.make_tensor_value_info(tensor, TensorProto.FLOAT, [1, size]) for tensor, size in (("x", 200), ("y", 50))
    )
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [given], [made], [weights])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "m.onnx")
    assert app.invoke(["check", str(tmp_path / "m.onnx"), "-b", name]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "no FPU" in line]
    assert len(lines) == (per_mac > 0)
    if per_mac:
        million = f"{10_000 * per_mac / 1e6:.2f} M" if per_mac >= 100 else f"{10 * per_mac} k"
        assert f"about {per_mac} instructions per MAC, {million} per inference" in lines[0]
        assert "mtool quantize" in lines[0]


def test_the_tables_columns_have_headings_and_emulators_a_mark(capsys: Captured) -> None:
    assert app.invoke(["check", str(DIGITS), "-b", "mps2_an386", "-b", "nucleo_h743zi"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"^board +flash +RAM +sizes +an inference, estimated", shown, re.M)
    names = re.findall(r"^(\S+(?: \(emulator\))?) +fits  ", shown, re.M)
    assert names == ["nucleo_h743zi", "mps2_an386 (emulator)"]  # sorted by time
