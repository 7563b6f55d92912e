import gc
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest

from mtool.base import locks
from mtool.base.errors import BoardError, CommunicationError
from mtool.device.transport import ProcessTransport

ROOT = Path(__file__).parents[3]


def python(program: str) -> ProcessTransport:
    return ProcessTransport([sys.executable, "-c", program], name="the program")


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")  # if it exists, it shows processes that ended and were not waited for
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"


def test_bytes_go_both_ways() -> None:
    with ProcessTransport(["cat"], name="cat") as transport:
        transport.write(b"\0\xff bytes", timeout_s=5)
        assert transport.read(timeout_s=5) == b"\0\xff bytes"
        assert transport.read(timeout_s=0) == b""


def test_more_than_the_pipes_hold() -> None:
    data = os.urandom(1 << 20)
    with ProcessTransport(["cat"], name="cat") as transport:
        transport.write(data, timeout_s=10)
        back = b""
        while len(back) < len(data):
            piece = transport.read(timeout_s=10)
            assert piece
            back += piece
    assert back == data


def test_a_read_waits_no_longer_than_requested() -> None:
    with ProcessTransport(["cat"], name="cat") as transport:
        start = time.monotonic()
        assert transport.read(timeout_s=0.1) == b""
        assert 0.09 < time.monotonic() - start < 2


def test_a_write_that_is_not_accepted() -> None:
    with (
        python("import time; time.sleep(60)") as transport,
        pytest.raises(CommunicationError, match="the program did not accept all bytes"),
    ):
        transport.write(bytes(1 << 20), timeout_s=0.2)


def test_the_end_of_a_program_is_reported_with_its_last_words() -> None:
    program = "import sys; print('\\n'.join(f'line {i}' for i in range(30)), file=sys.stderr); sys.exit(3)"
    with python(program) as transport, pytest.raises(CommunicationError) as caught:
        transport.read(timeout_s=10)
    assert caught.value.what == "the program ended with exit code 3"
    assert caught.value.details[0].startswith(f"$ {sys.executable} -c ")
    assert caught.value.details[1:] == tuple(f"line {i}" for i in range(20, 30))


def test_another_thread_closes_it_while_its_end_is_reported() -> None:
    transport = ProcessTransport(["true"], name="the program", on_exit=lambda status: transport.close())
    with pytest.raises(CommunicationError, match="the program was closed"):
        transport.read(timeout_s=5)


def test_a_killed_program_is_reported() -> None:
    with ProcessTransport(["cat"], name="cat") as transport:
        os.kill(transport.pid, signal.SIGKILL)
        with pytest.raises(CommunicationError, match="cat was killed by signal 9"):
            transport.read(timeout_s=10)
        with pytest.raises(CommunicationError, match="cat was killed by signal 9"):
            transport.write(bytes(1 << 20), timeout_s=10)


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CommunicationError, match="the firmware can't be started") as caught:
        ProcessTransport([str(tmp_path / "nothing")], name="the firmware")
    assert "No such file" in caught.value.details[1]


@pytest.mark.parametrize(
    "program",
    [
        "import sys; sys.stdin.read()",
        "import time; time.sleep(60)",  # ignores the end of its input
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(60)",
    ],
)
def test_close_ends_the_program(program: str) -> None:
    transport = python(program)
    if "SIG_IGN" in program:
        transport.read(timeout_s=10)
    pid = transport.pid
    assert is_alive(pid)
    transport.close()
    assert not is_alive(pid)
    transport.close()
    with pytest.raises(CommunicationError, match="was closed"):
        transport.read(timeout_s=0)
    with pytest.raises(CommunicationError, match="was closed"):
        transport.write(b"x", timeout_s=0)


@pytest.mark.slow
def test_a_forgotten_transport_ends_its_program() -> None:
    transport = ProcessTransport(["cat"], name="cat")
    pid = transport.pid
    del transport
    gc.collect()
    assert not is_alive(pid)


def ended(pid: int, within_s: float = 10) -> bool:
    """Whether a process ends in time."""
    deadline = time.monotonic() + within_s
    while is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not is_alive(pid)


DEAF = "echo $$; exec sleep 60"  # never notices that its input has ended
WRAPPING = "sleep 60 & echo $!; wait"  # as a script does that starts the true emulator


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("program", [DEAF, WRAPPING])
def test_a_program_does_not_outlive_an_mtool_that_is_killed(program: str, end: signal.Signals) -> None:
    lines = [
        "import sys, time",
        "from mtool.device.transport import ProcessTransport",
        f"transport = ProcessTransport(['sh', '-c', {program!r}], name='it')",
        "print(transport.pid, transport.read(timeout_s=10).decode(), flush=True)",
        "time.sleep(60)",
    ]
    mtool = subprocess.Popen([sys.executable, "-c", "\n".join(lines)], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert mtool.stdout is not None
    pids = [int(pid) for pid in mtool.stdout.readline().split()]
    assert len(pids) == 2 and all(is_alive(pid) for pid in pids)
    mtool.send_signal(end)
    mtool.communicate()
    assert all(ended(pid) for pid in pids)


def test_close_ends_what_the_program_has_started() -> None:
    transport = ProcessTransport(["sh", "-c", WRAPPING], name="it")
    inner = int(transport.read(timeout_s=10))
    assert is_alive(inner)
    transport.close()
    assert ended(inner)


def test_what_a_program_leaves_behind_at_its_end_is_ended() -> None:
    transport = ProcessTransport(["sh", "-c", "sleep 60 >&- & echo $!"], name="it")
    inner = int(transport.read(timeout_s=10))
    with pytest.raises(CommunicationError, match="ended with exit code 0"):
        transport.read(timeout_s=10)
    assert ended(inner)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_fork_leaves_the_program_and_the_lock_of_its_device_alone() -> None:
    with ProcessTransport(["cat"], name="cat") as transport, locks.locked("a port"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the threads that the test runner may have
            child = os.fork()
        if child == 0:
            transport.close()
            try:
                locks.Lock("a port")
            except BoardError:
                os._exit(0)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        transport.write(b"there", timeout_s=5)
        assert transport.read(timeout_s=5) == b"there"
