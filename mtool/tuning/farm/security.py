"""Certificates for a board farm's connections, and its scheduler's address, as Dask takes them."""

import ipaddress
import logging
import os
import socket
import ssl
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mtool.base import distribution
from mtool.base.errors import MtoolError, UsageError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Tls:
    """The certificate of who may take part, one's own, and its key; all empty: what Dask's configuration says."""

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None


DASKS = Tls()
"""Dask's own configuration."""


@dataclass(frozen=True, slots=True)
class FarmAddress:
    """Where the board farm is: the address of its scheduler, and certificates."""

    scheduler: str
    tls: Tls = DASKS


def require() -> None:
    """Look whether dask.distributed is installed, and keep it from writing to the terminal.

    Raises:
        UsageError: it is not.
    """
    try:
        import distributed  # noqa: F401
    except ImportError:
        raise UsageError("a board farm needs dask.distributed", hint=distribution.install("farm")) from None
    for name in [*logging.root.manager.loggerDict]:  # what goes wrong is told here, without tracebacks
        if name.startswith("distributed"):
            logging.getLogger(name).setLevel(logging.CRITICAL)


def security_of(tls: Tls, address: str) -> Any:
    """Return Dask's `Security`: of the certificates that are given, else of Dask's own configuration.

    Raises:
        UsageError: a file is not there, one of the three is missing, or the address needs them.
    """
    from distributed import Security

    given = (tls.ca, tls.certificate, tls.key)
    if not any(given):
        configured = Security()
        if address.startswith("tls:") and not configured.tls_client_cert:
            raise UsageError(
                f"{address} asks for certificates", hint="give --tls-ca, --tls-cert and --tls-key (docs/farm.md)"
            )
        return configured
    if not all(given):
        raise UsageError("--tls-ca, --tls-cert and --tls-key are given together or not at all")
    for path in given:
        if path is None or not path.is_file():
            raise UsageError(f"there is no certificate or key {path}")
    if os.name == "posix" and tls.key is not None and tls.key.stat().st_mode & stat.S_IRWXO:
        log.warning("%s can be read by others: chmod 600 %s", tls.key, tls.key)
    certificate, key = str(tls.certificate), str(tls.key)
    _check_certificates(str(tls.ca), certificate, key)
    return Security(
        tls_ca_file=str(tls.ca), require_encryption=True,
        tls_client_cert=certificate, tls_client_key=key, tls_worker_cert=certificate, tls_worker_key=key,
        tls_scheduler_cert=certificate, tls_scheduler_key=key,
    )  # fmt: skip


def _check_certificates(ca: str, certificate: str, key: str) -> None:
    """Load what Dask would load at each connection, so that what can never work is told at once.

    Raises:
        UsageError: a file is no certificate or key, or the key is of another certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(ca)
    except OSError as failed:  # also an SSLError
        raise UsageError(f"--tls-ca: {ca} can't be used", details=[_reason(failed)]) from None
    try:
        context.load_cert_chain(certificate, key, password="")  # no one is asked for a password
    except (OSError, ValueError) as failed:
        if getattr(failed, "reason", "") == "KEY_VALUES_MISMATCH":
            raise UsageError(
                f"--tls-key: {key} is not the key of {certificate}", hint="give the certificate's own key"
            ) from None
        raise UsageError(
            f"--tls-cert {certificate} and --tls-key {key} can't be used",
            details=[_reason(failed)],
            hint="each is a PEM file, and the key has no password (docs/farm.md)",
        ) from None


def _reason(failed: Exception) -> str:
    return (getattr(failed, "reason", "") or str(failed)).lower().replace("_", " ")


def check_host(host: str) -> None:
    """Check that a worker can listen at an address of this computer, which does not depend on the scheduler.

    Raises:
        UsageError: its name is not known, or it is not an address of this computer.
    """
    try:
        for family, place in _resolved(host):
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.bind(place)
            return
    except (OSError, UnicodeError) as failed:
        why = getattr(failed, "strerror", "") or str(failed)
        raise UsageError(
            f"--host: a worker can't listen at {host}",
            details=[why.lower()],
            hint="give a name or an address of this computer, or leave --host out",
        ) from None


def address_of(text: str, tls: Tls) -> str:
    """Return a scheduler's address with its protocol: "rack:8786" is tls://rack:8786 with certificates, else tcp://.

    Raises:
        UsageError: it is no address.
    """
    if not text or any(character.isspace() for character in text):
        raise UsageError(f"{text!r} is no address of a scheduler", hint="give HOST:PORT, as dask scheduler tells it")
    address = text if "://" in text else f"{'tls' if tls.ca else 'tcp'}://{text}"
    protocol, _, rest = address.partition("://")
    host, _, port = rest.rpartition(":")
    is_port = port.isascii() and port.isdigit() and len(port) <= len("65535") and 0 < int(port) < 1 << 16
    if protocol not in ("tcp", "tls") or not host or not is_port:
        raise UsageError(f"{text} is no address of a scheduler", hint="give HOST:PORT, as dask scheduler tells it")
    return address


def listening_host(address: str, host: str = "", insecure: bool = False) -> str:
    """Return the IP address that a worker listens on.

    Args:
        address: the scheduler's, as `address_of` returns it.
        host: where to listen; "": at the interface that reaches the scheduler, loopback for a local one.
        insecure: listen beyond loopback without TLS.

    Raises:
        OSError: a name can't be resolved, or no interface reaches the scheduler.
        UsageError: others could connect, and nothing would check who they are.
    """
    protocol, _, place = address.partition("://")
    name, _, port = place.rpartition(":")
    found = _resolved(host)[0][1][0] if host else _interface(name, int(port))
    if protocol == "tls" or ipaddress.ip_address(found).is_loopback:
        return found
    if not insecure:
        raise UsageError(
            f"a worker that listens on {found} without TLS lets the whole network run programs as its user",
            hint="give --tls-ca, --tls-cert and --tls-key (docs/farm.md), or --insecure where all who can connect "
            "are trusted",
        )
    log.warning("%s is open without TLS: who can connect to it can run programs as this user", found)
    return found


def _interface(name: str, port: int) -> str:
    """Return the address that this computer has on the way to another; nothing is sent."""
    failed = OSError(f"no interface reaches {name}")
    for family, place in _resolved(name, port):
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect(place)
                return str(probe.getsockname()[0])
            except OSError as error:
                failed = error
    raise failed


def _resolved(name: str, port: int = 0) -> list[tuple[int, Any]]:
    return [(one[0], one[4]) for one in socket.getaddrinfo(name.strip("[]"), port, type=socket.SOCK_DGRAM)]


def refused(error: Exception, address: str) -> MtoolError:
    """Return why no connection to a scheduler can be had, for people."""
    from mtool.base.errors import CommunicationError

    said = str(error).strip() or type(error).__name__
    return CommunicationError(
        f"the scheduler at {address} can't be reached",
        details=[said],
        hint="is it running (dask scheduler)? with certificates on one side alone there is no connection either",
    )
