"""Zephyr firmware, built by a real Zephyr and run over its UART; and the boards' names against Zephyr's list."""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import models
import numpy as np
import packages
import pytest

import mtool
from mtool import boards, commands
from mtool.base import resources
from mtool.base.errors import BoardError, BuildError, DeviceError
from mtool.boards import zephyr
from mtool.commands import Options, loading, modules
from mtool.device import build, session
from mtool.device.build import toolchains, west
from mtool.device.transport import open_emulator
from mtool.device.transport.emulator import command
from mtool.manifest import Project
from mtool.manifest.modules import keys
from mtool.stages.options import module_options
from tests.device.session import faulty

KWS = "kws/kws_int8_qdq"
NAMED = [board for board in boards.load_all().values() if "zephyr" in board.templates]
RUN = [board.name for board in NAMED if board.status["zephyr"] == "run"]
# The Zephyr tree is not enough for the others: they need a vendor's HAL in the workspace.
BUILT = ["stm32f746g_disco", "nucleo_f746zg", "nucleo_l4r5zi", "nucleo_h743zi"]
BOOT_S = 20.0

pytestmark = [
    pytest.mark.timeout(
        3600
    ),  # a test builds two firmwares, each of which may take mtool.device.build.west's half hour
    pytest.mark.skipif("ZEPHYR_BASE" not in os.environ, reason="ZEPHYR_BASE names no Zephyr tree"),
    pytest.mark.skipif(shutil.which(west.program()) is None, reason="west is not installed"),
]


def options(**values: str) -> Options:
    return Options(template="zephyr", template_options=values)


def need(name: str) -> boards.Board:
    """Return a board, or skip the test if its compiler or emulator is missing."""
    board = boards.get(name)
    tools = [board.toolchain, *([board.emulator.program] if board.emulator else [])]
    for tool in tools:
        if tool in toolchains.load_all() and toolchains.check(toolchains.load_all()[tool]).missing:
            pytest.skip(f"{tool} is not installed")
    variant = os.environ.get("ZEPHYR_TOOLCHAIN_VARIANT")
    if variant == "gnuarmemb" and "arm" not in board.toolchain and board.cpu != "host":
        pytest.skip(f"ZEPHYR_TOOLCHAIN_VARIANT={variant} compiles for Arm only")
    own = {"ZEPHYR_TOOLCHAIN_VARIANT", "ZEPHYR_SDK_INSTALL_DIR"}.isdisjoint(os.environ)
    if own and "arm" in board.toolchain and not Path(specs(board.toolchain)).is_absolute():
        pytest.skip(f"{board.toolchain} has no picolibc")
    if own and "riscv" in board.toolchain and libgcc(board, is_core=True) == libgcc(board, is_core=False):
        pytest.skip(f"{board.toolchain} has no libraries for what Zephyr calls the core of {name}")
    return board


def libgcc(board: boards.Board, *, is_core: bool) -> str:
    """Return the library that GCC takes for a core as Zephyr names it, or for any."""
    core = [f"-march={board.cpu}_zicsr_zifencei", f"-mabi={'lp64' if '64' in board.cpu else 'ilp32'}"]
    argv = [board.toolchain, *(core if is_core else []), "-print-libgcc-file-name"]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


def need_hal() -> None:
    if not list(Path(os.environ["ZEPHYR_BASE"]).parent.glob("modules/hal/stm32")):
        pytest.skip("the workspace has no hal_stm32")


def specs(compiler: str) -> str:
    argv = [compiler, "-print-file-name=picolibc.specs"]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


def zephyrs_names() -> set[str]:
    """Return every board of the tree, with each of its qualifiers, as `west build -b` takes them."""
    argv = [west.program(), "boards", "-f", "{name}|{qualifiers}"]
    listed = subprocess.run(argv, capture_output=True, text=True, check=True, cwd=os.environ["ZEPHYR_BASE"]).stdout
    names = set()
    for line in listed.splitlines():
        name, _, qualifiers = line.partition("|")
        every = qualifiers.split(",") if qualifiers else []
        names |= {name} if len(every) <= 1 else set()
        names |= {f"{name}/{qualifier}" for qualifier in every}
        # Zephyr takes a board's only system-on-chip as read: nucleo_n657x0_q is nucleo_n657x0_q/stm32n657xx.
        names |= {name} if len({qualifier.partition("/")[0] for qualifier in every}) == 1 else set()
    return names


def test_every_board_is_one_of_zephyrs() -> None:
    known = zephyrs_names()
    assert len(known) > 500
    assert {board.templates["zephyr"] for board in NAMED} - known == set()


