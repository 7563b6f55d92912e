"""Copy bytes between standard input and output and a chip's RTT rings, with pyOCD; a separate program.

python pyocd_rtt.py TARGET PROBE ADDRESS, each empty if unknown. pyOCD reads memory while the chip runs.
"""

import os
import sys
import threading
import time

_POLL_S = 0.001
_START_S = 10.0


def main(target: str, probe: str, address: str) -> None:
    """Connect and copy until standard input ends."""
    from pyocd.core.exceptions import RTTError  # type: ignore[import-not-found,unused-ignore]
    from pyocd.core.helpers import ConnectHelper  # type: ignore[import-not-found,unused-ignore]
    from pyocd.debug.rtt import RTTControlBlock  # type: ignore[import-not-found,unused-ignore]

    session = ConnectHelper.session_with_chosen_probe(
        unique_id=probe or None, target_override=target or None, blocking=False, return_first=False,
        options={"connect_mode": "attach"},
    )  # fmt: skip
    if session is None:
        sys.exit("pyOCD found no debug probe")
    with session:
        chip = session.board.target
        chip.resume()
        place = {"address": int(address, 16), "size": 0} if address else {}
        block = RTTControlBlock.from_target(chip, **place)
        deadline = time.monotonic() + _START_S
        while not (block.up_channels and block.down_channels):
            try:
                block.start()
            except RTTError as wrong:
                if time.monotonic() > deadline:
                    sys.exit(f"no RTT control block: {wrong}")
                time.sleep(_POLL_S)
        _pump(block.up_channels[0], block.down_channels[0])


def _pump(up: object, down: object) -> None:
    waiting = bytearray()
    lock = threading.Lock()
    ended = threading.Event()

    def receive() -> None:
        while data := os.read(0, 1 << 16):
            with lock:
                waiting.extend(data)
        ended.set()

    threading.Thread(target=receive, daemon=True).start()
    while not (ended.is_set() and not waiting):
        data = up.read()  # type: ignore[attr-defined]
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(1, rest) :]
        with lock:
            piece = bytes(waiting)
        sent = down.write(piece) if piece else 0  # type: ignore[attr-defined]
        with lock:
            del waiting[:sent]
        if not data and not sent:
            time.sleep(_POLL_S)


if __name__ == "__main__":
    main(*sys.argv[1:4])
