"""A pytest plugin: fixtures for tests of a model on a board. It does nothing unless a test uses them.

| fixture | what it is |
|---|---|
| `mtool_project` | the contents of `mtool.toml` in the folder that pytest was started in |
| `model` | the model, compiled and built for the board |
| `device` | a session with the running model: a process, an emulator, or a board, which is flashed first |
| `cost` | the cost of an inference there: instructions or time, flash, RAM |
| `limits` | the limits in limits.toml, and the figures that were recorded last |
| `replayed` | an application's recordings, through its program there |

All are created once for each pytest session. An mtool error fails the test with mtool's own message.
"""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from mtool.base.errors import MtoolError
    from mtool.commands.cost import Cost
    from mtool.commands.replaying import Replay
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

_WHOLE = 100.0  # figures from here on are shown without decimal places

ERRORS = pytest.StashKey[list["MtoolError"]]()
"""The mtool errors that tests ended with; they determine the exit code of `mtool test`."""

LIMITS = pytest.StashKey["Limits"]()
"""The limits that tests used, with the figures that were checked."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add mtool's options."""
    group = parser.getgroup("mtool", "a model on a board")
    group.addoption("--mtool-board", metavar="BOARD", default="", help="the board; default: test_board of mtool.toml")
    group.addoption("--mtool-port", metavar="DEVICE", default="", help="the board's serial port")
    group.addoption("--mtool-probe", metavar="SERIAL", default="", help="the serial number of the board or its probe")
    group.addoption(
        "--mtool-record", action="store_true", help="record the figures in figures.json instead of comparing them"
    )
    group.addoption(
        "--mtool-log", metavar="FILE", default="", help="log what mtool did, and all bytes sent and received"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Set up the list of errors."""
    config.stash[ERRORS] = []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Report an mtool error by its own message, without a traceback."""
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
        shown = f"{value:,.0f}" if value == round(value) or value >= _WHOLE else f"{value:.4f}"
        terminalreporter.write_line(f"{name:<14} {shown:>14}{change}")
    if unlimited := limits.unlimited():
        terminalreporter.write_line(unlimited, yellow=True)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Record the figures, if that is requested and no test failed."""
    limits = session.config.stash.get(LIMITS, None)
    if limits is not None and limits.records and limits.seen and not session.testsfailed:
        from mtool.plugins.testing.model import record

        record(limits)


@pytest.fixture(scope="session")
def mtool_project(pytestconfig: pytest.Config) -> "UserProject":
    """Return the project that the tests belong to, as described in `mtool.toml`."""
    from mtool.commands import user_project

    return user_project.require(pytestconfig.rootpath)


@pytest.fixture(scope="session")
def mtool_board(pytestconfig: pytest.Config, mtool_project: "UserProject") -> str:
    """Return the name of the board that the tests run on."""
    return pytestconfig.getoption("--mtool-board") or mtool_project.test_board


@pytest.fixture(scope="session")
def mtool_log(pytestconfig: pytest.Config) -> Iterator[IO[str] | None]:
    """Open the log, if one is requested."""
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
    """Open a session with the running model."""
    from mtool.plugins.testing.model import open_device

    port, probe = (pytestconfig.getoption(f"--mtool-{name}") for name in ("port", "probe"))
    with open_device(model, port=port, probe=probe, record=mtool_log) as opened:
        yield opened


@pytest.fixture(scope="session")
def cost(model: "ModelUnderTest", device: "Device") -> "Cost":
    """Return the cost of an inference on the board."""
    return model.cost(device)


@pytest.fixture(scope="session")
def limits(pytestconfig: pytest.Config, mtool_project: "UserProject", mtool_board: str) -> "Limits":
    """Return the limits for the board in limits.toml."""
    from mtool.plugins.testing.model import load

    loaded = load(mtool_project.folder, mtool_board, records=pytestconfig.getoption("--mtool-record"))
    pytestconfig.stash[LIMITS] = loaded
    return loaded


@pytest.fixture(scope="session")
def replayed(pytestconfig: pytest.Config, mtool_project: "UserProject", mtool_board: str) -> "Replay":
    """Send an application's recordings in clips/ through its program on the board."""
    from mtool.commands import replaying

    folder = mtool_project.folder / replaying.CLIPS
    if not any(folder.glob("*.wav")):
        pytest.skip(f"{folder} has no recordings")
    port, probe = (pytestconfig.getoption(f"--mtool-{name}") for name in ("port", "probe"))
    return replaying.replay(mtool_project, [folder], board=mtool_board, port=port, probe=probe)