def test_a_module_in_an_emulated_flash_is_there_in_the_next_session(tmp_path: Path) -> None:
    """With a link key, whose challenges come from that flash: the board has no entropy driver."""
    name = need("mps2_an386").name
    keys.make(tmp_path / "own.key")
    own = {**module_options(True, tmp_path / "own.key.pub"), "link_key": bytes(range(16)).hex()}
    taken = {"template": "zephyr", "template_options": own}
    folder = mtool.prepare(
        faulty.DIGITS, board=name, folder=tmp_path / "project", options=Options(name="own", **taken)
    ).folder
    made = modules.make_module(faulty.DIGITS, board=name, key=tmp_path / "own.key", options=Options(name="net"))
    modules.write_module(made, tmp_path / "net.mtm")
    assert loading.load_module(tmp_path / "net.mtm", folder).is_kept
    with session.open(folder) as device:
        assert device.models == ("own", "net")
    assert not loading.load_module(tmp_path / "net.mtm", folder, ram=True).is_kept


@models.needed
@pytest.mark.parametrize("name", RUN)
def test_the_host_drives_the_model_over_the_uart(name: str, tmp_path: Path) -> None:
    board = need(name)
    report = commands.verify(
        models.path(KWS),
        board=board,
        golden=models.golden(KWS),
        deployment=commands.Deployment(tmp_path / "project"),
        options=options(),
    )
    for output in report.outputs:
        assert output.within, f"{output.name}: {output.worst}, allowed {output.allowed}"
    with session.open(tmp_path / "project") as device:
        times = [device.time(number=2, repeat=2) for _ in range(2)]
        assert all(time.median > 0 for time in times)
        assert times[0].unit == ("instructions" if board.cpu != "host" else "ns")
    built = build.build(tmp_path / "project")
    assert built.up_to_date
    size = build.measure(built.firmware["host_driven"], built.manifest)
    assert size.flash_const_bytes > 20_000
    assert size.arena_bytes > 8_000


@models.needed
@pytest.mark.parametrize("name", ["mps2_an386", "native_sim"])
def test_the_standalone_firmware_prints_the_class(name: str, tmp_path: Path) -> None:
    board = need(name)
    model = commands.compile(models.path(KWS), board=board, options=options())
    host = commands.build_model(commands.compile(models.path(KWS), board="host"), tmp_path / "host")
    silence = {tensor.name: np.zeros(tensor.shape, tensor.dtype) for tensor in model.manifest.inputs}
    with session.open(host.folder) as device:
        (expected,) = device.run(silence).values()
    built = commands.build_model(model, tmp_path / "project", kinds=["standalone"]).built
    wanted = f"element {int(expected.argmax())} of {expected.size} is the largest"
    assert board.emulator is not None
    argv = command(board.emulator, built.firmware["standalone"].absolute(), channel="uart")
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        printed, deadline = "", time.monotonic() + BOOT_S
        while wanted not in printed and time.monotonic() < deadline:
            printed += (process.stdout.read() or b"").decode()
            time.sleep(0.05)
    finally:
        process.kill()
        process.communicate()
    assert wanted in printed


@pytest.mark.parametrize("name", ["mps2_an385", "mps2_an386", "mps2_an521", "mps3_an547"])
def test_a_fault_is_reported(name: str, tmp_path: Path) -> None:
    folder = faulty.make(need(name), tmp_path / "project", template="zephyr")
    for fault, what in (
        (faulty.DEEP, "stack overflow"),
        *(
            [(faulty.UNMAPPED, "BusFault")] if name in ("mps2_an385", "mps2_an386") else []
        ),  # not as QEMU has the others
        (faulty.ILLEGAL, "UsageFault"),
        (faulty.DIVISION, "UsageFault"),
        (faulty.ENDLESS, "timeout"),
    ):
        with session.open(folder, timeout_s=BOOT_S) as device:
            device.run(faulty.sample(device.manifest))
            with pytest.raises(DeviceError) as caught:
                device.run(faulty.sample(device.manifest, fault), timeout_s=1.0)
        assert caught.value.what.startswith(f"{what} in {faulty.NAMED}"), (caught.value, fault)
        has_line = fault in (faulty.UNMAPPED, faulty.ILLEGAL, faulty.DIVISION)
        assert not has_line or faulty.line(folder, fault) in caught.value.details[0]
        assert not has_line or caught.value.details[-1].endswith(" of 4096 B used")


@models.needed
def test_a_flood_does_no_harm(tmp_path: Path) -> None:
    """More bytes than the ring holds, without a reader: the UART holds back the rest, and a session opens
    afterwards."""
    board = need("mps2_an386")
    model = commands.compile(models.path(KWS), board=board, options=options(uart_ring_bytes="256"))
    built = commands.build_model(model, tmp_path / "project").built
    assert board.emulator is not None and built.manifest.project is not None
    transport = open_emulator(board.emulator, built.firmware["host_driven"].absolute(), channel="uart")
    transport.write(bytes(range(1, 256)) * 200, timeout_s=60)
    with session.Device(built.manifest, transport, timeout_s=60) as device:
        samples = np.load(models.golden(KWS))
        (answer,) = device.run({built.manifest.inputs[0].name: samples["x0"][0]}).values()
        assert (answer.ravel() == samples["y0"][0].ravel()).all()


