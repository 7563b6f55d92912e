"""Simulated boards behind pseudo-terminals: the real firmware, built for this computer, with modelled times.

    python tests/tuning/simulated_board.py run FOLDER --count 8 --seed 3 &      until it is killed
    mtool tune MODEL --board simulated_m4 --port FOLDER/0/port \
        --flash-command 'python tests/tuning/simulated_board.py flash {port} {elf}' \
        --power 'python tests/tuning/simulated_board.py power {port}'
    python tests/tuning/simulated_board.py status FOLDER/0/port                 what it has seen, as JSON

in a folder whose mtool.toml says `boards = "…/tests/tuning/boards.yaml"`: its `simulated_m4` has the schedules of a
Cortex-M4, compiled for this computer with the portable forms of their instructions. `tests/tuning/rig.py` does all that
for a test.

A board is flashed with the firmware's program, which speaks the real protocol and computes the real outputs; bytes take
the time of 115,200 baud. Only what is timed is made up: each TIME is run once, and the reply says what the truth says,
with noise: 3% lognormal, one in fifty ten times as long, a step of 2% at a random moment. Some measurements (each
begins with spoiling the output) meet a fault: the program crashes, reports it and restarts; it hangs until it is
flashed or loses its power; the candidate is not run at all, so that its output is wrong; or the board is unplugged for
a while.

Options of `run`:
    --factor F      of all times that pass here, latency, flash and work; 0.05 in tests. What is reported stays.
    --faults P      the probability of each kind in a measurement: 0.05
    --quiet         no noise
    --step-after N  calls of candidates, after which all takes 2% longer; default: one of the first 300, at random
    --base NS       of the default truth: a candidate takes `true_ns(label, schedule, base)`
    --truth FILE    JSON: {"times": [{schedule: ns}, ...], "broken": {schedule: kind}}: the times of each board in turn;
                    the kinds are crash, endless, wrong, unplugged; the one of "whole" meets the whole model, once
    --start-dead    flashing fails until the power is cycled for the first time
    --stay-dead     after a crash or an endless loop flashing fails until the power is cycled
"""

import argparse
import contextlib
import heapq
import itertools
import json
import os
import random
import selectors
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
import tty
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cobs import cobs

KINDS = ("crash", "endless", "wrong", "unplugged")
BAUD = 115200
FLASH_S, POWER_S, UNPLUGGED_S, BOOT_S = 4.0, 0.5, 2.0, 0.2
STEP_WITHIN = 300  # calls of candidates
IDLE_NS, OTHER_NS = 500, 1000
TIME, TIMED, RUNNING, WHOLE = 0x06, 0x86, 0xF1, 0xFFFF


def true_ns(label: str, schedule: str, base: float) -> float:
    """Return what an operator takes, unless it is said: between once and twice the base, by a hash."""
    return base * (1 + zlib.crc32(f"{label} {schedule}".encode()) % 4096 / 4096)


class Loop:
    """Runs what is due, and what files and sockets bring."""

    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._count = itertools.count()

    def at(self, when: float, do: Callable[[], None]) -> None:
        heapq.heappush(self._due, (when, next(self._count), do))

    def watch(self, file: int, do: Callable[[], None]) -> None:
        self.selector.register(file, selectors.EVENT_READ, do)

    def forget(self, file: int) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self.selector.unregister(file)

    def run(self) -> None:
        while True:
            wait = self._due[0][0] - time.monotonic() if self._due else None
            for key, _ in self.selector.select(None if wait is None else max(wait, 0.0)):
                key.data()
            now = time.monotonic()
            while self._due and self._due[0][0] <= now:
                heapq.heappop(self._due)[2]()


