"""A lock ends with its process, is in a folder that only its user can write, and never changes another file."""

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mtool.base import locks
from mtool.base.errors import BoardError, UsageError

SOURCES = str(Path(locks.__file__).parents[1])


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let locks lie below a folder of the test's own."""
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PYTHONPATH", SOURCES)
    return tmp_path / "state" / "mtool" / "locks"


def python(*lines: str) -> "subprocess.Popen[str]":
    """Start a process that runs these lines; it ends when its input does, if it reads it."""
    program = "\n".join(["import os, sys", "from pathlib import Path", "from mtool.base import locks, proc", *lines])
    return subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def holder() -> Iterator["subprocess.Popen[str]"]:
    """A process that holds a port and a folder until it is killed."""
    process = python(
        "with locks.locked('/dev/ttyACM7'), locks.folder(Path('/nowhere/project')):",
        "    print('held', flush=True)",
        "    sys.stdin.read()",
    )
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def test_a_process_may_lock_what_it_has_locked() -> None:
    """Flashing locks the port, and the session that follows does too."""
    other = ("with locks.locked('/dev/ttyACM7'):", "    pass")
    with locks.locked("0671FF", "/dev/ttyACM7"):
        locks.Lock("/dev/ttyACM7").release()
        refused = python(*other)
        assert f"process {os.getpid()}" in refused.communicate()[1]
    free = python(*other)
    free.communicate()
    assert free.returncode == 0


def test_a_device_has_one_user_at_a_time(holder: "subprocess.Popen[str]") -> None:
    with (
        pytest.raises(BoardError, match="/dev/ttyACM7 is in use by another mtool") as caught,
        locks.locked("/dev/ttyACM7"),
    ):
        pass
    assert caught.value.details == (f"process {holder.pid}",)
    with locks.locked("/dev/ttyACM8"), locks.locked(""):
        pass
    holder.kill()  # however it ends
    holder.wait()
    with locks.locked("/dev/ttyACM7"):
        pass


def test_a_folder_is_waited_for(holder: "subprocess.Popen[str]") -> None:
    folder = Path("/nowhere/project")
    with (
        pytest.raises(UsageError, match="/nowhere/project is in use by another mtool") as caught,
        locks.folder(folder, patience_s=0.2),
    ):
        pass
    assert f"process {holder.pid}" in caught.value.details[0]
    threading.Timer(0.3, holder.kill).start()
    with locks.folder(folder, patience_s=30), locks.folder(folder):
        assert holder.poll() is not None or holder.wait() is not None


def test_a_folder_is_kept_until_the_work_in_it_is_done() -> None:
    other = ("with locks.folder(Path('/nowhere/project'), patience_s=0):", "    pass")
    with locks.keep_locks():
        with locks.keep_locks(), locks.folder(Path("/nowhere/project")):
            pass
        assert len(locks.handles()) == 1
        refused = python(*other)
        assert "in use by another mtool" in refused.communicate()[1]
    assert locks.handles() == ()
    free = python(*other)
    free.communicate()
    assert free.returncode == 0


def test_what_a_killed_process_started_holds_the_folder_until_it_ends() -> None:
    """A compiler that is still writing must not meet the next one."""
    killed = python(
        "with locks.folder(Path('/nowhere/project')):",
        "    proc.run(['sh', '-c', f'kill -9 {os.getpid()}; exec sleep 0.5'], what='a build', timeout_s=9)",
    )
    killed.wait()
    with pytest.raises(UsageError, match="in use"), locks.folder(Path("/nowhere/project"), patience_s=0):
        pass
    with locks.folder(Path("/nowhere/project"), patience_s=30):
        pass
    killed.communicate()


def test_locks_lie_in_a_folder_of_the_users_own(state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with locks.locked("/dev/ttyACM7"):
        assert state.stat().st_mode & 0o777 == 0o700
        (lock,) = state.iterdir()
        assert lock.name.startswith("dev-ttyACM7-") and lock.stat().st_mode & 0o777 == 0o600
        state.chmod(0o755)
    assert list(state.iterdir()) == []
    runtime = tmp_path / "run"
    runtime.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    with locks.locked("x" * 5000):
        (lock,) = (runtime / "mtool").iterdir()
        assert len(lock.name) < 100
    assert state.stat().st_mode & 0o777 == 0o755  # untouched: it is not the first place any more
    with locks.locked("/dev/ttyACM7"), locks.locked("dev-ttyACM7"), locks.locked("dev/ttyACM7"):
        assert len([*(runtime / "mtool").iterdir()]) == 3


def test_a_full_disk_is_reported_and_no_process_waits_for_itself(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(UsageError, match="can't be locked") as caught, locks.folder(Path("/nowhere"), patience_s=0):
        pass
    assert "no space left on device" in caught.value.details
    assert list(state.iterdir()) == []


@pytest.mark.parametrize("home", ["", "home"])
def test_a_folder_that_is_not_absolute_does_not_count(
    home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", "state")
    monkeypatch.setenv("HOME", home)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    with locks.locked("/dev/ttyACM7"):
        assert len([*(tmp_path / "temporary").rglob("*.lock")]) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["temporary"]


def test_a_home_that_can_not_be_looked_into_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a command that another user was given with the first one's environment."""

    def refused(path: Path, **_: object) -> os.stat_result:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(Path, "stat", refused)
    places = [place for _, place in locks.candidates()]
    assert len(places) == 2 and places[0].name == "locks" and places[1].name == f"mtool-{os.geteuid()}"


def test_a_link_in_the_place_of_a_lock_is_not_followed(state: Path, tmp_path: Path) -> None:
    with locks.locked("/dev/ttyACM7"):
        (lock,) = state.iterdir()
    theirs = tmp_path / "theirs"
    theirs.write_text("years of work")
    lock.symlink_to(theirs)
    with pytest.raises(UsageError, match="can't be locked"):
        locks.Lock("/dev/ttyACM7")
    lock.unlink()
    lock.hardlink_to(theirs)
    with pytest.raises(UsageError, match="is not an mtool lock"):
        locks.Lock("/dev/ttyACM7")
    assert theirs.read_text() == "years of work"


def test_another_place_is_taken_where_the_first_is_not_the_users_own(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mtool").symlink_to(theirs)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    with locks.locked("/dev/ttyACM7"):
        assert len([*state.iterdir()]) == 1 and not [*theirs.iterdir()]
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(UsageError, match="no usable folder for locks") as caught:
        locks.Lock("/dev/ttyACM7")
    assert len(caught.value.details) == 3 and "belongs to another user" in caught.value.details[0]
