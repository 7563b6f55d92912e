"""Module keys: their files, and invalid ones."""

import contextlib
import errno
import logging
import os
import shutil
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


def test_an_encrypted_key_signs_with_its_passphrase_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "own.key"
    with pytest.raises(UsageError, match="is missing"):
        keys.make(path, encrypt=True)
    assert not path.exists()
    monkeypatch.setenv(keys.PASSPHRASE, "right")
    public = keys.make(path, encrypt=True)
    assert (
        path.read_bytes().startswith(b"-----BEGIN ENCRYPTED PRIVATE KEY") and keys.read_private(path).public == public
    )
    monkeypatch.setenv(keys.PASSPHRASE, "wrong")
    with pytest.raises(UsageError, match="holds no private key that can sign a module") as reported:
        keys.read_private(path)
    assert "passphrase is wrong" in str(reported.value.details) and keys.PASSPHRASE in reported.value.hint
    monkeypatch.delenv(keys.PASSPHRASE)
    monkeypatch.setattr("sys.stdin", Terminal())
    monkeypatch.setattr("getpass.getpass", lambda prompt: "right")
    assert keys.read_private(path).public == public


class Terminal:
    def isatty(self) -> bool:
        return True


SIGN = "openssl pkeyutl -sign -rawin -inkey {key} -in"


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (f"{SIGN} {{file}}", ""),
        (f"sh -c '{SIGN} {{file}} | base64'", ""),
        (f"sh -c 'cat > {{key}}.in; {SIGN} {{key}}.in | od -An -v -tx1; echo noted >&2'", ""),
        ("cat", "found 40 bytes"),
        ("head -c 64 /dev/zero", "found another signature"),
        ("false", "the signer failed with exit code 1"),
        ("no-such-program", "check the command"),
        ("", "--signer is empty"),
        ("a 'b", "can't be read"),
    ],
)
@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_a_command_signs(tmp_path: Path, command: str, error: str) -> None:
    key = tmp_path / "own.key"
    public = keys.make(key)
    words = command.format(key=key, file="{}")
    with contextlib.nullcontext() if not error else pytest.raises(UsageError) as reported:
        signature = keys.external(words, keys.public_path_of(key)).sign(bytes(40))
        assert public.has_signed(bytes(40), signature)
    assert not error or error in "\n".join(reported.value.lines())


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
    with pytest.raises(UsageError, match="the public one is needed"):
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
