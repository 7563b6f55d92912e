"""Open a session, and explain failures."""

import contextlib
import platform
import secrets
import struct
import time
import zlib
from dataclasses import dataclass
from pathlib import Path

from mtool.base.errors import CommunicationError
from mtool.device.rpc import protocol
from mtool.device.rpc.framing import Decoder, Frame, Seal, encode
from mtool.device.rpc.protocol import Hello, Message, Status, describe
from mtool.device.transport import Transport
from mtool.manifest.link_key import CHALLENGE_BYTES, MAC_BYTES, LinkKey

_FIRST_WAIT_S = 0.1
_LONGEST_WAIT_S = 1.0
_SHOWN_LINES = 5
_HASH_DIGITS = 16  # of those in HELLO's reply
_USUAL_BAUDS = (115200, 9600, 57600, 230400, 460800, 921600, 1000000)
BAUD_S = 0.3  # for each other rate: at 9,600 baud HELLO and its reply take 0.12 s


@dataclass(frozen=True, slots=True)
class Expected:
    """The expected firmware: the model's name, its hash and the build's, in hex.

    `entry` is the board's name if the user described its UART.
    """

    model: str
    model_hash: str
    build_hash: str
    entry: str = ""


def shake_hands(
    transport: Transport,
    *,
    expected: Expected | None,
    timeout_s: float,
    take_over: bool = False,
    key: LinkKey | None = None,
) -> tuple[int, Hello, Seal | None]:
    """Open a session.

    Args:
        transport: the channel; earlier bytes on it are discarded.
        expected: the expected firmware; None: any.
        timeout_s: how long the device may take to start and to answer. If nothing readable comes from a serial line,
            other rates are tried after that, for 2 s in total.
        take_over: open it even if the device has a session with another computer. This is always done if no other
            computer can reach the device.
        key: the device's link key; None: the session is not authenticated.

    Returns:
        The session's number, the device's description of itself, and what authenticates the frames.

    Raises:
        CommunicationError: nothing answers, or something else or other firmware does; the message says which.
    """
    nonce = secrets.randbits(32)
    session = nonce & 0xFFFF
    challenge = secrets.token_bytes(CHALLENGE_BYTES) if key is not None else b""
    taking = take_over or transport.is_exclusive
    payload = protocol.hello(nonce, take_over=taking, host=host_number(), challenge=challenge)
    request = encode(Frame(Message.MT_HELLO, session, 0, payload))
    decoder = Decoder()
    reply = _ask(transport, request, nonce, decoder, timeout_s)
    if reply is not None:
        _check_opened(reply.payload, transport.name)
        seal = None
        if key is not None:
            reply, seal = _authenticated(reply, transport.name, key, challenge)
        return session, _check(reply.payload, transport.name, expected), seal
    tail = decoder.tail
    baud = transport.baud
    if baud is not None and not _is_text(tail) and (other := _answering_baud(transport, baud, request, nonce)):
        hint = f"set the firmware's UART to {baud} baud, or `usb: uart: {other}` in the board's entry"
        raise CommunicationError(f"{transport.name} answers at {other:,} baud, not at {baud:,}", hint=hint)
    raise _no_answer(transport.name, tail, timeout_s, baud, expected.entry if expected else "")


def host_number() -> int:
    """Return a number that identifies this computer: it may take over a session left open by a crashed program."""
    name = platform.node()
    with contextlib.suppress(OSError):
        name += Path("/etc/machine-id").read_text()
    return zlib.crc32(name.encode())


def _ask(transport: Transport, request: bytes, nonce: int, decoder: Decoder, timeout_s: float) -> Frame | None:
    """Send HELLO until its reply comes, and return it; None: no reply."""
    kind, at, sent = Message.MT_HELLO | protocol.REPLY, protocol.NONCE_AT, struct.pack("<I", nonce)
    deadline = time.monotonic() + timeout_s
    wait_s = _FIRST_WAIT_S
    while (rest_s := deadline - time.monotonic()) > 0:
        transport.write(request, timeout_s=rest_s)
        wait_until = time.monotonic() + min(wait_s, rest_s)
        wait_s = min(2 * wait_s, _LONGEST_WAIT_S)
        while (rest_s := wait_until - time.monotonic()) > 0:
            for frame in decoder.feed(transport.read(timeout_s=rest_s)):
                if frame is not None and frame.type == kind and frame.payload[at : at + 4] == sent:
                    return frame
    return None


def _answering_baud(transport: Transport, baud: int, request: bytes, nonce: int) -> int | None:
    """Return the usual rate at which the device answers; None: it answers at none of them."""
    try:
        for other in (rate for rate in _USUAL_BAUDS if rate != baud):
            with contextlib.suppress(CommunicationError):  # not every port has every rate
                transport.set_baud(other)
                if _ask(transport, request, nonce, Decoder(), BAUD_S) is not None:
                    return other
        return None
    finally:
        with contextlib.suppress(CommunicationError):
            transport.set_baud(baud)


