"""Module keys: their files, and invalid ones."""

import errno
import logging
import os
import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from mtool.base.errors import UsageError
from mtool.commands import modules
from mtool.manifest.modules import keys


def test_a_pair_signs_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    os.umask(before := os.umask(0))
    assert before != 0
    path = tmp_path / "new" / "own.key"
    public = keys.make(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    private = keys.read_private(path)
    assert private.public == public == keys.read_public(tmp_path / "new" / "own.key.pub")
    signature = private.sign(b"a module")
    assert public.has_signed(b"a module", signature) and not public.has_signed(b"another", signature)
    assert "PRIVATE" not in repr(private) and len(public.raw) == 32 and len(public.key_id) == 8


@pytest.mark.parametrize("there", ["own.key", "own.key.pub"])
def test_keys_are_never_overwritten(tmp_path: Path, there: str) -> None:
    (tmp_path / there).write_text("kept")
    with pytest.raises(UsageError, match="never overwritten"):
        keys.make(tmp_path / "own.key")
    assert [path.name for path in tmp_path.iterdir()] == [there] and (tmp_path / there).read_text() == "kept"


def test_a_link_that_leads_nowhere_is_there_too(tmp_path: Path) -> None:
    (tmp_path / "own.key").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="never overwritten"):
        keys.make(tmp_path / "own.key")
    assert not (tmp_path / "elsewhere").exists()


def test_what_others_can_read_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    keys.make(tmp_path / "own.key")
    (tmp_path / "own.key").chmod(0o644)
    with caplog.at_level(logging.WARNING):
        keys.read_private(tmp_path / "own.key")
    assert "chmod 600" in caplog.text


def test_what_is_not_a_key_is_reported(tmp_path: Path) -> None:
    keys.make(tmp_path / "own.key")
    other = X25519PrivateKey.generate()
    private = other.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    public = other.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    for number, data in enumerate((b"", b"\xff" * 9000, private, public)):
        (tmp_path / f"{number}").write_bytes(data)
        for read in (keys.read_private, keys.read_public):
            with pytest.raises(UsageError, match=r"holds no|is a private key"):
                read(tmp_path / f"{number}")
    with pytest.raises(UsageError, match="must not go into firmware"):
        keys.read_public(tmp_path / "own.key")
    with pytest.raises(UsageError, match="holds no private key"):
        keys.read_private(tmp_path / "own.key.pub")
    for read in (keys.read_private, keys.read_public):
        with pytest.raises(UsageError, match="can't be read"):
            read(tmp_path / "none")


@pytest.mark.parametrize("name", ["", "/"])
def test_an_invalid_name_is_reported(name: str) -> None:
    with pytest.raises(UsageError, match="keys are never overwritten"):
        keys.make(Path(name))


def test_a_full_disk_leaves_no_half_of_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UsageError, match="can't be written"):
        keys.make(tmp_path / "own.key")
    assert not [*tmp_path.iterdir()]


def test_a_pipe_is_not_a_module(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.mtm")
    with pytest.raises(UsageError, match="is not a file"):
        modules.read_module(tmp_path / "pipe.mtm")
