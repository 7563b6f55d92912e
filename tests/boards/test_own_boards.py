"""Users' own boards: the places of their files, wrong entries, and entries that mtool writes."""

from pathlib import Path

import pytest

from mtool import boards
from mtool.base.errors import UsageError
from mtool.cli import app

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits_int8.onnx"
Captured = pytest.CaptureFixture[str]
ENTRY = "{description: ours, source: s, cpu: cortex-m4, toolchain: cc, templates: {host: native}%s}"
NEW = ["--set", "cpu=cortex-m4", "--set", "flash=0x08000000:1MiB", "--set", "ram=0x20000000:64KiB"]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mtool.toml").write_text("")
    (tmp_path / "boards").mkdir()
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    monkeypatch.delenv(boards.VARIABLE, raising=False)
    return tmp_path


def test_a_projects_folder_of_boards_is_read(project: Path) -> None:
    (project / "boards" / "ours.yaml").write_text(f"ours: {ENTRY % ''}")
    (project / "boards" / "notes.txt").write_text("no board")
    assert boards.get("ours").description == "ours"
    (project / "boards" / "ours.yaml").chmod(0o666)
    with pytest.raises(UsageError, match="could be another user's"):
        boards.load_all()
    (project / "mtool.toml").unlink()
    assert "ours" not in boards.load_all()


def test_a_file_is_named_by_an_option_or_the_environment(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    (project / "a.yaml").write_text(f"first: {ENTRY % ''}")
    (project / "more").mkdir()
    (project / "more" / "b.yml").write_text(f"second: {ENTRY % ''}")
    assert app.invoke(["boards", "first", "--boards", "../a.yaml"]) == 0
    assert app.invoke(["boards", "second", "--boards", "../a.yaml", "--boards", "../more"]) == 0
    assert app.invoke(["boards", "second"]) == 6  # an option holds for its command alone
    monkeypatch.setenv(boards.VARIABLE, "../more")
    assert app.invoke(["boards", "first", "--boards", "../a.yaml"]) == app.invoke(["boards", "second"]) == 0
    assert app.invoke(["boards", "--boards", "nothing.yaml"]) == 2
    assert "board file not found" in (said := capsys.readouterr().err) and "nothing.yaml" in said


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ("flash: {west: {runer: openocd}}", "flash: unknown setting 'runer' for west; did you mean runner?"),
        ("usb: {idds: []}", "usb.idds: there is no such key; did you mean ids?"),
        (
            "memories: {m: {base: 0, size: 1, hold: [], holds: [code, weights, data, arena, stack]}}",
            "memories.m.hold: there is no such key; did you mean holds?",
        ),
        ("port: {overlai: x}", "port: unknown key 'overlai'; did you mean overlay?"),
        ("templates: {zephir: x}", "templates: unknown key 'zephir'; did you mean zephyr?"),
        ("status: {zephyr: run}", "status: unknown template zephyr; available: host"),
    ],
)
def test_a_wrong_entry_is_reported_and_stops_no_other(more: str, says: str, project: Path, capsys: Captured) -> None:
    (project / "boards" / "ours.yaml").write_text(f"good: {ENTRY % ''}\nbad: {ENTRY % (', ' + more)}")
    assert app.invoke(["boards"]) == 0
    shown = capsys.readouterr().out
    assert "\ngood " in shown and "bad in " in shown and says in shown
    assert app.invoke(["boards", "bad"]) == 2 and says in capsys.readouterr().err
    assert app.invoke(["boards", "god"]) == 6
    assert "similar: good" in capsys.readouterr().err


def test_mtool_writes_an_entry(project: Path, capsys: Captured) -> None:
    facts = [*NEW, "--set", "clock=168MHz", "--set", "zephyr=ours", "--set", "usb=0483:374B", "--set", "runner=west"]
    assert app.invoke(["boards", "--new", "ours", *facts]) == 0
    assert "see it with: mtool boards ours\n" in capsys.readouterr().out
    made, alike = boards.get("ours"), boards.get("mps2_an386")
    assert (made.features, made.toolchain, made.cflags) == (alike.features, alike.toolchain, alike.cflags)
    assert (made.clock_hz, made.memories["ram"].size, made.region_for("arena")) == (168_000_000, 65536, "ram")
    assert made.usb is not None and made.usb.ids == ("0483:374b",) and made.flash == {"west": {}}
    assert app.invoke(["boards", "--new", "ours", *facts]) == 2
    assert "ours.yaml exists already" in capsys.readouterr().err


