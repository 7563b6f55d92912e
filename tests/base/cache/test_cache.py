"""Cached results are reused, but never incomplete or damaged ones, and within the size limit."""

import multiprocessing
import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from mtool.base import cache
from mtool.base.cache import Cache, File
from mtool.base.errors import UsageError


def key(number: int) -> str:
    return sha256(b"%d" % number).hexdigest()


def test_what_was_put_is_got_and_nothing_else(tmp_path: Path) -> None:
    kept = Cache(tmp_path / "deep" / "cache")
    content = {"a.c": File(b"int a;\n"), "no bytes": File(b""), "program": File(bytes(range(256)), runs=True)}
    assert kept.get(key(1)) is None
    kept.put(key(1), content)
    assert kept.get(key(1)) == content and kept.get(key(2)) is None
    kept.put(key(1), {"b.c": File(b"x")})
    assert kept.get(key(1)) == {"b.c": File(b"x")}
    assert kept.content().entries == 1


def test_a_byte_that_is_lost_or_changed_is_seen(tmp_path: Path) -> None:
    kept = Cache(tmp_path)
    (whole,) = _entry(kept, {"a": File(b"abc"), "b": File(b"de")})
    data = whole.read_bytes()
    spoilt = [data[:end] for end in range(len(data))] + [data + b"x"]
    spoilt += [data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :] for at in range(len(data))]
    for bad in spoilt:
        whole.write_bytes(bad)
        assert kept.get(key(0)) is None and not whole.exists()


def test_with_a_secret_only_entries_of_those_who_know_it_are_used(tmp_path: Path) -> None:
    named = {"MTOOL_CACHE": str(tmp_path)}
    secret, other, none = (cache.of_user(named | {"MTOOL_CACHE_KEY": one}) for one in ("a" * 32, "b" * 32, ""))
    assert secret and other and none and "aaa" not in repr(secret)
    for writer, reader in ((none, secret), (other, secret), (secret, none), (secret, secret)):
        writer.put(key(0), {"a": File(b"x")})
        assert (reader.get(key(0)) is not None) == (writer is reader)
    (tmp_path / key(0)[:2] / key(0)).rename(tmp_path / key(0)[:2] / key(1).replace(key(1)[:2], key(0)[:2], 1))
    assert secret.get(key(1).replace(key(1)[:2], key(0)[:2], 1)) is None, "an entry counts for its own key only"


@pytest.mark.parametrize(
    "body",
    [b"", b"no line", b"[1]\nx", b'[["a", -1, false], ["b", 2, false]]\nx', b'[["a", 9, false]]\nx', b"{}\nx",
     b'[["a", "z", false]]\n', b"[" * 100_000 + b"\n", b"\xff\n", b'[["a", 0, false]]\nx'],
)  # fmt: skip
def test_a_malformed_entry_with_the_right_hash_is_dropped(tmp_path: Path, body: bytes) -> None:
    (path,) = _entry(Cache(tmp_path), {"a": File(b"x")})
    path.write_bytes(sha256(key(0).encode() + body).hexdigest().encode() + b"\n" + body)
    assert Cache(tmp_path).get(key(0)) is None and not path.exists()


@pytest.mark.skipif(os.name != "posix", reason="rights of POSIX")
def test_a_cache_that_others_can_write_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    previous = os.umask(0)
    try:
        kept = Cache(tmp_path / "cache")
        (path,) = _entry(kept, {"a": File(b"x")})
    finally:
        os.umask(previous)
    named = {"MTOOL_CACHE": str(kept.folder)}
    path.chmod(0o644)
    assert cache.of_user(named) is not None and kept.get(key(0)) is not None
    for each in (path, path.parent, kept.folder):
        rights = each.stat().st_mode
        for shared in (0o020, 0o002):
            each.chmod(rights | shared)
            assert kept.get(key(0)) is None
        each.chmod(rights)
    assert kept.get(key(0)) is not None
    kept.folder.chmod(0o777)
    with pytest.raises(UsageError, match="is not yours alone"):
        cache.of_user(named)
    kept.folder.chmod(0o700)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(UsageError, match="is not yours alone"):
        cache.of_user(named)


def _entry(kept: Cache, content: dict[str, File]) -> list[Path]:
    kept.put(key(0), content)
    return [path for path in kept.folder.rglob("*") if path.is_file()]


