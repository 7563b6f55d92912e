"""Modules in firmware on an emulated board: loaded, interrupted, resumed, refused; then run, verified and measured."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from graphs import reference
from onnx import TensorProto, helper, numpy_helper

import mtool
from mtool import commands, manifest
from mtool.base.errors import BoardError, DeviceError, FitError, UsageError
from mtool.cli.app import invoke
from mtool.commands import loading, modules
from mtool.commands.execution import run
from mtool.commands.modules import make_bytecode
from mtool.device import session
from mtool.device.rpc.loading import ModuleLimits, Place
from mtool.manifest.modules import exports, keys
from mtool.manifest.modules.format import Architecture, Kind, Needs, unpack
from mtool.project import loaded_modules
from mtool.stages.deployment import DEFAULT
from mtool.stages.options import Options, module_options
from tests.crt import firmware
from tests.device.rpc.bridge import Bridge
from tests.device.rpc.test_loading import FLASH_BYTES
from tests.device.rpc.test_loading import module as adder

BOARD = "mps2_an386"
SIZE = 160
DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits_int8.onnx"


def dense(path: Path, seed: int) -> Path:
    """Write a float32 model of one dense layer, with 100 KB of weights."""
    weights = np.random.default_rng(seed).standard_normal((SIZE, SIZE)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "dense",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, SIZE))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, SIZE))],
        [numpy_helper.from_array(weights, "w")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with keys, two models, and modules of them."""
    folder = tmp_path_factory.mktemp("modules")
    keys.make(folder / "own.key")
    keys.make(folder / "other.key")
    for seed, name in ((1, "first"), (2, "second")):
        path = dense(folder / f"{name}.onnx", seed)
        made = modules.make_module(path, board=BOARD, key=folder / "own.key", counter=seed, options=Options(name="net"))
        modules.write_module(made, folder / f"{name}.mtm")
    foreign = modules.make_module(folder / "first.onnx", board=BOARD, key=folder / "other.key", counter=1)
    modules.write_module(foreign, folder / "foreign.mtm")
    return folder


@pytest.fixture(scope="module")
def built(files: Path) -> Path:
    """A project whose firmware takes modules of the key."""
    taken = {**module_options(True, files / "own.key.pub"), "module_kinds": "both"}
    options = Options(name="own", template_options=taken)
    return mtool.prepare(files / "first.onnx", board=BOARD, folder=files / "project", options=options).folder


@pytest.fixture
def project(built: Path) -> Path:
    """The same, with nothing in its flash."""
    (built / "build" / "host_driven.elf.flash").unlink(missing_ok=True)
    return built


@pytest.mark.slow
def test_a_loaded_model_is_one_of_the_device_and_right(files: Path, project: Path) -> None:
    reported: list[int] = []
    done = loading.load_module(files / "first.mtm", project, progress=lambda there, whole: reported.append(there))
    assert (done.place, done.there_bytes, reported[-1]) == (Place.FLASH, 0, done.file_bytes)
    assert [(one.place, one.name) for one in done.models] == [(Place.FIRMWARE, "own"), (Place.FLASH, "net")]
    with session.open(project) as device:
        assert device.models == ("own", "net")
        x = {"x": np.linspace(-1, 1, SIZE, dtype=np.float32).reshape(1, SIZE)}
        assert np.array_equal(device["net"].run(x)["y"], device["own"].run(x)["y"])
        assert device["net"].time().median > 0
        operator = device["net"].manifest.operators[0]
        assert (operator.label, bool(operator.schedule)) == ("dense", True)
        with pytest.raises(UsageError, match="'other'"):
            device["other"]
        device.load(files / "second.mtm", ram=True)
        assert not np.array_equal(device["net"].run(x)["y"], device["own"].run(x)["y"])  # hides the one in flash
    named = Options(name="net")
    assert run(project, board="", options=named).prepared.manifest.model == "net"
    commands.verify(
        files / "first.onnx", board="host", on=project, samples=2, options=named, deployment=DEFAULT
    ).check()
    cost = commands.bench(files / "first.onnx", board="host", on=project, options=named)
    assert cost.firmware == "module" and cost.flash_const_bytes >= 4 * SIZE * SIZE > 4 * cost.flash_code_bytes
    for command in (
        lambda: run(project, board="", options=Options(name="nope")),
        lambda: commands.verify(files / "first.onnx", board="host", on=project, options=Options(name="nope")),
    ):
        with pytest.raises(UsageError, match="the device has no model 'nope'") as missing:
            command()
        assert missing.value.details == ("it has: own, net",)
    with pytest.raises(UsageError, match="no module on the device has a model 'own'"):
        commands.verify(files / "first.onnx", board="host", on=project, options=Options(name="own"))
    with pytest.raises(UsageError, match="was not made from"):
        commands.verify(files / "second.onnx", board="host", on=project, options=named)


