"""A worker's own parts: its command line, addresses, certificates, bundles, the boards it holds."""

import datetime
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from mtool.base.errors import BoardError, UsageError
from mtool.cli import app
from mtool.cli.worker import aligned
from mtool.tuning.farm import security
from mtool.tuning.farm.messages import Bundle, unpack
from mtool.tuning.farm.search import BoardLost, WholeRuns
from mtool.tuning.farm.security import Tls
from mtool.tuning.farm.worker_boards import HeldBoard, WorkerBoards
from mtool.tuning.measuring import Slice
from tests.tuning.farm.stand_in import BOARD, Firmware, worker_boards_of


def test_a_board_has_the_port_or_the_probe_behind_it() -> None:
    given = ["rack:8786", "-b", "a", "--port", "/dev/x", "--board=b", "--probe=1", "-v", "--board", "c", "-p", "y"]
    again = aligned(given)
    assert [again[at + 1] for at, one in enumerate(again) if one == "--board"] == ["a", "b", "c"]
    assert [again[at + 1] for at, one in enumerate(again) if one == "--port"] == ["/dev/x", "", "y"]
    assert [again[at + 1] for at, one in enumerate(again) if one == "--probe"] == ["", "1", ""]
    with pytest.raises(UsageError, match="does not belong to a board"):
        aligned(["rack:8786", "--port", "x", "--board", "a"])
    with pytest.raises(UsageError, match="does not belong to a board"):
        aligned(["--board", "a", "--port", "x", "--port", "y"])


@pytest.mark.parametrize(
    ("arguments", "code", "reported"),
    [
        (["worker", "rack", "--board", "host"], 2, "is not a scheduler's address"),
        (["worker", "rack:99999", "--board", "host"], 2, "is not a scheduler's address"),
        (["worker", ":8786", "--board", "host"], 2, "is not a scheduler's address"),
        (["worker", "rack:1", "--board", "nonesuch"], 6, "unknown board"),
        (["worker", "rack:1", "-b", "host", "--tls-ca", "ca.pem"], 2, "given together"),
        (["worker", "127.0.0.1:1", "--host", "0.0.0.0"], 2, "without TLS would let anyone on the network run programs"),
        (["worker", "rack:1", "-b", "nucleo_l4r5zi", "-p", "x", "-b", "nucleo_l4r5zi", "-p", "x"], 2, "for two boards"),
        (["tune", "m.onnx", "-b", "host", "--scheduler", "127.0.0.1:1"], 2, "m.onnx"),
    ],
)
def test_wrong_arguments_are_reported(
    arguments: list[str], code: int, reported: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    assert app.invoke(arguments) == code
    assert reported in capsys.readouterr().err


@pytest.mark.parametrize(
    ("address", "host", "found"),
    [
        ("tcp://127.0.0.1:8786", "", "127.0.0.1"),
        ("tcp://127.0.0.1:8786", "[::1]", "::1"),
        ("tcp://127.0.0.1:8786", "0.0.0.0", None),
        ("tcp://127.0.0.1:8786", "192.0.2.1", None),
        ("tcp://192.0.2.1:8786", "[::]", None),
        ("tls://127.0.0.1:8786", "0.0.0.0", "0.0.0.0"),
        ("tls://127.0.0.1:8786", "[::]", "::"),
    ],
)
def test_a_worker_listens_beyond_loopback_with_tls_or_by_demand(
    address: str, host: str, found: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    if found is None:
        with pytest.raises(UsageError, match="without TLS"):
            security.listening_host(address, host)
        assert security.listening_host(address, host, insecure=True) == host.strip("[]")
        assert "anyone who can connect can run programs" in caplog.text
    else:
        assert security.listening_host(address, host) == found
        assert not caplog.text


def test_a_key_that_others_can_read_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tls = Tls(*(tmp_path / name for name in ("ca.pem", "own.pem", "own.key")))
    key = ec.generate_private_key(ec.SECP256R1())
    name, now = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "rack")]), datetime.datetime.now(datetime.UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + datetime.timedelta(days=1))
    pem = made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    for path, data in ((tls.ca, pem), (tls.certificate, pem), (tls.key, key.private_bytes(*form))):
        path.write_bytes(data)
        path.chmod(0o640)
    security.security_of(tls, "tls://rack:8786")
    assert not caplog.text
    tls.key.chmod(0o644)
    security.security_of(tls, "tls://rack:8786")
    assert "own.key is readable by other users" in caplog.text


