"""The C that checks signatures and hashes, against the library that the host signs with, and RFC 8032."""

import ctypes
import hashlib
import subprocess
from pathlib import Path

import numpy as np
import pytest
import sanitized
from crt.firmware import STRICT
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from mtool.base.errors import UsageError
from mtool.manifest.modules import keys

CRT = Path(__file__).parents[3] / "crt"
ORDER = 2**252 + 27742317777372353535851937790883648493


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    made = tmp_path_factory.mktemp("code") / "code.so"
    sources = [CRT / "modules" / f"{name}.c" for name in ("mt_sha512", "mt_ed25519")]
    flags = [*STRICT, *sanitized.UNDEFINED, "-O1", "-shared", "-fPIC"]
    subprocess.run(["gcc", *flags, *sources, "-o", made], check=True)
    return ctypes.CDLL(str(made))


def is_right(code: ctypes.CDLL, signature: bytes, key: bytes, message: bytes) -> bool:
    return bool(code.mt_ed25519_is_right(signature, key, message, len(message)))


@pytest.mark.slow
def test_sha512_is_hashlibs_for_any_pieces(code: ctypes.CDLL) -> None:
    rng = np.random.default_rng(0)
    for size in (0, 1, 111, 112, 113, 127, 128, 129, 239, 240, 256, 1000):
        data = rng.bytes(size)
        sha, found = ctypes.create_string_buffer(8 * 8 + 8 + 128), ctypes.create_string_buffer(64)
        code.mt_sha512_begin(sha)
        at = 0
        while at < size:
            some = int(rng.integers(1, size - at + 1))
            code.mt_sha512_add(sha, data[at : at + some], some)
            at += some
        code.mt_sha512_end(sha, found)
        assert found.raw == hashlib.sha512(data).digest()


def test_the_vector_of_rfc_8032(code: ctypes.CDLL) -> None:
    key = bytes.fromhex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")
    signature = bytes.fromhex(
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46b"
        "d25bf5f0595bbe24655141438e7a100b"
    )
    assert is_right(code, signature, key, b"")
    assert not is_right(code, signature, key, b"\0")


def test_signatures_are_the_hosts_and_no_bit_may_change(code: ctypes.CDLL) -> None:
    rng = np.random.default_rng(1)
    for size in (0, 208, 300):
        key = Ed25519PrivateKey.from_private_bytes(rng.bytes(32))
        public, message = key.public_key().public_bytes_raw(), rng.bytes(size)
        signature = key.sign(message)
        assert is_right(code, signature, public, message)
        for part, of in enumerate((signature, public, message)):
            for _ in range(8 * bool(of)):
                changed = bytearray(of)
                changed[rng.integers(len(of))] ^= 1 << int(rng.integers(8))
                given = [signature, public, message]
                given[part] = bytes(changed)
                assert not is_right(code, *given)


Y8 = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
P = 2**255 - 19


@pytest.mark.parametrize("sign", [0, 1 << 255], ids=["even", "odd"])
@pytest.mark.parametrize("y", [0, 1, P - 1, Y8, P - Y8, P, P + 1], ids=hex)
def test_keys_of_low_order_are_refused(code: ctypes.CDLL, tmp_path: Path, y: int, sign: int) -> None:
    """R = A, s = 0: where nothing is refused, right for every eighth message, or for each."""
    weak = (y | sign).to_bytes(32, "little")
    signature = weak + bytes(32)
    for number in range(32):
        message = b"%d" % number
        assert not is_right(code, signature, weak, message)
        assert not is_right(code, (1).to_bytes(32, "little") + bytes(32), weak, message)
        assert not keys.PublicKey(weak).has_signed(message, signature)
    pem = Ed25519PublicKey.from_public_bytes(weak).public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (tmp_path / "weak.pub").write_bytes(pem)
    with pytest.raises(UsageError, match="anyone can sign"):
        keys.read_public(tmp_path / "weak.pub")


def test_a_scalar_beyond_the_order_is_refused(code: ctypes.CDLL) -> None:
    key = Ed25519PrivateKey.from_private_bytes(bytes(32))
    public, signature = key.public_key().public_bytes_raw(), key.sign(b"x")
    other = int.from_bytes(signature[32:], "little") + ORDER
    assert not is_right(code, signature[:32] + other.to_bytes(32, "little"), public, b"x")
