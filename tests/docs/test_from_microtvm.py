"""docs/tutorials/from-microtvm.md covers each verb, option, method and board of microTVM, and mtool's are real.

The names are those of TVM 0.14: python/tvm/driver/tvmc/micro.py and runner.py, python/tvm/micro/project_api/server.py,
and the servers and boards.json of apps/microtvm/zephyr and arduino.
"""

import re

import pages
import pytest

from mtool import boards
from mtool.cli import app
from mtool.commands.project_api import ProjectApi

PAGE = (pages.ROOT / "docs" / "tutorials" / "from-microtvm.md").read_text()
THEIRS = " ".join(row.split(" | ")[0] for row in PAGE.splitlines() if row.startswith("| "))
VERBS = ("tvmc compile", "tvmc micro create-project", "tvmc micro build", "tvmc micro flash", "tvmc run", "tvmc tune")
OPTIONS = (
    *("zephyr", "arduino", "template", "--template-dir", "--project-option", "--list-options", "--force"),
    *("--device", "--fill-mode", "--inputs", "--outputs", "--print-time", "--print-top", "--profile", "--end-to-end"),
    *("--repeat", "--number", "--rpc-key", "--rpc-tracker"),
)
PROJECT_OPTIONS = (
    *("verbose", "project_type", "board", "cmsis_path", "warning_as_error", "compile_definitions", "extra_files_tar"),
    *("gdbserver_port", "serial_number", "west_cmd", "zephyr_base", "config_main_stack_size", "arm_fvp_path"),
    *("use_fvp", "workspace_size_bytes", "arduino_cli_cmd", "port"),
)
PROJECT_TYPES = ("host_driven", "aot_standalone_demo", "mlperftiny", "example_project")
METHODS = ("server_info_query", "generate_project", "build", "flash", "open_transport", "close_transport")
ON_ZEPHYR = (
    *("b_u585i_iot02a", "mimxrt1050_evk", "mps2_an521", "mps3_an547", "nrf5340dk", "nucleo_f746zg", "nucleo_l4r5zi"),
    *("stm32f746g_disco", "qemu_cortex_r5", "qemu_riscv32", "qemu_riscv64", "qemu_x86"),
)
ON_ARDUINO = (
    *("due", "feathers2", "metrom4", "nano33ble", "portentah7", "pybadge", "rpipico", "spresense"),
    *("teensy40", "teensy41", "wioterminal"),
)


@pytest.mark.parametrize("name", [*VERBS, *OPTIONS, *PROJECT_OPTIONS, *METHODS, "read_transport", "write_transport"])
def test_each_of_their_names_has_a_row(name: str) -> None:
    assert re.search(rf"`{re.escape(name)}(?:`| |=)", THEIRS), name


@pytest.mark.parametrize("name", PROJECT_TYPES)
def test_each_type_of_project_has_a_row(name: str) -> None:
    assert re.search(rf"[`=]{name}`", THEIRS), name


def test_each_command_that_stands_beside_theirs_can_be_typed() -> None:
    rows = [row for row in PAGE.splitlines() if row.startswith("| ")]
    commands = [command for row in rows for command in pages.mentioned(row)]
    assert len(commands) > 25
    for command in commands:
        words = list(command.words)
        words.remove(command.name)
        app.command_of(command.name).make_context(command.name, words)  # raises what the parser finds wrong


def test_the_methods_of_the_project_api_are_there() -> None:
    for name in re.findall(r"`(\w+)`", PAGE.split("ProjectApi`:")[1].split("|")[0]):
        assert callable(getattr(ProjectApi, name)), name


def test_each_of_their_boards_is_one_of_ours() -> None:
    known = boards.load_all()
    assert set(ON_ZEPHYR) <= set(known)
    part = PAGE.split("## Boards")[1].split("## In the C")[0]
    rows = [row.split("|")[1:5] for row in part.splitlines() if row.startswith("| `")]
    cells = [re.findall(r"`(\w+)`", cell) for row in rows for cell in row]
    pairs = zip(cells[::2], cells[1::2], strict=True)
    ours = {name: here for left, right in pairs for name, here in zip(left, right, strict=True)}
    assert set(ours) == set(ON_ARDUINO)
    assert set(ours.values()) <= set(known)
