"""Messages for a session that ends by itself."""

from mtool.base.errors import CommunicationError, NoAnswerError
from mtool.device.rpc.protocol import Request


def broke_off(name: str) -> CommunicationError:
    """Return the error of a session in which an earlier request has no reply."""
    return CommunicationError(f"the session with {name} broke off", hint="open the device again, or reconnect")


def no_session(name: str, *, is_open: bool) -> CommunicationError:
    """Return the error of a device that does not know the session: another one is open, or none."""
    if is_open:
        return CommunicationError(
            f"another host has opened a session with {name}", hint="end that one, then open the device again"
        )
    return CommunicationError(
        f"{name} was reset in the middle of the session",
        details=["its firmware runs, and knows of no session"],
        hint="open the device again, or reconnect",
    )


def no_progress(name: str, oldest: Request, *, is_running: bool, patience_s: float, resent: int) -> NoAnswerError:
    """Return the error of a device that has not answered in time.

    Args:
        name: of the transport.
        oldest: the first request without a reply.
        is_running: the device has said that it began to work on it.
        patience_s: how long the host has waited.
        resent: frames that were sent again.
    """
    details = [
        f"expected a reply to {oldest.type.name} within {patience_s:.3g} s",
        f"{resent} frames were sent again since the session was opened",
    ]
    if is_running:
        return NoAnswerError(
            f"{name} began to run the model and has not come to an end",
            details=details,
            hint="does the model hang on this device, or does it take longer than that?",
        )
    return NoAnswerError(f"{name} has stopped answering", details=details)