@pytest.mark.slow
def test_one_emulator_at_a_time_has_the_flash(files: Path, project: Path) -> None:
    reported = "host_driven.elf.flash is in use by"
    with session.open(project) as device:
        other = [sys.executable, "-m", "mtool", "load", str(files / "first.mtm"), str(project)]
        done = subprocess.run(other, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (BoardError.exit_code, "")
        assert f"{reported} another mtool" in done.stderr and f"process {os.getpid()}" in done.stderr
        with pytest.raises(BoardError, match=f"{reported} this process"):
            loading.load_module(files / "first.mtm", project)
        device.load(files / "second.mtm")
        device.reset()
        device.reconnect()
        assert device.models == ("own", "net")
    with session.open(project) as device:
        assert device.models == ("own", "net")


def test_a_flash_file_that_can_not_be_written_is_named(files: Path, project: Path) -> None:
    flash = project / "build" / "host_driven.elf.flash"
    flash.symlink_to("/dev/full")
    with pytest.raises(UsageError, match=f"{flash.name} is a device, not a file"):
        loading.load_module(files / "first.mtm", project)
    flash.unlink()
    with session.open(project):
        flash.touch()  # as a firmware leaves it whose disk is full
    assert not flash.exists()


def test_a_load_that_the_emulator_did_not_survive_goes_on(files: Path, project: Path) -> None:
    loading.load_module(files / "first.mtm", project)
    data = (files / "second.mtm").read_bytes()

    def kill(there: int, whole: int) -> None:
        if there > whole * 3 // 4:
            raise Killed

    with session.open(project) as device, pytest.raises(Killed):
        device.load(data, progress=kill)
    with session.open(project) as device:
        assert device["net"].manifest.model_hash == unpack((files / "first.mtm").read_bytes()).model_hash.hex()
    assert 0 < loading.load_module(files / "second.mtm", project).there_bytes < len(data)
    with session.open(project) as device:
        assert device["net"].manifest.model_hash == unpack(data).model_hash.hex()
    with pytest.raises(UsageError, match="is below the device's"):
        loading.load_module(files / "first.mtm", project)


class Killed(Exception):
    pass


def kill_half_way(there: int, whole: int) -> None:
    if there > whole // 2:
        raise Killed


@pytest.mark.slow
def test_weights_that_were_trained_further_come_as_a_delta(files: Path, project: Path, tmp_path: Path) -> None:
    tuned = onnx.load(DIGITS)
    random = np.random.default_rng(0)
    for one in tuned.graph.initializer:
        values = numpy_helper.to_array(one)
        if values.dtype == np.int8 and values.size >= 64:
            moved = np.clip(values + random.integers(-1, 2, values.shape), -127, 127).astype(np.int8)
            one.CopyFrom(numpy_helper.from_array(moved, one.name))
    onnx.save(tuned, tmp_path / "tuned.onnx")
    key = files / "own.key"
    old = modules.make_module(DIGITS, board=BOARD, key=key, options=Options(name="digits"))
    options, counter = modules.options_since(old.module, Options(), None)
    new = modules.make_module(
        tmp_path / "tuned.onnx", board=BOARD, key=key, options=options, counter=counter, since=old.module
    )
    reported = modules.update_between((old.module, old.data), (new.module, new.data))
    assert new.module.name == "digits" and reported.has_same_code and reported.parts[1] < 8
    modules.write_module(old, tmp_path / "old.mtm")
    modules.write_module(new, tmp_path / "new.mtm")
    image = {"image": random.integers(-128, 127, (1, 1, 8, 8), dtype=np.int8)}
    before, after = (reference(proto, image)[0] for proto in (onnx.load(DIGITS), tuned))
    assert not np.array_equal(before, after)
    with session.open(project) as device:
        device.load(old.data)
        np.testing.assert_array_equal(device["digits"].run(image)["scores"], before)
    with session.open(project) as device, pytest.raises(Killed):
        device.load(new.data, since=tmp_path / "old.mtm", progress=kill_half_way)
    with session.open(project) as device:
        np.testing.assert_array_equal(device["digits"].run(image)["scores"], before)
    done = loading.load_module(tmp_path / "new.mtm", project, since=tmp_path / "old.mtm")
    assert done.delta_bytes == reported.delta_bytes < len(new.data) // 3
    with session.open(project) as device:
        np.testing.assert_array_equal(device["digits"].run(image)["scores"], after)
    with pytest.raises(UsageError, match="is not the one of --since"):
        loading.load_module(tmp_path / "old.mtm", project, since=tmp_path / "old.mtm")


def test_bytecode_computes_the_same_as_the_model(files: Path, project: Path) -> None:
    made = make_bytecode(DIGITS, options=Options(name="digits"), key=files / "own.key", counter=1)
    with session.open(project) as device:
        device.load(made.data)
        assert device.models == ("own", "digits") and device["digits"].time().median > 0
    commands.verify(
        DIGITS, board="host", on=project, samples=2, options=Options(name="digits"), deployment=DEFAULT
    ).check()


def test_a_modules_state_is_reset(files: Path, project: Path, tmp_path: Path) -> None:
    text = (
        '<ir_version: 8, opset_import: ["": 17]> g (float[4] x, float[4] s) => (float[4] t, float[4] y) '
        "{t = Add(x, s) y = Identity(t)}"
    )
    onnx.save(onnx.parser.parse_model(text), tmp_path / "sum.onnx")
    options = Options(states=(("t", "s"),), state_values={"s": np.full(4, 3, np.float32)})
    made = modules.make_module(tmp_path / "sum.onnx", board=BOARD, key=files / "own.key", options=options)
    x = {"x": np.ones(4, np.float32)}
    with session.open(project) as device:
        total = device.load(made.data, ram=True)
        for expected in (4, 5, 6):
            assert total.run(x)["y"].tolist() == [expected] * 4
        total.reset_state()
        assert total.run(x)["y"].tolist() == [4] * 4


def test_another_key_is_reported(files: Path, project: Path) -> None:
    with pytest.raises(DeviceError, match="does not trust the signature of") as refused:
        loading.load_module(files / "foreign.mtm", project)
    assert keys.read_public(files / "other.key.pub").key_id.hex() in refused.value.details[0]
    assert "the device's current key" in refused.value.hint


@pytest.mark.slow
def test_the_command_line_shows_the_result(files: Path, project: Path) -> None:
    def load(*arguments: str) -> tuple[int, dict[str, object], str]:
        command = [sys.executable, "-m", "mtool", "load", "--json", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, json.loads(done.stdout), done.stderr

    code, said, _ = load(str(files / "first.mtm"), str(project), "--ram")
    assert (code, said["place"], said["name"], said["there_bytes"], said["is_kept"]) == (0, "ram", "net", 0, False)
    code, said, _ = load(str(files / "first.mtm"), str(project))
    assert (code, said["place"], said["replaced"], said["is_kept"]) == (0, "flash", None, True)
    assert load(str(files / "foreign.mtm"), str(project))[0] == 10
    code, _, errors = load(str(files / "first.mtm"))
    assert code == 2 and "neither a project nor a port is given" in errors
    code, _, errors = load(str(files / "first.mtm"), "--port", "emulator")
    assert code == 2 and "--port emulator needs the project" in errors


@pytest.mark.parametrize(
    ("kind", "names", "said"),
    [
        (Kind.NATIVE, ("expf", "sinf"), ("calls a function", "it calls expf, sinf", "MT_MODULE_MATH=2")),
        (Kind.NATIVE, ("memcpy", "tanhf"), ("calls a function", "it calls memcpy, tanhf", "MT_MODULE_MATH=1")),
        (Kind.BYTECODE, (), ("calls a kernel", "MT_BYTECODE_FLOAT32")),
    ],
)
def test_what_the_firmware_has_not_is_named(
    files: Path, kind: Kind, names: tuple[str, ...], said: tuple[str, ...]
) -> None:
    imports = tuple(exports.EXPORTS[name].hash for name in names)
    module = replace(unpack((files / "first.mtm").read_bytes()), kind=kind, imports=imports)
    reported = str(loading.explained(DeviceError("the device reports MT_MISSING_IMPORT"), module))
    assert all(text in reported for text in said)
    rotated = replace(module, key_id=bytes(range(8)), next_key=bytes(32))
    reported = str(loading.explained(DeviceError("the device reports MT_BAD_SIGNATURE"), rotated).details)
    assert "a replaced key never comes back" in reported


MACHINE = Architecture.ARMV7EM | Needs.HARD_FLOAT | Needs.FPU | Needs.DSP
ROOM = ModuleLimits(machine=MACHINE, kinds=frozenset({1}), flash_bytes=1 << 20, ram_bytes=1 << 20, counter=1)


@pytest.mark.parametrize(
    ("limits", "place", "error", "message"),
    [
        (replace(ROOM, kinds=frozenset({2})), Place.FLASH, UsageError, "no support for native modules"),
        (replace(ROOM, counter=2), Place.FLASH, UsageError, "counter .* is below the device's"),
        (replace(ROOM, machine=Architecture.ARMV7M), Place.FLASH, UsageError, "is for another machine"),
        (replace(ROOM, flash_bytes=0), Place.FLASH, UsageError, "has no flash for modules"),
        (replace(ROOM, flash_bytes=90000), Place.FLASH, FitError, "does not fit into a slot"),
        (replace(ROOM, ram_bytes=500), Place.FLASH, FitError, "does not fit into the RAM"),
        (replace(ROOM, ram_bytes=90000), Place.RAM, FitError, "does not fit into the RAM"),
    ],
)
def test_what_the_device_would_refuse_is_reported_before(
    files: Path, limits: ModuleLimits, place: Place, error: type[Exception], message: str
) -> None:
    data = (files / "first.mtm").read_bytes()
    loading.check(unpack(data), len(data), place, ROOM)
    with pytest.raises(error, match=message):
        loading.check(unpack(data), len(data), place, limits)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"module_key": ""}, "needs their signer's public key"),
        ({"module_key": "12"}, "needs their signer's public key"),
        ({"module_key": "zz" * 32}, "needs their signer's public key"),
        ({"module_slot_bytes": 5000}, "must be a multiple of 4096"),
    ],
)
def test_wrong_options_of_such_firmware_are_reported(files: Path, values: dict[str, str | int], message: str) -> None:
    from mtool import boards

    right = {
        "modules": "signed", "module_key": "ab" * 32, "module_kinds": "both", "module_slot_bytes": 0,
        "module_ram_bytes": 0,
    }  # fmt: skip
    board = boards.get(BOARD)
    taken = loaded_modules.read(right, board)
    assert taken is not None and (taken.memory, taken.slot_bytes, taken.kinds) == (
        "psram",
        512 << 10,
        ("native", "bytecode"),
    )
    assert loaded_modules.read({"modules": "none"}, board) is None
    with pytest.raises(UsageError, match=message):
        loaded_modules.read({**right, **values}, board)
    with pytest.raises(UsageError, match="add --modules"):
        module_options(False, files / "own.key.pub")


