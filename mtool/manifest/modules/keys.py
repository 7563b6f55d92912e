"""Keys that sign modules: the user's own Ed25519 pairs, in PEM files as OpenSSL writes them."""

import binascii
import contextlib
import getpass
import logging
import os
import shlex
import shutil
import stat
import sys
import tempfile
from base64 import b64decode
from collections.abc import Callable
from functools import partial
from hashlib import sha512
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtool.base import files, proc
from mtool.base.errors import UsageError, of_os_error
from mtool.base.frozen import frozen

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

log = logging.getLogger(__name__)

KEY_ID_BYTES = 8
KEY_BYTES = 32
PASSPHRASE = "MTOOL_KEY_PASSPHRASE"
"""The environment variable with the passphrase of an encrypted key."""
PUBLIC_SUFFIX = ".pub"
ONLY_OWNER = 0o600
"""The permissions of a secret file."""
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_MOST_BYTES = 4096
_SIGNATURE_BYTES = 64
_SIGNER_S = 120.0
_PRIME = 2**255 - 19
_ORDER_8 = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
_WEAK = {0, 1, _PRIME - 1, _ORDER_8, _PRIME - _ORDER_8}  # y of all points whose order divides 8
_HINT = "create a key pair: mtool key FILE"


@frozen
class PublicKey:
    """The public half of a pair, which is built into firmware: 32 bytes."""

    raw: bytes

    @property
    def key_id(self) -> bytes:
        """The bytes by which a module identifies the key that signed it."""
        return sha512(self.raw).digest()[:KEY_ID_BYTES]

    def has_signed(self, message: bytes, signature: bytes) -> bool:
        """Return whether a signature of a message was made with this pair."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        if is_weak(self.raw) or is_weak(signature[:KEY_BYTES]):
            return False
        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, message)
        except InvalidSignature:
            return False
        return True

    def to_pem(self) -> bytes:
        """Return the bytes of its file."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

        key = Ed25519PublicKey.from_public_bytes(self.raw)
        return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


@frozen
class PrivateKey:
    """The private half of a pair, which signs. It is never shown."""

    _key: "Ed25519PrivateKey"

    def __repr__(self) -> str:
        return "PrivateKey(...)"

    @property
    def public(self) -> PublicKey:
        """The public half."""
        return PublicKey(self._key.public_key().public_bytes_raw())

    def sign(self, message: bytes) -> bytes:
        """Return the signature of a message, 64 bytes."""
        return self._key.sign(message)


@frozen
class ExternalKey:
    """A private key that a command signs with, as one in a hardware security module.

    Attributes:
        command: the words of the command: the message is its standard input, and the file that replaces `{}` in them;
            it prints the signature, as 64 bytes, in hexadecimal digits or in base64.
        public: the public half.
    """

    command: tuple[str, ...]
    public: PublicKey

    def sign(self, message: bytes) -> bytes:
        """Return the signature of a message, 64 bytes.

        Raises:
            UsageError: the command fails, or prints something else than this key's signature.
        """
        with tempfile.TemporaryDirectory(prefix="mtool-") as folder:
            file = Path(folder) / "message"
            files.write(file, message)
            argv = [word.replace("{}", str(file)) for word in self.command]
            done = proc.run(argv, what="the signer", timeout_s=_SIGNER_S, error=UsageError, data=message)
        signature = _decoded(done.stdout)
        if not self.public.has_signed(message, signature):
            found = f"{len(signature)} bytes" if len(signature) != _SIGNATURE_BYTES else "another signature"
            raise UsageError(
                f"the signer printed no signature by the key {self.public.key_id.hex()}: {shlex.join(self.command)}",
                details=[f"expected {_SIGNATURE_BYTES} bytes, their hexadecimal digits or base64; found {found}"],
                hint="--key must be the public key of the pair that the command signs with",
            )
        return signature


def _decoded(output: bytes) -> bytes:
    """Return a signature from its bytes, hexadecimal digits or base64."""
    if len(output) != _SIGNATURE_BYTES:
        for decode in (binascii.unhexlify, partial(b64decode, validate=True)):
            with contextlib.suppress(ValueError):
                return decode(b"".join(output.split()))
    return output


def external(command: str, public: Path) -> ExternalKey:
    """Return the key that a command signs with, whose public half is in a file.

    Raises:
        UsageError: the command is empty, malformed or not installed, or the file has no public key.
    """
    try:
        words = shlex.split(command)
    except ValueError as wrong:
        raise UsageError(f"--signer {command!r} can't be read: {wrong}") from None
    if not words:
        raise UsageError("--signer is empty", hint="give a command that prints the signature of its input")
    if shutil.which(words[0]) is None:
        raise UsageError(f"--signer: {words[0]} is not installed", hint="check the command")
    return ExternalKey(tuple(words), read_public(public))