def _authenticated(reply: Frame, name: str, key: LinkKey, challenge: bytes) -> tuple[Frame, Seal]:
    """Return the reply to HELLO without its MAC and challenge, and what authenticates the session's frames."""
    seal = Seal(key.of_session(challenge, reply.payload[-MAC_BYTES - CHALLENGE_BYTES : -MAC_BYTES]))
    plain = seal.open(reply, 0)
    if plain is None:
        model = reply.payload[protocol.HELLO_REPLY_BYTES :]
        if model.decode("ascii", "replace").isidentifier():  # it ends with the model's name: there is no MAC
            hint = "build it with --link-key and flash it again, or leave out the key"
            raise CommunicationError(f"{name} does not authenticate its sessions: it has no link key", hint=hint)
        hint = "use the key that its firmware was built with: --link-key FILE, else the project's link.key, else "
        details = [f"the key of {key.file} was used"] if key.file else []
        raise CommunicationError(f"{name} has another link key", details=details, hint=f"{hint}MTOOL_LINK_KEY")
    return plain._replace(payload=plain.payload[:-CHALLENGE_BYTES]), seal


def _check_opened(payload: bytes, name: str) -> None:
    version = payload[protocol.VERSION_AT]
    if version != protocol.VERSION:
        raise CommunicationError(
            f"{name} uses another version of the protocol",
            details=[f"here    version {protocol.VERSION}", f"device  version {version}"],
            hint="build the firmware with this mtool and flash it again",
        )
    if payload[0] == Status.MT_BUSY:
        hint = "close it there; if it is gone, reset the board, or use mtool.device.session.open(..., take_over=True)"
        raise CommunicationError(f"{name} is in use: another host has an open session", hint=hint)
    if payload[0] == Status.MT_UNAUTHENTICATED:
        hint = "give its key: --link-key FILE, or MTOOL_LINK_KEY"
        raise CommunicationError(f"{name} opens a session only for a host with its link key", hint=hint)
    if payload[0] == Status.MT_NOT_SUPPORTED:
        hint = "its port needs random numbers (mt_port_random), or flash for modules"
        raise CommunicationError(f"{name} can't open an authenticated session", hint=hint)
    if payload[0] != Status.MT_OK:
        raise CommunicationError(f"{name} refused to open a session", details=[describe(payload[0])])


def _check(payload: bytes, name: str, expected: Expected | None) -> Hello:
    hello = protocol.read_hello(payload)
    if expected is None:
        return hello
    rows = [
        ("here", expected.model, expected.model_hash, expected.build_hash),
        ("device", hello.model, hello.model_hash, hello.build_hash),
    ]
    width = max(len(expected.model), len(hello.model))
    details = [f"{who:<7} {model:<{width}}  model {of[:8]}  build {build[:8]}" for who, model, of, build in rows]
    if hello.model_hash != expected.model_hash[:_HASH_DIGITS]:
        raise CommunicationError(
            f"{name} runs another model", details=details, hint="build this model's project and flash it first"
        )
    if hello.build_hash != expected.build_hash[:_HASH_DIGITS]:
        raise CommunicationError(
            f"{name} runs another build of this model",
            details=details,
            hint="build it again and flash it first; or name the package in firmware of your own: --on PACKAGE",
        )
    return hello


def _is_text(data: bytes) -> bool:
    text = data.decode("latin-1")
    readable = sum(character.isprintable() or character in "\r\n\t\x1b" for character in text if ord(character) < 128)
    return bool(data) and readable >= 0.9 * len(data)


def _no_answer(name: str, tail: bytes, timeout_s: float, baud: int | None, entry: str) -> CommunicationError:
    others = ", ".join(str(other) for other in _USUAL_BAUDS if other != baud)
    tried = [f"tried {baud} baud, then {others}"] if baud is not None else []
    if not tail:
        what = f"no answer: {name} sent nothing within {timeout_s:.3g} s"
        hint = "check that the board runs mtool's firmware and that this is its port"
        hint += f"; and in the entry of {entry}: ports.uart (base, irq), ports.pins" if entry else ""
        return CommunicationError(what, details=tried, hint=hint)
    if _is_text(tail):
        lines = [line.strip() for line in tail.decode("latin-1").splitlines() if line.strip()]
        details = ["its last lines:", *(f"  {line}" for line in lines[-_SHOWN_LINES:])]
        hint = "flash firmware with the RPC server, whose log uses another port than the RPC"
        return CommunicationError(f"{name} prints text, but sends no frames", details=details, hint=hint)
    what = f"{name} sends bytes, but no valid frames"
    details = [f"{len(tail):,} bytes within {timeout_s:.3g} s, the last: {tail[-16:].hex(' ')}", *tried]
    return CommunicationError(
        what,
        details=details,
        hint="check the firmware's baud rate, and that it sends all bytes as they are (no CR before LF)",
    )