def test_the_least_recently_used_entries_are_removed(tmp_path: Path) -> None:
    kept = Cache(tmp_path, limit=10_000)
    for number in range(8):
        kept.put(key(number), {"x": File(bytes(1000))})
        os.utime(tmp_path / key(number)[:2] / key(number), ns=(number, number))
    kept.get(key(0))
    for number in range(8, 11):
        kept.put(key(number), {"x": File(bytes(1000))})
    assert kept.content().size <= 10_000
    there = [number for number in range(11) if kept.get(key(number))]
    assert 0 in there and {8, 9, 10} <= set(there) and not {1, 2} & set(there)
    kept.put(key(12), {"x": File(bytes(5000))})  # which would push out much else
    assert kept.get(key(12)) is None
    Cache(tmp_path, limit=0).put(key(13), {"x": File(b"1")})
    assert kept.content().entries == 0


def _many(folder: Path, seed: int) -> None:
    kept = Cache(folder, limit=60_000)
    for step in range(150):
        number = (step * seed) % 20
        found = kept.get(key(number))
        assert found is None or found["x"].data == b"%d" % number * 2000
        kept.put(key(number), {"x": File(b"%d" % number * 2000)})


def test_two_processes_at_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_many, args=(tmp_path, seed)) for seed in (3, 7)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    assert Cache(tmp_path).content().size <= 60_000


def test_a_folder_that_takes_nothing_costs_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    kept = Cache(tmp_path / "file")
    kept.put(key(1), {"x": File(b"1")})
    assert kept.get(key(1)) is None and kept.content().entries == 0


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes here")
@pytest.mark.parametrize("make", [Path.mkdir, lambda path: os.mkfifo(path)], ids=["folder", "pipe"])
def test_what_is_not_a_file_is_not_an_entry(make: Callable[[Path], None], tmp_path: Path) -> None:
    kept = Cache(tmp_path)
    (path,) = _entry(kept, {"x": File(b"1")})
    path.unlink()
    make(path)
    kept.put(key(1), {"x": File(b"1")})
    assert kept.get(key(0)) is None
    kept.put(key(0), {"x": File(b"2")})
    assert kept.clear().entries >= 1 and not kept.content().entries


def test_only_entries_are_removed(tmp_path: Path) -> None:
    kept = Cache(tmp_path)
    kept.put(key(1), {"x": File(b"1")})
    (tmp_path / "ab").mkdir(exist_ok=True)
    (tmp_path / "ab" / "mine").write_text("")
    assert kept.clear().entries == 1 and kept.content().entries == 0
    assert (tmp_path / "ab" / "mine").is_file()


def test_where_it_is(tmp_path: Path) -> None:
    home = {"HOME": str(Path.home())}
    assert cache.of_user({**home, "MTOOL_CACHE": "off"}) is None
    assert cache.of_user({**home, "XDG_CACHE_HOME": "/x"}) == Cache(Path("/x/mtool"))
    assert cache.of_user(home) == Cache(Path.home() / ".cache" / "mtool")
    assert cache.of_user({"MTOOL_CACHE": "/y", "MTOOL_CACHE_LIMIT": "2g"}) == Cache(Path("/y"), 2 << 30)
    for wrong in ({"MTOOL_CACHE": "here"}, {"MTOOL_CACHE": "/y", "MTOOL_CACHE_LIMIT": "much"}):
        with pytest.raises(UsageError, match="MTOOL_CACHE"):
            cache.of_user(wrong)


@pytest.mark.parametrize("below", [(), ("deeper", "still")])
def test_a_named_cache_that_is_not_a_folder(below: tuple[str, ...], tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(UsageError, match="MTOOL_CACHE is") as caught:
        cache.of_user({"MTOOL_CACHE": str(file.joinpath(*below))})
    assert f"{file}, which is not a folder" in caught.value.details[-1] and "chmod" not in caught.value.hint


@pytest.mark.skipif(os.name != "posix", reason="there are no owners here")
def test_the_hint_suits_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(UsageError) as caught:
        cache.of_user({"MTOOL_CACHE": str(tmp_path)})
    assert f"chmod go-w {tmp_path}" in caught.value.hint
    me = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    with pytest.raises(UsageError) as caught:
        cache.of_user({"MTOOL_CACHE": str(tmp_path)})
    assert "chmod" not in caught.value.hint and "MTOOL_CACHE=DIR" in caught.value.hint


def test_a_named_folder_that_takes_nothing_is_warned_of_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "mkdir", refuse)
    named = cache.of_user({"MTOOL_CACHE": str(tmp_path / "named")})
    own = cache.of_user({"XDG_CACHE_HOME": str(tmp_path)})
    assert named is not None and own is not None
    for kept in (named, named, own):
        kept.put(key(1), {"x": File(b"1")})
    (reported,) = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    assert f"nothing is kept in {tmp_path / 'named'}: Read-only file system" in reported