def make(path: Path, *, encrypt: bool = False) -> PublicKey:
    """Create a new pair: a private file that only its owner can read, and the public one beside it (`FILE.pub`).

    `encrypt`: the private file needs the passphrase of MTOOL_KEY_PASSPHRASE, or one that the terminal asks for.

    Raises:
        UsageError: one of the files exists (it is never overwritten) or can't be written, or the passphrase is missing.
    """
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    key = PrivateKey(Ed25519PrivateKey.generate())
    public_path = public_path_of(path)
    for file in (path, public_path):
        if file.is_symlink() or file.exists():
            what = f"{file} exists, and keys are never overwritten"
            details = ["firmware accepts this key alone; if it is lost, no new module can be signed for it"]
            raise UsageError(what, details=details, hint="choose another file name")
    encryption = BestAvailableEncryption(_passphrase(path, is_new=True)) if encrypt else NoEncryption()
    write_new(path, key._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption), ONLY_OWNER)
    try:
        write_new(public_path, key.public.to_pem(), 0o666)
    except UsageError:
        path.unlink()
        raise
    return key.public


def public_path_of(path: Path) -> Path:
    """Return the public file of the pair whose private file is `path`."""
    return path.parent / (path.name + PUBLIC_SUFFIX)


def read_private(path: Path) -> PrivateKey:
    """Read a private key, with its passphrase if it is encrypted; warn if others can read it too.

    Raises:
        UsageError: there is no such file, it holds no Ed25519 private key, or its passphrase is missing or wrong.
    """
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    data = _read(path)
    expected, passphrase, hint = "expected an Ed25519 key in PEM", None, _HINT
    if b"ENCRYPTED" in data:
        expected, passphrase = "the passphrase is wrong, or it is not an Ed25519 key in PEM", _passphrase(path)
        hint = f"set {PASSPHRASE} to its passphrase"
    load = partial(load_pem_private_key, password=passphrase)
    key = _loaded(path, data, load, Ed25519PrivateKey, "no private key that can sign a module", expected, hint)
    warn_of_readers(path)
    return PrivateKey(key)


def _passphrase(path: Path, *, is_new: bool = False) -> bytes:
    """Return a private key's passphrase, from the environment or the terminal."""
    passphrase = os.environ.get(PASSPHRASE, "")
    if not passphrase and sys.stdin is not None and sys.stdin.isatty():
        passphrase = getpass.getpass(f"Passphrase of {path}: ")
        if is_new and passphrase != getpass.getpass("The same again: "):
            raise UsageError("the passphrases differ")
    if not passphrase:
        raise UsageError(f"the passphrase of {path} is missing", hint=f"set {PASSPHRASE}, or run it in a terminal")
    return passphrase.encode()


def read_public(path: Path) -> PublicKey:
    """Read a public key.

    Raises:
        UsageError: there is no such file, or it holds no Ed25519 public key.
    """
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    data = _read(path)
    if b"PRIVATE KEY" in data:
        hint = f"use {public_path_of(path).name} instead"
        raise UsageError(f"{path} is a private key; the public one is needed here", hint=hint)
    what = "no public key for modules"
    key = _loaded(path, data, load_pem_public_key, Ed25519PublicKey, what, "expected Ed25519 in PEM", _HINT)
    if is_weak(key.public_bytes_raw()):
        details = ["its point is of low order"]
        raise UsageError(f"{path} is a weak key, for which anyone can sign", details=details, hint=_HINT)
    return PublicKey(key.public_bytes_raw())


def _loaded(
    path: Path, data: bytes, load: Callable[[bytes], object], kind: Any, what: str, expected: str, hint: str
) -> Any:
    """Return the key of a kind from a file."""
    from cryptography.exceptions import UnsupportedAlgorithm

    key: object = None
    with contextlib.suppress(ValueError, TypeError, UnsupportedAlgorithm):
        key = load(data)
    if not isinstance(key, kind):
        raise UsageError(f"{path} holds {what}", details=[expected], hint=hint)
    return key


def is_weak(point: bytes) -> bool:
    """Return whether the order of a point divides 8; if it is a public key, anyone can sign for it."""
    y = int.from_bytes(point, "little") & ((1 << 255) - 1)
    return y % _PRIME in _WEAK


def _read(path: Path) -> bytes:
    try:
        with files.open_named(path) as file:
            return file.read(_MOST_BYTES)
    except OSError as failed:
        raise of_os_error(failed, f"the key {path} can't be read") from None


def warn_of_readers(path: Path) -> None:
    """Warn if others can read a secret file too."""
    if os.name == "posix" and path.stat().st_mode & _OTHERS:
        log.warning("%s is readable by others; run: chmod 600 %s", path, path)


def write_new(path: Path, data: bytes, rights: int) -> None:
    """Write a key to a new file, with its permissions from the first byte on: all of it, or none.

    Raises:
        UsageError: the file exists, or it can't be written.
    """
    is_begun = False
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, rights), "wb") as file:  # noqa: PTH123
            is_begun = True
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as failed:
        if is_begun:
            path.unlink(missing_ok=True)
        raise of_os_error(failed, f"the key {path} can't be written") from None