@models.needed
@pytest.mark.parametrize("name", BUILT)
def test_a_board_is_built(name: str, tmp_path: Path) -> None:
    board = need(name)
    need_hal()
    model = commands.compile(models.path(KWS), board=board, options=options())
    built = commands.build_model(model, tmp_path / "project", kinds=["host_driven", "standalone"]).built
    project = built.manifest.project
    assert isinstance(project, Project)
    for kind, firmware in built.firmware.items():
        assert firmware.is_file(), kind
        assert firmware.with_suffix(".hex").is_file()
        size = build.measure(firmware, built.manifest)
        memory = board.memory_for("data")
        assert memory is not None
        assert size.ram_static_bytes + size.arena_bytes < memory.size
        configured = (firmware.parent / ".config").read_text()
        assert f"CONFIG_SYS_CLOCK_HW_CYCLES_PER_SEC={board.clock_hz}\n" in configured
    if name == "nucleo_l4r5zi":  # the clock driver's settings give that clock too: 16 MHz / M * N / R
        reported = dict(
            re.findall(r'\|/clocks/pll\|(div-m|mul-n|div-r)" "(\d+)"', (firmware.parent / "dts.cmake").read_text())
        )
        assert 16_000_000 // int(reported["div-m"]) * int(reported["mul-n"]) // int(reported["div-r"]) == board.clock_hz


@pytest.mark.parametrize("name", ["mps2_an385", "qemu_cortex_m3", "mps2_an521", "mps3_an547", "native_sim", *BUILT])
def test_the_tree_says_of_a_board_what_we_do(name: str) -> None:
    known = need(name)
    if name in BUILT:
        need_hal()
    reported = boards.get(f"zephyr:{known.templates['zephyr']}")
    assert (reported.cpu, reported.features) == (known.cpu, known.features)
    assert reported.toolchain == known.toolchain
    for role in boards.ROLES:
        ours, theirs = known.placed_by("zephyr").memory_for(role), reported.memory_for(role)
        is_ours = role in ("arena", "hot_code") or "zephyr,sram" in str(known.port.get("overlay"))
        assert (ours and ours.base) == (theirs and theirs.base) or is_ours
    if reported.emulator is None:
        assert reported.flash["west"]["runner"] in ("openocd", "stm32cubeprogrammer")
        assert reported.flash["jlink"] == known.flash["jlink"]
    else:
        assert known.emulator is not None and reported.emulator.program == known.emulator.program


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("frdm_k64f", "west update hal_nxp"),
        ("rpi_pico", "west update hal_rpi_pico"),
        ("nrf52840dk", "choose one: --board zephyr:nrf52840dk/nrf52840"),
        ("nucleo_f746gz", "west boards"),
    ],
)
def test_what_a_board_of_the_tree_lacks_is_reported(name: str, says: str) -> None:
    need("mps2_an385")
    for module in ("nxp", "rpi_pico", "nordic"):
        if list(Path(os.environ["ZEPHYR_BASE"]).parent.glob(f"modules/hal/{module}")):
            pytest.skip(f"the workspace has hal_{module}")
    with pytest.raises((BuildError, BoardError)) as caught:
        boards.get(f"zephyr:{name}")
    assert says in caught.value.hint


def test_a_board_of_the_tree_runs_a_model(tmp_path: Path) -> None:
    need("qemu_cortex_m3")
    report = commands.verify(
        resources.path("examples/digits") / "digits_int8.onnx",
        board="zephyr:qemu_cortex_m3",
        deployment=commands.Deployment(tmp_path / "project"),
    )
    assert all(output.within for output in report.outputs)


def test_twister_runs_the_sample_of_a_module(tmp_path: Path) -> None:
    for package in ("natsort", "tabulate", "ply", "junitparser", "colorama"):
        pytest.importorskip(package, reason=f"twister needs {package}")
    board = need("mps2_an385")
    model = commands.compile(resources.path("examples/digits") / "digits_int8.onnx", board=board)
    folder = packages.write(model, tmp_path / "module", form="zephyr-module")
    argv = [sys.executable, f"{os.environ['ZEPHYR_BASE']}/scripts/twister", "-T", str(folder / "samples"), "-v"]
    argv += ["-p", board.templates["zephyr"], "-O", str(tmp_path / "out"), "-j", "1"]
    env = {**os.environ, **zephyr.variant_of(board.toolchain)}
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stdout[-2000:]
    assert "1 of 1 executed test configurations passed" in done.stdout and "with no warnings" in done.stdout