def test_an_entry_may_begin_with_another(project: Path) -> None:
    origin = boards.get("nucleo_f746zg")
    assert app.invoke(["boards", "--new", "ours", "--from", origin.name, "--set", "ram=0x20010000:32KiB"]) == 0
    made = boards.get("ours")
    assert made.status == {} and made.flash == origin.flash and made.memories["flash"] == origin.memories["flash"]
    assert made.memories["ram"].size == 32768


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--new", "x", *NEW], "a new board needs zephyr or arduino or ports.uart"),
        (["--new", "x"], "a new board needs cpu and flash and ram and zephyr or arduino or ports.uart"),
        (["--new", "../x", *NEW, "--set", "zephyr=x"], "'../x' can't be a board's name"),
        (["--new", "x", *NEW, "--set", "zephyr=x", "--set", "flsh=1"], "did you mean flash?"),
        (["--new", "x", *NEW, "--set", "zephyr=x", "--set", "ram=64K"], "ram=64K is not a memory"),
        (["--new", "x", *NEW, "--set", "zephyr=x", "--set", "cpu=cortex-m99"], "unknown core"),
        (["--new", "x", *NEW, "--set", "zephyr=x", "--set", "usb=1"], "usb.ids.0"),
        (["--set", "cpu=x"], "give the new board's name: --new NAME"),
    ],
)
def test_what_an_entry_lacks_is_reported_and_nothing_written(
    arguments: list[str], says: str, project: Path, capsys: Captured
) -> None:
    assert app.invoke(["boards", *arguments]) == 2
    assert says in capsys.readouterr().err
    assert not [*(project / "boards").iterdir()]


def test_a_board_whose_file_is_not_read_is_reported_with_the_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(boards.VARIABLE, raising=False)
    assert app.invoke(["boards", "--new", "my_m4", *NEW, "--set", "zephyr=my_m4"]) == 0
    capsys.readouterr()
    assert app.invoke(["boards", "my_m4"]) == 6
    reported = capsys.readouterr().err
    assert (
        "boards/my_m4.yaml was not read" in reported
        and "--boards boards/my_m4.yaml" in reported
        and "--new" not in reported
    )
    assert app.invoke(["boards", "my_m4", "--boards", "boards/my_m4.yaml"]) == 0


def test_an_unknown_board_says_how_to_add_one(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.delenv("ZEPHYR_BASE", raising=False)
    assert app.invoke(["boards", "nucleo_f746gz"]) == 6
    said = capsys.readouterr().err
    assert "nucleo_f746zg" in said and "mtool boards --new nucleo_f746gz" in said and "zephyr:NAME" in said


UART = "ports.uart=stm32_usart_v1:base=0x40004400,irq=38,clock_hz=16000000,enable=0x40023840.17,tx=PA2,rx=PA3"
OWN = [*NEW, "--set", "clock=16MHz", "--set", UART]
NRF = "ports.uart=nrf_uart:base=0x40002000"
PINS = ["--set", "ports.pins=nucleo_f446re"]


def test_a_board_without_a_framework(project: Path) -> None:
    assert app.invoke(["boards", "--new", "mine", *OWN, "--set", "ports.pins=nucleo_f446re"]) == 0
    board = boards.get("mine")
    assert board.ports["uart"]["enable"] == (0x40023840, 17) and board.ports["uart"]["tx"] == "PA2"
    assert board.ports["pins"] == boards.get("nucleo_f446re").ports["pins"]
    assert board.timer is not None and (board.timer.kind, board.timer.hz) == ("dwt", 16_000_000)
    assert board.templates == {"baremetal": "baremetal"} and board.port["at_end"] == "reset"
    text = (project / "boards" / "mine.yaml").read_text()
    assert "base: 0x40004400" in text and "enable: [0x40023840, 17]" in text
    assert app.invoke(["generate", str(DIGITS), "-b", "mine", "-d", str(project / "p")]) == 0
    macros = (project / "p" / "src" / "mt_board.h").read_text()
    assert "#define MT_UART_BASE 0x40004400u" in macros and "#define MT_UART_TX 2u" in macros
    assert (project / "p" / "crt" / "ports" / "mt_stm32_gpio_v2.c").is_file()


def test_an_emulated_chip_is_the_start_of_another_board(project: Path) -> None:
    assert app.invoke(["boards", "--new", "mine", "--from", "netduinoplus2", "--set", "ports.timer=systick"]) == 0
    board, origin = boards.get("mine"), boards.get("netduinoplus2")
    assert board.ports == origin.ports and board.emulator == origin.emulator
    assert board.timer is not None and (board.timer.kind, board.timer.hz) == ("systick", 168_000_000)
    assert app.invoke(["boards", "--new", "again", "--from", "netduinoplus2", "--set", "clock=100MHz"]) == 0
    assert boards.get("again").timer == origin.timer


def test_what_a_board_takes_from_another(project: Path, capsys: Captured) -> None:
    assert app.invoke(["boards", "--new", "mine", "--from", "netduinoplus2", "--set", "ram=0x20004000:96KiB"]) == 0
    board, origin = boards.get("mine"), boards.get("netduinoplus2")
    assert board.description == "a board of my own, from netduinoplus2"
    assert board.source == f"the entry of netduinoplus2: {origin.source}"
    assert board.memories["ccm"] == origin.memories["ccm"] and "sram" not in board.memories
    assert "replaced by --set: sram of netduinoplus2" in capsys.readouterr().out
    assert "base: 0x40000000" in (project / "boards" / "mine.yaml").read_text()


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (
            [],
            "ports.uart: tx and rx need ports.pins, a driver that connects them; available: stm32_gpio_v2, stm32",
        ),
        (
            [*PINS, "--set", "clock=8MHz"],
            "ports.uart.clock_hz: expected at most clock_hz, the core's 8,000,000 Hz, found 16",
        ),
        (
            [*PINS, "--set", "ports.timer=dwt:hz=32MHz"],
            "timer.hz: expected at most clock_hz, the core's 16,000,000 Hz, fo",
        ),
        (
            [*PINS, "--set", "ram=0x40000000:64KiB"],
            "ports.uart.base: 0x40004400 is in the memory ram (0x40000000 to 0x4000ffff)",
        ),
        ([*PINS, "--set", "flash=0x40023000:4KiB"], "ports.uart.enable: 0x40023840 is in the memory flash (0x40023000"),
    ],
)
def test_how_a_driver_must_fit_the_chip(more: list[str], says: str, project: Path, capsys: Captured) -> None:
    assert app.invoke(["boards", "--new", "x", *OWN, *more]) == 2
    assert says in capsys.readouterr().err