def test_a_firmware_without_modules_is_reported(files: Path, tmp_path: Path) -> None:
    model = mtool.compile(files / "first.onnx", board=BOARD)
    folder = commands.write_project(model, tmp_path / "plain")
    assert manifest.load(folder).project is not None
    with pytest.raises(UsageError, match="does not support modules"):
        loading.load_module(files / "first.mtm", folder)


@pytest.mark.slow
def test_a_port_needs_no_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flash = tmp_path / "flash"
    flash.write_bytes(bytes([0xFF]) * FLASH_BYTES)
    monkeypatch.setenv("TEST_FLASH", str(flash))
    (tmp_path / "adder.mtm").write_bytes(adder(5, padding=5000))
    with Bridge([str(firmware.build(*firmware.MODULES))]) as device:
        done = loading.load_module(tmp_path / "adder.mtm", port=device.port)
        assert [(one.place, one.name) for one in done.models][1:] == [(Place.FLASH, "adder")]
        with pytest.raises(UsageError, match="no support for native modules"):
            (tmp_path / "native.mtm").write_bytes(adder(5, kind=Kind.NATIVE))
            loading.load_module(tmp_path / "native.mtm", port=device.port)
    with (
        Bridge([str(firmware.build())]) as device,
        pytest.raises(UsageError, match="does not support modules"),
    ):
        loading.load_module(tmp_path / "adder.mtm", port=device.port)


