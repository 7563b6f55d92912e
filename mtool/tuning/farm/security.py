"""Certificates for a board farm's connections, and its scheduler's address, for Dask."""

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
    """The CA certificate, this side's certificate and its key; all empty: those in Dask's configuration."""

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None


DASKS = Tls()
"""Dask's own configuration."""


@dataclass(frozen=True, slots=True)
class FarmAddress:
    """A board farm's scheduler address, and certificates."""

    scheduler: str
    tls: Tls = DASKS


def require() -> None:
    """Check that dask.distributed is installed, and keep it from writing to the terminal.

    Raises:
        UsageError: it is not.
    """
    try:
        import distributed  # noqa: F401
    except ImportError:
        raise UsageError("a board farm needs dask.distributed", hint=distribution.install("farm")) from None
    for name in [*logging.root.manager.loggerDict]:  # mtool reports errors itself, without tracebacks
        if name.startswith("distributed"):
            logging.getLogger(name).setLevel(logging.CRITICAL)


def security_of(tls: Tls, address: str) -> Any:
    """Return Dask's `Security` from the certificates, or from Dask's own configuration if there are none.

    Raises:
        UsageError: a file or one of the three is missing, or the address needs them.
    """
    from distributed import Security

    certificates = (tls.ca, tls.certificate, tls.key)
    if not any(certificates):
        configured = Security()
        if address.startswith("tls:") and not configured.tls_client_cert:
            raise UsageError(
                f"{address} requires certificates", hint="add --tls-ca, --tls-cert and --tls-key (docs/farm.md)"
            )
        return configured
    if not all(certificates):
        raise UsageError("--tls-ca, --tls-cert and --tls-key have to be given together")
    for path in certificates:
        if path is None or not path.is_file():
            raise UsageError(f"the certificate or key {path} does not exist")
    if os.name == "posix" and tls.key is not None and tls.key.stat().st_mode & stat.S_IRWXO:
        log.warning("%s is readable by other users: chmod 600 %s", tls.key, tls.key)
    certificate, key = str(tls.certificate), str(tls.key)
    _check_certificates(str(tls.ca), certificate, key)
    return Security(
        tls_ca_file=str(tls.ca), require_encryption=True,
        tls_client_cert=certificate, tls_client_key=key, tls_worker_cert=certificate, tls_worker_key=key,
        tls_scheduler_cert=certificate, tls_scheduler_key=key,
    )  # fmt: skip


def _check_certificates(ca: str, certificate: str, key: str) -> None:
    """Load what Dask would load for each connection, to report errors at once.

    Raises:
        UsageError: a file is not a certificate or key, or the key does not match the certificate.
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
                f"--tls-key: {key} is not the key of {certificate}", hint="use the certificate's own key"
            ) from None
        raise UsageError(
            f"--tls-cert {certificate} and --tls-key {key} can't be used",
            details=[_reason(failed)],
            hint="use PEM files, and a key without a password (docs/farm.md)",
        ) from None


def _reason(failed: Exception) -> str:
    return (getattr(failed, "reason", "") or str(failed)).lower().replace("_", " ")


def check_host(host: str) -> None:
    """Check that a worker can listen at an address, independent of the scheduler.

    Raises:
        UsageError: the name can't be resolved, or it is not an address of this computer.
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
            hint="give a name or an address of this computer, or leave out --host",
        ) from None


def address_of(text: str, tls: Tls) -> str:
    """Return a scheduler's address with its protocol: "rack:8786" is tls://rack:8786 with certificates, else tcp://.

    Raises:
        UsageError: it is not an address.
    """
    if not text or any(character.isspace() for character in text):
        raise UsageError(f"{text!r} is not a scheduler's address", hint="give HOST:PORT, as dask scheduler prints it")
    address = text if "://" in text else f"{'tls' if tls.ca else 'tcp'}://{text}"
    protocol, _, rest = address.partition("://")
    host, _, port = rest.rpartition(":")
    is_port = port.isascii() and port.isdigit() and len(port) <= len("65535") and 0 < int(port) < 1 << 16
    if protocol not in ("tcp", "tls") or not host or not is_port:
        raise UsageError(f"{text} is not a scheduler's address", hint="give HOST:PORT, as dask scheduler prints it")
    return address


def listening_host(address: str, host: str = "", insecure: bool = False) -> str:
    """Return the IP address that a worker listens on.

    Args:
        address: the scheduler's address, as `address_of` returns it.
        host: where to listen; "": the interface that reaches the scheduler, loopback for a local one.
        insecure: listen beyond loopback without TLS.

    Raises:
        OSError: a name can't be resolved, or no interface reaches the scheduler.
        UsageError: others could connect without authentication.
    """
    protocol, _, place = address.partition("://")
    name, _, port = place.rpartition(":")
    number = _resolved(host)[0][1][0] if host else _interface(name, int(port))
    if protocol == "tls" or ipaddress.ip_address(number).is_loopback:
        return number
    if not insecure:
        raise UsageError(
            f"listening on {number} without TLS would let anyone on the network run programs as this user",
            hint="add --tls-ca, --tls-cert and --tls-key (docs/farm.md), or --insecure if you trust the whole network",
        )
    log.warning("listening on %s without TLS: anyone who can connect can run programs as this user", number)
    return number


def _interface(name: str, port: int) -> str:
    """Return this computer's address on the route to another; nothing is sent."""
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
    return [(info[0], info[4]) for info in socket.getaddrinfo(name.strip("[]"), port, type=socket.SOCK_DGRAM)]


def refused(error: Exception, address: str) -> MtoolError:
    """Return the error for a scheduler that can't be reached."""
    from mtool.base.errors import CommunicationError

    message = str(error).strip() or type(error).__name__
    return CommunicationError(
        f"the scheduler at {address} can't be reached",
        details=[message],
        hint="check that it is running (dask scheduler), and that both sides use certificates or neither does",
    )
