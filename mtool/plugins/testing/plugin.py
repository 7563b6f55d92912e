"""pytest's plugin: fixtures for tests of a model on a board. It does nothing where no test asks for them.

| fixture | what it is |
|---|---|
| `mtool_project` | what `mtool.toml` says, of the folder that pytest was started in |
| `model` | the model, compiled and built for the board |
| `device` | a session with what runs it: a process, an emulator, or a board, which is flashed first |
| `cost` | what an inference costs there: instructions or time, flash, RAM |
| `limits` | what limits.toml allows, and the figures that were recorded last |

All are made once for a session of pytest. An error of mtool's fails the test with mtool's own message.
"""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from mtool.base.errors import MtoolError
    from mtool.commands.cost import Cost
    from mtool.commands.user_project import UserProject
    from mtool.device.session import Device
    from mtool.plugins.testing.model import Limits, ModelUnderTest

_OF_THE_DEVICE = (
    "mtool.base.proc",
    "mtool.device.flash",
    "mtool.device.session",
    "mtool.device.transport",
    "mtool.device.rpc",
)

ERRORS = pytest.StashKey[list["MtoolError"]]()
"""mtool's errors that tests ended with; `mtool test` tells its exit code by them."""

LIMITS = pytest.StashKey["Limits"]()
"""The limits that tests asked for, with the figures that they held against them."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add mtool's options."""
    group = parser.getgroup("mtool", "a model on a board")
    group.addoption("--mtool-board", metavar="BOARD", default="", help="the board; default: test_board of mtool.toml")
    group.addoption("--mtool-port", metavar="DEVICE", default="", help="the board's serial port")
    group.addoption("--mtool-probe", metavar="SERIAL", default="", help="the serial number of the board or its probe")
    group.addoption(
        "--mtool-record", action="store_true", help="write the figures down (figures.json); don't compare them"
    )
    group.addoption(
        "--mtool-log", metavar="FILE", default="", help="write down what mtool did and what went over the channel"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Make room for the errors."""
    config.stash[ERRORS] = []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Tell an error of mtool's in its own words, without a traceback."""
    from mtool.base.errors import MtoolError

    report: Any = yield
    if call.excinfo is not None and isinstance(call.excinfo.value, MtoolError):
        item.config.stash[ERRORS].append(call.excinfo.value)
        report.longrepr = f"error: {call.excinfo.value}"
    return report  # type: ignore[no-any-return]


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Show the figures that were measured."""
    limits = config.stash.get(LIMITS, None)
    if limits is None or not limits.seen:
        return
    terminalreporter.section(f"figures on {limits.board}")
    for name, value in limits.seen.items():
        last = limits.last.get(name)
        change = "" if not last else f"   {100 * (value - last) / last:+.2f}%"
        shown = f"{value:.4f}" if name == "accuracy" else f"{value:,.0f}"
        terminalreporter.write_line(f"{name:<14} {shown:>14}{change}")
    if unlimited := limits.unlimited():
        terminalreporter.write_line(unlimited, yellow=True)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the figures down, if that is asked for and no test failed."""
    limits = session.config.stash.get(LIMITS, None)
    if limits is not None and limits.records and limits.seen and not session.testsfailed:
        from mtool.plugins.testing.model import record

        record(limits)


@pytest.fixture(scope="session")
def mtool_project(pytestconfig: pytest.Config) -> "UserProject":
    """Return what `mtool.toml` says of the project that the tests belong to."""
    from mtool.commands import user_project

    return user_project.require(pytestconfig.rootpath)


@pytest.fixture(scope="session")
def mtool_board(pytestconfig: pytest.Config, mtool_project: "UserProject") -> str:
    """Return the name of the board that the tests run on."""
    return pytestconfig.getoption("--mtool-board") or mtool_project.test_board


@pytest.fixture(scope="session")
def mtool_log(pytestconfig: pytest.Config) -> Iterator[IO[str] | None]:
    """Open the log, if there is to be one."""
    name = pytestconfig.getoption("--mtool-log")
    if not name:
        yield None
        return
    from mtool.base import files

    with files.open_log(Path(name)) as file:
        handler = logging.StreamHandler(file)
        handler.addFilter(lambda record: record.levelno > logging.DEBUG or record.name.startswith(_OF_THE_DEVICE))
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
        logger = logging.getLogger("mtool")
        level = logger.level
        logger.addHandler(handler)
        logger.setLevel(logging.DEBUG)
        try:
            yield file
        finally:
            logger.removeHandler(handler)
            logger.setLevel(level)


@pytest.fixture(scope="session")
def model(
    pytestconfig: pytest.Config, mtool_project: "UserProject", mtool_board: str, mtool_log: IO[str] | None
) -> "ModelUnderTest":
    """Return the project's model, compiled and built for the board."""
    from mtool.plugins.testing import model as testing

    port, probe = (pytestconfig.getoption(f"--mtool-{name}") for name in ("port", "probe"))
    return testing.build(mtool_project, mtool_board, port=port, probe=probe)


@pytest.fixture(scope="session")
def device(pytestconfig: pytest.Config, model: "ModelUnderTest", mtool_log: IO[str] | None) -> Iterator["Device"]:
    """Open a session with what runs the model."""
    from mtool.plugins.testing.model import open_device

    port, probe = (pytestconfig.getoption(f"--mtool-{name}") for name in ("port", "probe"))
    with open_device(model, port=port, probe=probe, record=mtool_log) as opened:
        yield opened


@pytest.fixture(scope="session")
def cost(model: "ModelUnderTest", device: "Device") -> "Cost":
    """Return what an inference costs on the board."""
    return model.cost(device)


@pytest.fixture(scope="session")
def limits(pytestconfig: pytest.Config, mtool_project: "UserProject", mtool_board: str) -> "Limits":
    """Return what limits.toml allows on the board."""
    from mtool.plugins.testing.model import load

    found = load(mtool_project.folder, mtool_board, records=pytestconfig.getoption("--mtool-record"))
    pytestconfig.stash[LIMITS] = found
    return found