class Board:
    """One board: a pseudo-terminal, a flash memory, a firmware's program, and what goes wrong."""

    def __init__(self, loop: Loop, folder: Path, number: int, options: argparse.Namespace) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.loop, self.folder, self.options = loop, folder, options
        self.random = random.Random(f"{options.seed} {number}")
        said = json.loads(Path(options.truth).read_text()) if options.truth else {}
        truths = said.get("times") or [{}]
        self.times, self.broken = truths[number % len(truths)], said.get("broken", {})
        self.step_after = self.random.randrange(STEP_WITHIN) if options.step_after < 0 else options.step_after
        self.byte_s = 10 / BAUD * options.factor
        self.counts: Counter[str] = Counter()
        self.operators: list[dict[str, str]] = []
        self.image: Path | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self.life = 0  # how often it was reset: what is under way from before is lost
        self.fault = ""
        self.is_dead, self.is_hung = options.start_dead, False
        self.master = self.slave = -1
        self.plug()

    # The cable

    def plug(self) -> None:
        self.master, self.slave = os.openpty()
        tty.setraw(self.slave)
        os.set_blocking(self.master, False)
        self.loop.watch(self.master, self.from_host)
        link = self.folder / "port"
        with contextlib.suppress(FileNotFoundError):
            link.unlink()
        link.symlink_to(os.ttyname(self.slave))
        self.reset()

    def unplug(self) -> None:
        (self.folder / "port").unlink()
        self.stop()
        self.loop.forget(self.master)
        os.close(self.master)
        os.close(self.slave)
        self.master = -1
        self.loop.at(time.monotonic() + UNPLUGGED_S * self.options.factor, self.plug)

    # The processor

    def stop(self) -> None:
        self.life += 1
        self.pending, self.partial = b"", b""
        self.to_device_at = self.to_host_at = 0.0
        self.asked: dict[tuple[int, int], tuple[int, int]] = {}
        if self.process is not None:
            assert self.process.stdin is not None and self.process.stdout is not None
            self.loop.forget(self.process.stdout.fileno())
            self.process.kill()
            self.process.wait()
            with contextlib.suppress(OSError):
                self.process.stdin.close()
            self.process.stdout.close()
            self.process = None

    def reset(self) -> None:
        self.stop()
        self.is_hung, self.fault = False, ""
        if self.image is None or self.is_dead:
            return
        self.process = subprocess.Popen([self.image], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        assert self.process.stdout is not None
        self.loop.watch(self.process.stdout.fileno(), self.from_firmware)

    def boot(self, life: int) -> None:
        if life == self.life:
            self.reset()

    # Bytes

    def from_host(self) -> None:
        try:
            data = os.read(self.master, 1 << 16)
        except OSError:
            return
        *frames, self.pending = (self.pending + data).split(b"\0")
        now, life = time.monotonic(), self.life
        for frame in filter(None, frames):
            self.to_device_at = max(self.to_device_at, now) + (len(frame) + 2) * self.byte_s
            self.loop.at(self.to_device_at, lambda frame=frame: self.deliver(life, frame))  # type: ignore[misc]

    def deliver(self, life: int, frame: bytes) -> None:
        if life != self.life or self.process is None or self.is_hung:
            return
        try:
            body = cobs.decode(frame)
        except cobs.DecodeError:
            body = b""
        if len(body) == 15 and body[0] == TIME:
            forwarded = self.time(*struct.unpack_from("<HHIH", body, 1))
            if not forwarded:
                return
            frame = encoded(forwarded)
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(b"\0" + frame + b"\0")

    def from_firmware(self) -> None:
        assert self.process is not None and self.process.stdout is not None
        data = os.read(self.process.stdout.fileno(), 1 << 16)
        if not data:  # it has reported its fault and ended
            self.loop.forget(self.process.stdout.fileno())
            life = self.life
            self.loop.at(time.monotonic() + BOOT_S * self.options.factor, lambda: self.boot(life))
            return
        *frames, self.partial = (self.partial + data).split(b"\0")
        for frame in filter(None, frames):
            self.send(frame)

    def send(self, frame: bytes) -> None:
        body = cobs.decode(frame)
        worked = 0.0
        key = struct.unpack_from("<HH", body, 1)
        if body[0] == TIMED and key in self.asked and len(body) >= 22:
            number, operator = self.asked[key]
            elapsed = self.elapsed_ns(number, operator)
            worked = elapsed * 1e-9 * self.options.factor
            frame = encoded(body[:10] + struct.pack("<Q", elapsed) + body[18:-4])
        now, life = time.monotonic(), self.life
        self.to_host_at = max(self.to_host_at, now) + worked + (len(frame) + 2) * self.byte_s
        self.loop.at(self.to_host_at, lambda: self.put(life, b"\0" + frame + b"\0"))

    def put(self, life: int, data: bytes) -> None:
        if life == self.life and self.master >= 0:
            with contextlib.suppress(BlockingIOError):  # no reader: bytes that do not fit are lost
                os.write(self.master, data)

    # The model of times and faults

    def time(self, session: int, sequence: int, number: int, operator: int) -> bytes:
        """Return the request to forward, without its checksum; empty if there is none."""
        if (session, sequence) in self.asked:
            number, operator = self.asked[session, sequence]
            return struct.pack("<BHHIH", TIME, session, sequence, 1, operator)
        self.asked = {(session, sequence): (number, operator)}
        name = self.operators[operator]["name"] if operator < len(self.operators) else ""
        if name.endswith("_spoil"):
            self.counts["measurements"] += 1
            draw, each = self.random.random(), self.options.faults
            self.fault = KINDS[int(draw / each)] if draw < len(KINDS) * each else ""
        run = operator
        if operator == WHOLE and "whole" in self.broken:
            self.counts["whole"] += 1
            self.begin(self.broken.pop("whole"), session, sequence)
            return b""
        if is_candidate(name):
            self.counts["calls"] += 1
            kind = self.broken.get(self.operators[operator]["schedule"], self.fault)
            if kind:
                self.counts[kind] += 1
            if kind == "wrong":
                run = next(at for at, one in enumerate(self.operators) if one["name"] == "idle")
            elif kind:
                self.fault = ""
                self.begin(kind, session, sequence)
                return b""
        return struct.pack("<BHHIH", TIME, session, sequence, 1, run)

    def begin(self, kind: str, session: int, sequence: int) -> None:
        if kind == "unplugged":
            self.unplug()
            return
        self.is_dead = self.options.stay_dead
        if kind == "crash":
            assert self.process is not None
            self.process.send_signal(signal.SIGSEGV)
            return
        self.is_hung = True
        self.send(encoded(struct.pack("<BHH", RUNNING, session, sequence)))

    def elapsed_ns(self, number: int, operator: int) -> int:
        if operator == WHOLE:
            each = sum(self.true_of(one) for one in self.operators)
        else:
            each = self.true_of(self.operators[operator])
        if self.counts["calls"] > self.step_after:
            each *= 1.02
        if not self.options.quiet:
            each *= self.random.lognormvariate(0, 0.03)
            each *= 10 if self.random.random() < 0.02 else 1
        return round((each + IDLE_NS) * number)

    def true_of(self, operator: dict[str, str]) -> float:
        name, schedule = operator["name"], operator["schedule"]
        if name == "idle":
            return 0.0
        if name.startswith("t") and "_" in name and not is_candidate(name):
            return OTHER_NS
        return float(self.times.get(schedule) or true_ns(operator["label"], schedule, self.options.base))

    # What commands ask for

    def ask(self, asked: dict[str, Any], answer: Callable[[str], None]) -> None:
        now, factor = time.monotonic(), self.options.factor
        if asked["do"] == "status":
            answer(json.dumps({**self.counts, "dead": self.is_dead}))
        elif asked["do"] == "power":
            self.counts["power"] += 1
            self.is_dead = False
            self.stop()
            self.loop.at(now + POWER_S * factor, lambda: self.powered(answer))
        elif self.master < 0 or self.is_dead:
            answer("no target answers")
        else:
            self.counts["flashes"] += 1
            self.stop()
            self.loop.at(now + FLASH_S * factor, lambda: self.flashed(asked, answer))

    def powered(self, answer: Callable[[str], None]) -> None:
        if self.master >= 0:
            self.reset()
        answer("")

    def flashed(self, asked: dict[str, Any], answer: Callable[[str], None]) -> None:
        if self.master < 0:
            answer("the target was lost")
            return
        self.operators = asked["operators"]
        if self.image is not None:
            self.image.unlink()
        self.image = self.folder / f"image{self.counts['flashes']}"
        shutil.copy(asked["elf"], self.image)
        self.reset()
        answer("")


def is_candidate(name: str) -> bool:
    """Say whether an operator of a trial is a candidate: t3_c14."""
    task, _, number = name.partition("_c")
    return task.startswith("t") and task[1:].isdigit() and number.isdigit()


def encoded(body: bytes) -> bytes:
    """Return a frame of what it holds, with its checksum."""
    return bytes(cobs.encode(body + struct.pack("<I", zlib.crc32(body))))


class Desk:
    """The boards of one process, and the socket where commands find them."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.loop = Loop()
        for number in range(options.count):
            folder = Path(options.folder).absolute() / str(number)
            board = Board(self.loop, folder, number, options)
            path = folder / "control"
            path.unlink(missing_ok=True)
            server = socket.socket(socket.AF_UNIX)
            server.bind(str(path))
            server.listen()
            self.loop.watch(server.fileno(), lambda server=server, board=board: self.accept(server, board))  # type: ignore[misc]

    def accept(self, server: socket.socket, board: Board) -> None:
        client, _ = server.accept()
        with client.makefile("rb") as lines:
            asked = json.loads(lines.readline())

        def answer(said: str) -> None:
            with contextlib.suppress(OSError):
                client.sendall(said.encode())
            client.close()

        board.ask(asked, answer)


def ask(port: str, **asked: Any) -> str:
    """Ask the board of a port for something, and return its answer."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(Path(port).parent / "control"))
        client.sendall(json.dumps(asked).encode() + b"\n")
        with client.makefile("r") as file:
            return file.read()


def operators_of(elf: Path) -> list[dict[str, str]]:
    """Return the operators of a project's firmware, as its mtool.json has them."""
    found = json.loads((elf.parents[1] / "mtool.json").read_text())["models"][0]["operators"]
    return [{key: one[key] for key in ("name", "schedule", "label")} for one in found]


def main() -> int:
    """Run boards, or ask one for something."""
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run")
    run.add_argument("folder")
    run.add_argument("--truth", default="")
    for name in ("quiet", "stay-dead", "start-dead"):
        run.add_argument(f"--{name}", action="store_true")
    for option, default in {
        "count": 1,
        "seed": 0,
        "factor": 1.0,
        "faults": 0.05,
        "base": 20_000.0,
        "step-after": -1,
    }.items():
        run.add_argument(f"--{option}", type=type(default), default=default)
    for name in ("flash", "power", "status"):
        commands.add_parser(name).add_argument("port")
    commands.choices["flash"].add_argument("elf")
    options = parser.parse_args()
    if options.command == "run":
        Desk(options).loop.run()
    elif options.command == "status":
        print(ask(options.port, do="status"))
        return 0
    more = {}
    if options.command == "flash":
        elf = Path(options.elf)
        more = {"elf": str(elf), "operators": operators_of(elf)}
    try:
        refused = ask(options.port, do=options.command, **more)
    except OSError as failed:
        refused = f"no board at {options.port}: {failed}"
    print(refused)
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