@pytest.mark.slow
@pytest.mark.parametrize("board", ["mps2_an385", "mps2_an500", "mps3_an547", "qemu_riscv32"])
def test_modules_run_on_other_cores(files: Path, tmp_path: Path, board: str) -> None:
    options = Options(name="own", template_options=module_options(True, files / "own.key.pub"))
    folder = mtool.prepare(files / "first.onnx", board=board, folder=tmp_path / "project", options=options).folder
    made = modules.make_module(files / "first.onnx", board=board, key=files / "own.key", options=Options(name="net"))
    x = {"x": np.linspace(-1, 1, SIZE, dtype=np.float32).reshape(1, SIZE)}
    for ram in (False, True):
        with session.open(folder) as device:
            found = device.load(made.data, ram=ram).run(x)["y"]
            assert np.array_equal(found, device["own"].run(x)["y"])
    with session.open(folder) as device:
        assert device.models == ("own", "net")  # in flash it survives the emulator


def test_a_trial_is_for_modules_that_are_not_confirmed(
    files: Path, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UsageError, match="can't be on trial like this") as refused:
        loading.load_module(files / "first.mtm", project, ram=True, trial=2)
    assert refused.value.details[-1].endswith("2, in RAM")
    said = []
    for trial in (["--trial", "2"], [], ["--trial", "2"], []):
        assert invoke(["load", str(files / "first.mtm"), str(project), *trial]) == 0
        lines = capsys.readouterr().out.splitlines()
        said.append(next((line for line in lines if "trial" in line), "").partition(":")[0])
    assert said == ["on trial for 2 starts", "the trial has ended", "not on trial", ""]
    assert invoke(["load", str(files / "first.mtm"), str(project), "--trial", "256"]) == 2
    assert "expected at most 255" in capsys.readouterr().err
