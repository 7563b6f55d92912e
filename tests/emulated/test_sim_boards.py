"""Models on the boards sim_*: built by ziglang, run by unicorn, with QEMU's outputs and exact instruction counts."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import amount
import numpy as np
import pytest

pytest.importorskip("unicorn", reason="needs the package unicorn")
pytest.importorskip("ziglang", reason="needs the package ziglang")

from mtool import boards, commands, project
from mtool.base import filetree
from mtool.base.errors import BuildError, DeviceError, UsageError
from mtool.cli import demo
from mtool.cli.output import Output
from mtool.commands import BuiltProject, Options
from mtool.compiler.codegen import conventions
from mtool.device import build, cycles, flash, session
from mtool.device.build import toolchains
from mtool.device.session import Device

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "examples" / "digits" / "digits_int8.onnx"
IMAGES = np.load(ROOT / "examples" / "digits" / "test_data.npz")["x"]
SIMULATED = [name for name in boards.load_all() if name.startswith("sim_")]
QEMU = {"sim_m4": "mps2_an386", "sim_m3": "mps2_an385"}
OPTIONS = Options(conventions=conventions(executor="graph-host"))
RUNS = 40  # QEMU's timer has a tick of 40 instructions

needs_qemu = pytest.mark.skipif(shutil.which("qemu-system-arm") is None, reason="QEMU is not installed")


def built_for(board: str, folder: Path) -> BuiltProject:
    return commands.prepare(DIGITS, board=board, folder=folder, options=OPTIONS)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> BuiltProject:
    return built_for("sim_m4", tmp_path_factory.mktemp("sim") / "p")


@pytest.fixture
def device(built: BuiltProject) -> Iterator[Device]:
    with session.open(built.folder) as opened:
        yield opened


def feed(number: int) -> dict[str, Any]:
    return {"image": IMAGES[number : number + 1]}


def test_all_boards_are_there() -> None:
    assert SIMULATED == ["sim_m0", "sim_m3", "sim_m4", "sim_m7", "sim_m33", "sim_rv32"]


def test_the_runtime_calls_only_functions_of_the_c_library_that_are_linked() -> None:
    sources = [path for path in (ROOT / "crt").rglob("*.[ch]") if {"tests", "zephyr", "ports"}.isdisjoint(path.parts)]
    called = set(re.findall(r"\b(?:mem(?:cpy|move|set|chr|cmp)|str[nr]?(?:chr|cmp|cpy|cat|len|str|spn|tok))(?=\()",
                            "".join(map(Path.read_text, sources))))  # fmt: skip
    libc = next((ROOT / "project_templates" / "unicorn").rglob("libc.zig")).read_text()
    assert called - {"memcpy", "memmove", "memset", "memcmp", "strlen"} <= set(re.findall(r'\.name = "(\w+)"', libc))


@pytest.mark.slow
def test_the_device_s_graph_executor() -> None:
    here = Options(conventions=conventions(executor="graph"))
    assert commands.run(DIGITS, board="sim_m4", inputs=[feed(0)], options=here).outputs


@pytest.mark.slow
def test_outputs_and_counts_are_the_same_each_time(device: Device) -> None:
    found = [device.run_timed(feed(i)) for i in (0, 1, 0)]
    assert not np.array_equal(found[0][0]["scores"], found[1][0]["scores"])
    assert np.array_equal(found[0][0]["scores"], found[2][0]["scores"])
    assert found[0][1].runs == found[2][1].runs
    assert found[0][1].unit == "instructions"


@pytest.mark.slow
@needs_qemu
@pytest.mark.parametrize("board", list(QEMU)[: amount.of(2, 1)])
def test_the_same_machine_code_takes_as_many_instructions_in_qemu(
    board: str, built: BuiltProject, tmp_path: Path
) -> None:
    """The model and the RPC server, of the same compiler, beside the other template's port, startup and timer."""
    here = built if board == "sim_m4" else built_for(board, tmp_path / "here")
    model = commands.compile(DIGITS, board=board, options=OPTIONS)
    tree, described = project.render(model.files, model.manifest, boards.get(QEMU[board]), template="baremetal")
    there = tmp_path / "qemu"
    filetree.write(tree, there)
    (there / "build").mkdir()
    ports = "".join(f"{path}\n" for path in tree if path.startswith("crt/ports/") and path.endswith(".c"))
    arguments = (here.folder / "host_driven.args").read_text() + ports + "-Icrt/ports\n"
    (there / "host_driven.args").write_text(arguments)
    headers = _headers(here)
    argv = [str(toolchains.zig()), "cc", "@host_driven.args", str(here.folder / "build" / "libm.a"), *headers]
    subprocess.run([*argv, "-o", "build/host_driven.elf"], cwd=there, check=True, timeout=120)
    counts, outputs = [], []
    for folder in (here.folder, there):
        with session.open(folder) as opened:
            outputs += [opened.run(feed(i))["scores"] for i in (0, 7)]
            counts.append(opened.time(RUNS, 1, inputs=feed(3)).median)
    assert np.array_equal(outputs[:2], outputs[2:])
    assert abs(counts[0] - counts[1]) <= 2, counts
    assert counts[0] > 100_000
    assert described.model == here.manifest.model


