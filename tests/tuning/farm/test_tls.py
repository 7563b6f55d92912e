"""A farm with certificates: a client or worker without one of the authority's is refused."""

import shutil
import subprocess
import sys
from pathlib import Path

import amount
import pytest

from mtool.base.errors import CommunicationError, UsageError
from mtool.tuning.farm.client import Farm
from mtool.tuning.farm.security import Tls
from tests.tuning.farm.cluster import ROOT, cluster, end, wait_for

pytestmark = pytest.mark.skipif(
    not amount.IS_ALL or shutil.which("openssl") is None, reason="starts many processes; openssl makes certificates"
)


def certificates(folder: Path, name: str) -> Tls:
    """Make an authority, and a certificate that it signs."""
    ca, key, csr, pem = (folder / f"{name}.{suffix}" for suffix in ("ca.pem", "key", "csr", "pem"))
    ca_key = folder / f"{name}.ca.key"

    def openssl(*arguments: object) -> None:
        subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)

    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}-ca", "-keyout", ca_key, "-out", ca)
    openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}", "-keyout", key, "-out", csr)
    openssl("x509", "-req", "-in", csr, "-CA", ca, "-CAkey", ca_key, "-CAcreateserial", "-out", pem)
    return Tls(ca, pem, key)


def test_workers_and_clients_need_certificates_of_the_authority(tmp_path: Path) -> None:
    own, strange = certificates(tmp_path, "own"), certificates(tmp_path, "strange")
    scheduler = ["--protocol", "tls", "--tls-ca-file", own.ca, "--tls-cert", own.certificate, "--tls-key", own.key]
    with cluster(tmp_path, *map(str, scheduler)) as made:
        address = f"tls://127.0.0.1:{made.port}"
        argv = [sys.executable, "-m", "mtool", "worker", address, "--board", "host"]
        options = ["--tls-ca", own.ca, "--tls-cert", own.certificate, "--tls-key", own.key]
        worker = subprocess.Popen([*argv, *map(str, options)], cwd=ROOT, stderr=subprocess.DEVNULL)
        try:
            with Farm(address, "host", own) as farm:
                wait_for(lambda: farm.wait(0.2) == [] and farm.boards == 1, 60)
            with pytest.raises(CommunicationError, match="can't be reached"):
                Farm(address, "host", strange)
            with pytest.raises(CommunicationError, match="can't be reached"):
                Farm(f"tcp://127.0.0.1:{made.port}", "host")
            with pytest.raises(UsageError, match="requires certificates"):
                Farm(address, "host")
        finally:
            end(worker)
        assert worker.returncode == 0