def test_addresses_have_their_protocol() -> None:
    assert security.address_of("rack:8786", Tls()) == "tcp://rack:8786"
    assert security.address_of("rack:8786", Tls(Path("ca"), Path("c"), Path("k"))) == "tls://rack:8786"
    assert security.address_of("tls://[::1]:8786", Tls()) == "tls://[::1]:8786"
    for wrong in ("", "rack", "http://rack:8786", "rack:port", "a rack:1"):
        with pytest.raises(UsageError):
            security.address_of(wrong, Tls())


def test_a_bundle_writes_nothing_outside_its_folder(tmp_path: Path) -> None:
    for name in ("../x", "/tmp/x", "a/../../x"):
        with pytest.raises(UsageError, match="outside"):
            unpack(Bundle({name: b""}, ""), tmp_path / "in")
    assert not (tmp_path / "x").exists()


def asked(board: str = BOARD, version: str | None = None) -> Slice:
    made = Slice((), (), "ns", 3, ident="s", topic="t", board=board)
    return made if version is None else replace(made, version=version)


def measured(boards: WorkerBoards, one: Slice) -> Any:
    return boards.measure(Firmware({}, flash_s=0.0).bundle("cc"), one, lambda answer: None, lambda: False)


def test_three_failures_in_a_row_are_a_boards_end_and_are_reported_to_the_scheduler() -> None:
    boards, reported = worker_boards_of(1, ("dead",)), []
    boards.on_change = lambda: reported.append(boards.counts())  # type: ignore[method-assign]
    ends = [measured(boards, asked()) for _ in range(4)]
    assert [end.is_quarantined for end in ends] == [False, False, True, False]
    assert ends[2].failed == "no probe answers" and ends[3].board == ""
    assert reported == [{BOARD: 0}]


def test_a_failure_is_forgotten_after_a_success() -> None:
    boards = worker_boards_of(1)
    for _ in range(4):
        opener = boards.boards[0].opener
        opener.behaviour = "dead"  # type: ignore[attr-defined]
        assert measured(boards, asked()).failed
        opener.behaviour = "good"  # type: ignore[attr-defined]
        assert not measured(boards, asked()).failed
    assert boards.counts() == {BOARD: 1}


def test_another_version_of_mtool_is_refused() -> None:
    with pytest.raises(BoardError, match=r"tuning process has mtool 0\.0\.1"):
        measured(worker_boards_of(1), asked(version="0.0.1"))


def test_a_board_that_comes_back_gets_work_again() -> None:
    class Sleeper:
        wake = threading.Event()

        @contextmanager
        def open(self, bundle: Bundle) -> Iterator[Any]:
            self.wake.wait(20)
            raise UsageError("it was asleep")
            yield

        def run(self, bundle: Bundle, unit: Any) -> Any:
            raise NotImplementedError

    reported: list[int] = []
    boards = WorkerBoards([HeldBoard(BOARD, "sleeper", Sleeper())], 0.2)
    boards.on_change = lambda: reported.append(boards.counts()[BOARD])  # type: ignore[method-assign]
    end = measured(boards, asked())
    assert "it has been silent" in end.failed and boards.counts() == {BOARD: 0}
    Sleeper.wake.set()
    deadline = time.monotonic() + 10
    while boards.counts() == {BOARD: 0} and time.monotonic() < deadline:
        time.sleep(0.01)
    assert boards.counts() == {BOARD: 1}
    assert reported[:1] == [0] and reported[-1] == 1


def test_the_whole_model_stays_on_one_board(monkeypatch: pytest.MonkeyPatch) -> None:
    from mtool.tuning.farm import search
    from mtool.tuning.farm.client import Ended
    from mtool.tuning.farm.messages import SliceEnd
    from mtool.tuning.measuring import WholeRun

    monkeypatch.setattr(search, "pack", lambda prepared: None)
    found = WholeRun((), (1.0,))
    places: list[tuple[str, str]] = []
    script = [
        Ended("", "w1", None, "its worker is gone"),
        Ended("", "w2", SliceEnd((), "b2"), run=found),
        Ended("", "w2", SliceEnd((), "b2", failed="no answer")),
        Ended("", "w2", SliceEnd((), "b2"), run=found),
        Ended("", "w2", None, "its worker is gone"),
    ]

    class Scripted:
        board = BOARD

        def run(self, bundle: Any, unit: Any, where: tuple[str, str]) -> Any:
            places.append(where)
            return script.pop(0)

    runs = WholeRuns(Scripted())  # type: ignore[arg-type]
    assert runs(None, "ns") is found and runs(None, "ns") is found  # type: ignore[arg-type]
    with pytest.raises(BoardLost):
        runs(None, "ns")  # type: ignore[arg-type]
    assert places == [("", ""), ("", ""), ("w2", "b2"), ("w2", "b2"), ("w2", "b2")]