def _headers(prepared: BuiltProject) -> list[str]:
    from mtool.device.build import zig

    assert prepared.manifest.project is not None
    return zig.header_options(prepared.manifest.project.board)


@pytest.mark.slow
@pytest.mark.parametrize("board", [name for name in SIMULATED if name != "sim_m4"])
def test_every_other_core_gives_the_same_outputs(board: str, device: Device, tmp_path: Path) -> None:
    prepared = built_for(board, tmp_path / "p")
    with session.open(prepared.folder) as other:
        for number in range(8):
            assert np.array_equal(other.run(feed(number))["scores"], device.run(feed(number))["scores"])


@pytest.mark.slow
def test_one_operator_is_timed_by_name_or_number(device: Device) -> None:
    operators = device.manifest.operators
    rows = device.profile(feed(0), repeat=1).operators
    for which in (0, len(operators) - 1):
        name = operators[which].name
        by_name, by_number = (device.time(1, 1, function=each, inputs=feed(0)) for each in (name, str(which)))
        assert by_name == by_number
        assert by_name.median == rows[which].median > 0
    whole = device.time(1, 1, inputs=feed(0)).median
    assert device.time(1, 1, function=f"{device.manifest.model}_run", inputs=feed(0)).median == whole
    with pytest.raises(UsageError, match="no function 'conf_0'"):
        device.time(function="conf_0")


@pytest.mark.slow
def test_any_tensor_is_read(built: BuiltProject, device: Device) -> None:
    last = device.manifest.operators[-1]
    scores = device.run(feed(5))["scores"]
    assert np.array_equal(session.tensor(device, last.name, feed(5)).reshape(scores.shape), scores)
    first = device.manifest.operators[0]
    graph = device.graph_executor(built.folder)
    graph.set_input("image", feed(5)["image"])
    assert np.array_equal(graph.run()["scores"], scores)
    by_graph = graph.tensor(_node_of(built, first.function))
    assert isinstance(by_graph, np.ndarray)
    assert np.array_equal(by_graph.ravel(), session.tensor(device, first.writes[0].value, feed(5)).ravel())
    graph.tensor(_node_of(built, first.function), feed(6))
    assert not np.array_equal(by_graph, graph.tensor(_node_of(built, first.function), feed(6)))
    for read in (lambda: graph.tensor("nothing"), lambda: session.tensor(device, "nothing", feed(0))):
        with pytest.raises(UsageError, match="nothing"):
            read()


def _node_of(built: BuiltProject, function: str) -> str:
    import json

    assert built.manifest.project is not None
    graph = json.loads((built.folder / built.manifest.project.model / built.manifest.graph).read_text())
    return str(next(node["name"] for node in graph["nodes"] if node.get("attrs", {}).get("func_name") == function))


@pytest.mark.slow
def test_a_fault_names_its_operator(built: BuiltProject, tmp_path: Path) -> None:
    """An operator that writes beyond the memory, an endless one, and one that needs more stack than there is."""
    folder = tmp_path / "p"
    shutil.copytree(built.folder, folder)
    source = folder / "model" / f"{built.manifest.model}.c"
    name = built.manifest.operators[1].function
    head, opened, rest = source.read_text().partition(f" {name}(")
    signature, brace, body = rest.partition("{")
    changes = {
        "data access that is not allowed": "*(volatile int *)0x30000000 = 1;",
        "timeout": "for (volatile int i = 0; i < 1;) { }",
        "stack overflow": "volatile char deep[8000]; for (int i = 8000; i-- > 0;) { deep[i] = 1; }",
    }
    for says, code in changes.items():
        source.write_text(f"{head}{opened}{signature}{brace} {code} {body}")
        build.build(folder)
        with session.open(folder) as device, pytest.raises(DeviceError) as caught:
            device.run(feed(0), timeout_s=1)
        reported = " ".join([caught.value.what, *caught.value.details])
        assert says in reported and "operator 1" in reported, reported


def test_it_is_neither_flashed_nor_are_its_cycles_estimated() -> None:
    assert flash.runners_of(boards.get("sim_m4")) == []
    with pytest.raises(UsageError, match="no emulator that can list instructions") as caught:
        cycles.cores_for(boards.get("sim_m4"))
    assert "sim_m4" not in caught.value.hint.partition(";")[0]


@pytest.mark.parametrize(
    ("missing", "chosen"), [((), "mps2_an386"), (("cmake",), "sim_m4"), (("cmake", "unicorn"), "")]
)
def test_the_demo_takes_the_core_whose_tools_are_here(
    missing: tuple[str, ...], chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        toolchains, "check", lambda tool: toolchains.ToolStatus(tool, "1", tuple({tool.name} & {*missing}))
    )
    assert demo.available_boards(Output("demo")) == ["host", *([chosen] if chosen else [])]


def test_a_missing_package_is_reported(built: BuiltProject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "mtool.device.transport.unicorn.machine", None)
    with pytest.raises(BuildError, match="unicorn is not installed") as caught:
        session.open(built.folder)
    assert caught.value.hint == "pip install 'mtool-mcu[emulator]'"