def test_an_nrf_connects_its_pins_without_a_driver(project: Path, capsys: Captured) -> None:
    own = ["boards", "--new", "x", *NEW, "--set", "clock=16MHz", "--set"]
    assert app.invoke([*own, f"{NRF},irq=2,tx=P0.1,rx=P0.99"]) == 2
    assert "ports.uart.rx: 'P0.99' is not a pin of nrf_uart: P0.00 to P1.31" in capsys.readouterr().err
    assert app.invoke([*own, f"{NRF},irq=2,tx=P0.1,rx=P0.2"]) == 0


def test_an_unknown_driver_may_be_a_board(project: Path, capsys: Captured) -> None:
    assert app.invoke(["boards", "--new", "x", *OWN, "--set", "ports.pins=nosuchboard"]) == 2
    shown = capsys.readouterr().err
    assert shown.count("stm32_gpio_v1") == 1 and "or copy it from a board: netduinoplus2, netduino2" in shown


@pytest.mark.parametrize(
    ("port", "says"),
    [
        ("ports.uart=stm32_usart_v3:base=1", "ports.uart: unknown driver 'stm32_usart_v3'; did you mean stm32_usart_v"),
        ("ports.uart=dwt", "ports.uart: unknown driver 'dwt'"),
        ("ports.uart=nrf_uart:base=0x40002000", "ports.uart: nrf_uart also needs irq (its interrupt's number), tx"),
        ("ports.uart=nrf_uart:bass=0x40002000", "ports.uart: unknown setting 'bass' for nrf_uart; did you mean base?"),
        (
            "ports.uart=nrf_uart:base=0x40002000,irq=2,tx=PX99,rx=P0.1",
            "ports.uart.tx: 'PX99' is not a pin of stm32_gpio_v2: PA0 to PK15",
        ),
        (
            f"{NRF},irq=2,tx=24,rx=P0.1",
            "ports.uart.tx: '24' is not a pin; write PA9, P0.06 or GPIO0 (the pin to the ho",
        ),
        (UART.replace("PA2", "PA03"), "ports.uart: tx and rx are the same pin, PA03"),
        (f"{NRF},irq=-3,tx=P0.1,rx=P0.2", "ports.uart.irq: -3 is out of range: 0 to 479"),
        ("ports.uart=nrf_uart:base=0x40002001", "ports.uart.base: 0x40002001 is not the address of a word"),
        ("ports.uart=nrf_uart:base=UART0", "ports.uart.base: 'UART0' is not a number (the UART's registers)"),
        (UART.replace("PA2", "PA22"), "ports.uart.tx: 'PA22' is not a pin of stm32_gpio_v2: PA0 to PK15"),
        (UART.replace("PA2", "P0.24"), "ports.uart.tx: 'P0.24' is not a pin of stm32_gpio_v2: PA0 to PK15"),
        (UART.replace(".17", ".47"), "ports.uart.enable: a register has no bit 47"),
        (UART.replace(".17", ""), "ports.uart.enable: 1073887296 is not a register and a bit in it"),
        (UART.replace("16000000", "0"), "ports.uart.clock_hz: 0 is out of range: 1 to"),
        ("ports.uart=nrf_uart:base", "ports.uart: 'base' is not KEY=VALUE"),
        ("ports.uart=mps2_an386", "mps2_an386 has no ports.uart"),
        ("ports.usart=nrf_uart", "--set ports.usart: unknown fact"),
        (UART, "a new board needs clock"),
    ],
)
def test_what_is_wrong_with_a_driver(port: str, says: str, project: Path, capsys: Captured) -> None:
    others = [] if port == UART else ["--set", "clock=16MHz", "--set", "ports.pins=nucleo_f446re"]
    assert app.invoke(["boards", "--new", "x", *NEW, "--set", port, *others]) == 2
    assert says in capsys.readouterr().err
