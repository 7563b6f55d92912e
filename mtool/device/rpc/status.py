"""Status codes of the runtime, as in crt/include/mt_status.h; a test holds the two together."""

from enum import IntEnum


class Status(IntEnum):
    """The status of a function of the runtime, or of a reply."""

    MT_OK = 0
    MT_BAD_FRAME = 1
    MT_BAD_MESSAGE = 2
    MT_UNKNOWN_MESSAGE = 3
    MT_BAD_INDEX = 4
    MT_BAD_RANGE = 5
    MT_NO_SESSION = 6
    MT_TOO_LARGE = 7
    MT_TIMER_NOT_STARTED = 8
    MT_TIMER_RUNNING = 9
    MT_TIMER_OVERFLOW = 10
    MT_NOT_SUPPORTED = 11
    MT_IO = 12
    MT_MODEL = 13
    MT_STACK_OVERFLOW = 14
    MT_BUSY = 15
    MT_UNKNOWN_FUNCTION = 16
    MT_BAD_COUNT = 17
    MT_BAD_TYPE = 18
    MT_BAD_SHAPE = 19
    MT_BAD_GRAPH = 20
    MT_BAD_SIZE = 21
    MT_DEVICE = 22
    MT_BAD_ORDER = 23
    MT_BAD_MODULE = 24
    MT_BAD_SIGNATURE = 25
    MT_OLD_MODULE = 26
    MT_WRONG_MACHINE = 27
    MT_NO_MEMORY = 28
    MT_MISSING_IMPORT = 29
    MT_BAD_DELTA = 30
    MT_STOPPED = 31


MEANINGS = {
    Status.MT_OK: "success",
    Status.MT_BAD_FRAME: "a frame is malformed or its checksum is wrong",
    Status.MT_BAD_MESSAGE: "a message is too short or its fields make no sense",
    Status.MT_UNKNOWN_MESSAGE: "the message type is unknown to this firmware",
    Status.MT_BAD_INDEX: "there is no tensor, operator or model with that index",
    Status.MT_BAD_RANGE: "the range lies outside the tensor",
    Status.MT_NO_SESSION: "no session is open",
    Status.MT_TOO_LARGE: "the frame is larger than the receive buffer",
    Status.MT_TIMER_NOT_STARTED: "the timer was stopped before it was started",
    Status.MT_TIMER_RUNNING: "the timer was started while it was running",
    Status.MT_TIMER_OVERFLOW: "the timer ran over its range",
    Status.MT_NOT_SUPPORTED: "the platform has no such function",
    Status.MT_IO: "the platform could not read or write",
    Status.MT_MODEL: "the model failed",
    Status.MT_STACK_OVERFLOW: "the stack went over its end",
    Status.MT_BUSY: "another host has a session open",
    Status.MT_UNKNOWN_FUNCTION: "there is no function of that name",
    Status.MT_BAD_COUNT: "a function takes another number of arguments",
    Status.MT_BAD_TYPE: "an argument is of another type",
    Status.MT_BAD_SHAPE: "a tensor has another shape",
    Status.MT_BAD_GRAPH: "the graph's JSON is malformed, or of another model",
    Status.MT_BAD_SIZE: "a size is smaller or larger than the model takes",
    Status.MT_DEVICE: "a device that computes a part of the model failed",
    Status.MT_BAD_ORDER: "an inference has not begun, or rows of it are missing",
    Status.MT_BAD_MODULE: "a module is malformed, or not whole",
    Status.MT_BAD_SIGNATURE: "a module is not signed by a key that the firmware knows",
    Status.MT_OLD_MODULE: "a module is older than the least that the device takes",
    Status.MT_WRONG_MACHINE: "a module is for another machine, or of a kind that the firmware does not run",
    Status.MT_NO_MEMORY: "there is not enough memory, or it is not aligned",
    Status.MT_MISSING_IMPORT: "a module calls a function that the firmware does not have",
    Status.MT_BAD_DELTA: "a delta is malformed, of other bytes than are there, or too large",
    Status.MT_STOPPED: "the model was stopped at a fault, and the firmware goes on",
}


def describe(code: int) -> str:
    """Return a status code's name and meaning; a code of newer firmware is told by its number."""
    try:
        status = Status(code)
    except ValueError:
        return f"status {code}, which this mtool does not know"
    return f"{status.name}: {MEANINGS[status]}"
