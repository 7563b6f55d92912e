"""Several models in one firmware: selected by name in one session, sharing an arena and equal constants."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import stateful
from graphs import reference

import mtool
from mtool import manifest
from mtool.base.errors import DeviceError, MismatchError, ModelError, UsageError
from mtool.cli import app, several
from mtool.cli.output import Output
from mtool.commands import write_project
from mtool.compiler.codegen import conventions
from mtool.device.rpc import Served
from mtool.device.rpc.protocol import Status
from mtool.device.session import Device

DIGITS = Path(__file__).parents[3] / "examples" / "digits" / "digits_int8.onnx"
ARM = [shutil.which(program) for program in ("arm-none-eabi-gcc", "qemu-system-arm", "cmake", "ninja")]
BOARDS = ["host", pytest.param("mps2_an386", marks=pytest.mark.skipif(None in ARM, reason="no Arm toolchain"))]
Array = np.ndarray[Any, Any]


@pytest.fixture(scope="module", params=BOARDS)
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Any], Any]:
    """Build a recurrent model twice, which keeps states, and a network."""
    folder = tmp_path_factory.mktemp("several")
    proto, pairs = stateful.recurrent("GRU", "torch", 1)
    onnx.save(proto, folder / "cell.onnx")
    of_state = [mtool.Options(states=tuple(pairs), name=name) for name in ("left", "right")]
    models = mtool.compile_models(
        [folder / "cell.onnx", DIGITS, folder / "cell.onnx"],
        board=request.param,
        options=[of_state[0], mtool.Options(), of_state[1]],
    )
    from mtool.commands import build_model

    prepared = build_model(models[0], folder / "project", kinds=("host_driven", "standalone"))
    return prepared.folder, [proto, pairs], models


@pytest.fixture
def device(built: tuple[Path, list[Any], Any]) -> Iterator[Device]:
    with mtool.open(built[0]) as opened:
        yield opened


@pytest.mark.product(2)
def test_models_run_in_turn_and_keep_their_states(built: tuple[Path, list[Any], Any], device: Device) -> None:
    proto, pairs = built[1]
    rng = np.random.default_rng(0)
    kept = {name: {value: np.zeros((1, 1, stateful.HIDDEN), np.float32) for _, value in pairs} for name in "lr"}
    names = [output.name for output in proto.graph.output]
    image = rng.integers(-128, 127, (1, 1, 8, 8), dtype=np.int8)
    with np.errstate(all="raise"):
        for name in "lrlrrl":
            x = rng.standard_normal((1, 1, stateful.SIZE)).astype(np.float32)
            made = dict(zip(names, reference(proto, {"x": x, **kept[name]}), strict=True))
            kept[name] = {value: made[output] for output, value in pairs}
            found = device["left" if name == "l" else "right"].run({"x": x})["y"]
            np.testing.assert_allclose(found, made["y"], atol=1e-5)
            scores = device["digits_int8"].run({"image": image})["scores"]
            np.testing.assert_array_equal(scores, reference(onnx.load(DIGITS), {"image": image})[0])


def test_what_the_models_share_is_there_once(built: tuple[Path, list[Any], Any]) -> None:
    folder, _, models = built
    left, digits, right = (model.manifest for model in models)
    assert [one.model for one in manifest.load(folder).models] == ["left", "digits_int8", "right"]
    assert right.shared_constant_bytes == right.constant_bytes == left.constant_bytes > 0
    assert {one.function for one in right.operators} <= {one.function for one in left.operators}
    arena = (folder / "model" / "left_digits_int8_right.c").read_text()
    assert arena.count("uint8_t left_digits_int8_right_arena[") == 1
    states = sum(state.bytes for one in (left, right) for state in one.states)
    alone = mtool.compile(DIGITS, board=models[0].board).manifest.arena_bytes
    assert manifest.total_arena_bytes((left, digits, right)) <= states + alone + 64
    from mtool.device.build import measure

    for firmware in folder.glob("build/*"):
        if firmware.name.partition(".")[0] in ("host_driven", "standalone") and firmware.suffix in ("", ".elf"):
            size = measure(firmware, manifest.load(folder))
            assert size.arena_bytes == manifest.total_arena_bytes((left, digits, right))
            assert size.flash_const_bytes <= left.constant_bytes + digits.constant_bytes


def test_a_device_of_several_needs_a_name(device: Device) -> None:
    assert device.models == ("left", "digits_int8", "right")
    with pytest.raises(UsageError, match="the firmware has 3 models") as caught:
        device.run({})
    assert 'device["left"]' in caught.value.hint
    with pytest.raises(UsageError, match="no model 'middle'"):
        device["middle"]
    image = {"image": np.zeros((1, 1, 8, 8), np.int8)}
    assert device["digits_int8"]["left"].manifest.model == "left"
    device["digits_int8"].run(image)
    with pytest.raises(DeviceError) as refused:
        device.client.of_model(Served(3)).info()
    assert Status.MT_BAD_INDEX.name in str(refused.value)
    device["digits_int8"].run(image)
    if device.identity == "host":
        digits = device["digits_int8"]
        device.reconnect()
        digits.run(image)


@pytest.mark.slow
def test_files_of_one_model_are_named_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    twice = [str(DIGITS), str(DIGITS), "--name", "one", "--name", "two"]
    rng = np.random.default_rng(1)
    images = {name: rng.integers(-128, 127, (1, 1, 8, 8), dtype=np.int8) for name in ("one", "two")}
    for name, image in images.items():
        np.savez(f"{name}.npz", image=image)
        np.savez(f"{name}_golden.npz", x0=image, y0=reference(onnx.load(DIGITS), {"image": image})[0])
    given = [part for name in images for part in ("--input", f"{name}@{name}.npz")]
    assert app.invoke(["run", *twice, *given, "--output", "y.npz", "--dump", "all"]) == 0
    shown = capsys.readouterr().out
    assert shown.count(" for all models, ") == 2  # the RAM is the firmware's
    for name, image in images.items():
        scores = reference(onnx.load(DIGITS), {"image": image})[0]
        np.testing.assert_array_equal(np.load(f"y-{name}.npz")["scores"], scores)
        assert (tmp_path / f"all-{name}" / "index.json").exists()
    assert app.invoke(["verify", *twice, "--golden", "two@two_golden.npz"]) == 0
    shown = capsys.readouterr().out
    assert "matches onnxruntime" in shown and "matches two_golden.npz" in shown
    for wrong, reported in (
        (["run", *twice, "--input", "one.npz"], "name the model: --input one@one.npz"),
        (["run", *twice, "--input", "six@one.npz"], "name the model: --input one@six@one.npz"),
        (["run", *twice, "-i", "one@one.npz", "-i", "one@two.npz"], "--input one@ is given 2 times"),
        (["run", str(DIGITS), "-i", "one.npz", "-i", "two.npz"], "--input is given 2 times for one model"),
        (["debug", *twice], "mtool debug PROJECT --name one"),
    ):
        assert app.invoke(wrong) == 2
        assert reported in capsys.readouterr().err, wrong


@pytest.mark.parametrize(
    ("first", "other", "reported"),
    [
        (mtool.Options(conventions=conventions("step")), mtool.Options(), 'right has conventions.interface="c"'),
        (mtool.Options(), mtool.Options(conventions=conventions(context=True)), 'arenas="caller"'),
        (mtool.Options(), mtool.Options(arena_section=".bss.x"), 'right has arena_section=".bss.x"'),
        (mtool.Options(), mtool.Options(arenas="own"), "need the same arenas"),
        (mtool.Options(template="host"), mtool.Options(), "need the same template"),
    ],
)
def test_what_is_the_firmwares_is_the_same_for_all(first: mtool.Options, other: mtool.Options, reported: str) -> None:
    with pytest.raises(UsageError) as refused:
        mtool.compile_models(
            [DIGITS, DIGITS], board="host", options=[replace(first, name="left"), replace(other, name="right")]
        )
    assert reported in str(refused.value)


@pytest.mark.parametrize("interface", ["c", "step"])
def test_models_may_be_called_what_is_done_with_them(interface: Any, tmp_path: Path) -> None:
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[4] x) => (float[4] y) {y = Abs(x)}'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    names = ("run", "begin", "task", "own", "status", "infer")
    options = [mtool.Options(name=name, conventions=conventions(interface)) for name in names]
    models = mtool.compile_models([tmp_path / "m.onnx"] * len(names), board="host", options=options)
    folder = write_project(models[0], tmp_path / "project")
    flags = ["-std=c99", "-Wall", "-Wextra", "-Wshadow", "-Werror"]
    includes = [f"-I{folder / inner}" for inner in ("model", "include", "crt/include")]
    sources = [folder / "model" / "run_begin_task_own_status_infer.c", folder / "src" / "standalone.c"]
    subprocess.run(["cc", *flags, *includes, "-fsyntax-only", *sources], check=True)


def test_each_model_may_have_a_section_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[4] x) => (float[4] y) {y = Abs(x)}'
    for name in "ab":
        onnx.save(onnx.parser.parse_model(text), f"{name}.onnx")
    sections = ["--arena-section", "a@.bss.first", "--arena-section", "b@.bss.second"]
    assert app.invoke(["compile", "a.onnx", "b.onnx", "-d", "c", "--arena", "own", *sections]) == 0
    assert ".bss.first" in Path("c/a.c").read_text() and ".bss.second" in Path("c/b.c").read_text()
    for models, reported in ((["a.onnx", "b.onnx"], "2 times for b"), (["a.onnx"], "2 times for one model")):
        capsys.readouterr()
        assert app.invoke(["compile", *models, *sections[:1], ".bss.x", *sections[2:]]) == 2
        assert f"--arena-section is given {reported}" in capsys.readouterr().err


def test_what_can_not_be_compiled_is_reported_of_all_models(tmp_path: Path) -> None:
    text = '<ir_version: 8, opset_import: ["": 17, "own": 1]> g (float[4] x) => (float[4] y) {y = own.%s(x)}'
    for name, operator in (("a", "Frob"), ("b", "Grok")):
        onnx.save(onnx.parser.parse_model(text % operator), tmp_path / f"{name}.onnx")
    with pytest.raises(ModelError, match="2 of 3 models can't be compiled") as refused:
        mtool.compile_models([tmp_path / "a.onnx", DIGITS, tmp_path / "b.onnx"], board="host")
    reported = str(refused.value)
    assert (
        "1 operator of a can't" in reported
        and "Frob" in reported
        and "1 operator of b can't" in reported
        and "Grok" in reported
    )


def test_all_models_are_compared_although_the_first_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def verify(output: Output, *, options: mtool.Options, **_: object) -> None:
        output.result({"ok": options.name == "two"})
        if options.name != "two":
            raise MismatchError("the outputs differ", details=[f"largest of {options.name}"], hint="try this")

    names = ("one", "two", "three")
    given = {"options": [mtool.Options(name=name) for name in names], "model": [DIGITS] * 3, "on": tmp_path}
    with pytest.raises(MismatchError, match="2 of 3 models differ: one, three") as differs:
        several.for_each(verify, Output("verify", as_json=True), {**given, "deployment": mtool.Deployment()})
    assert differs.value.details == (
        "one: the outputs differ",
        "largest of one",
        "three: the outputs differ",
        "largest of three",
    )
    assert [one["ok"] for one in json.loads(capsys.readouterr().out)["models"]] == [False, True, False]


def test_models_without_options_of_their_own_are_refused() -> None:
    for paths, options in (([], None), ([DIGITS], []), ([DIGITS, DIGITS], [mtool.Options()])):
        with pytest.raises(UsageError, match=f"models to compile: {len(paths)}, options for"):
            mtool.compile_models(paths, board="host", options=options)


@pytest.mark.slow
def test_commands_take_several_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    twice = [str(DIGITS), str(DIGITS), "--name", "one", "--name", "two"]
    assert app.invoke(["verify", *twice, "--schedule", "two@conv_0=c99_patch:opt=O3"]) == 0
    assert capsys.readouterr().out.count("matches onnxruntime") == 2
    assert app.invoke(["bench", *twice, "--repeat", "1", "--json"]) == 0
    one, two = json.loads(capsys.readouterr().out)["models"]
    assert one["flash_code_bytes"] == two["flash_code_bytes"] == one["own_code_bytes"] + two["own_code_bytes"]
    assert one["own_code_bytes"] > two["own_code_bytes"] > 0  # which calls the other's functions
    assert one["own_const_bytes"] == one["flash_const_bytes"] > 0 and two["own_const_bytes"] == 0
    assert app.invoke(["run", "build/one_two-host", "--name", "two"]) == 0
    assert app.invoke(["run", "build/one_two-host"]) == 2
    assert "--name one" in capsys.readouterr().err
    assert app.invoke(["check", *twice, "--board", "mps2_an386"]) == 0
    shown = capsys.readouterr().out
    assert "stored once" in shown and shown.count("longest operator of") == 2
    for wrong, reported in (
        ([str(DIGITS), str(DIGITS)], "have the same name in C: digits_int8"),
        ([*twice[:2], "--name", "x", "--name", "x_y"], "can lead to equal C symbols: x, x_y"),
        ([*twice, "--schedule", "other@conv_0=c99_patch"], "unknown model other\n  models: one, two\n"),
        ([*twice, "--max", "tow@n=3"], "--max tow@n=3: unknown model tow"),
        ([*twice, "--state", "two@a@b:c"], "no output 'a@b'"),
        ([*twice[:2], "--name", "x"], "--name is given once for 2 models"),
    ):
        assert app.invoke(["build", *wrong]) == 2
        assert reported in capsys.readouterr().err
