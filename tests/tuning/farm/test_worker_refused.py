"""A worker does not wait for the impossible: an unknown name, the key of another certificate."""

import shutil
import subprocess
from pathlib import Path

import pytest

from mtool.base.errors import UsageError
from mtool.tuning.farm.security import Tls
from mtool.tuning.farm.worker import work

pytest.importorskip("distributed")


@pytest.mark.timeout(60)
@pytest.mark.parametrize("host", ["no-such-name.invalid", "192.0.2.1"])
def test_a_host_that_is_not_here(host: str) -> None:
    with pytest.raises(UsageError, match=f"--host: a worker can't listen at {host}"):
        work("127.0.0.1:1", host=host, insecure=True)


@pytest.mark.timeout(60)
@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes certificates")
def test_a_key_of_another_certificate(tmp_path: Path) -> None:
    for name in ("one", "other"):
        names = ["-keyout", tmp_path / f"{name}.key", "-out", tmp_path / f"{name}.pem"]
        argv = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}", *map(str, names)]
        subprocess.run(argv, check=True, capture_output=True)
    one, key = tmp_path / "one.pem", tmp_path / "other.key"
    with pytest.raises(UsageError, match=r"other\.key is not the key of .*one\.pem"):
        work("127.0.0.1:1", tls=Tls(one, one, key))
    key.write_text("no key")
    with pytest.raises(UsageError, match="can't be used"):
        work("127.0.0.1:1", tls=Tls(one, one, key))
