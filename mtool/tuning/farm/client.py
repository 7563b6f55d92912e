"""A search's connection to a board farm's scheduler: firmware and slices go out, answers come back.

A search survives a restart of the scheduler: the client reconnects, and reports the slices in progress as lost, so that
the search can submit them again. The client chooses the worker of each slice, so that one lost on a worker goes to
another.
"""

import contextlib
import itertools
import logging
import queue
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mtool.base.errors import CommunicationError, MtoolError
from mtool.compiler.tuned.record import Unit, new_id
from mtool.stages.compiling import CompiledModel
from mtool.tuning.farm import security
from mtool.tuning.farm.messages import ANY, BUILD, Answer, Bundle, SliceEnd, board_of, resource
from mtool.tuning.farm.security import DASKS, Tls
from mtool.tuning.measuring import Slice, WholeRun

# Events of a board farm.


@dataclass(frozen=True, slots=True)
class Built:
    """A firmware has been built."""

    firmware: str
    toolchain: str


@dataclass(frozen=True, slots=True)
class Refused:
    """A firmware can't be built, or its task has failed in another way."""

    firmware: str
    error: BaseException


@dataclass(frozen=True, slots=True)
class Ended:
    """A slice has ended on a worker; without an `end` it was lost, for `reason`: the worker or scheduler is gone."""

    ident: str
    worker: str
    end: SliceEnd | None
    reason: str = ""
    run: WholeRun | None = None


log = logging.getLogger(__name__)
PATIENCE_S = 300.0
"""How long to wait for a scheduler, or for a worker with the board, before giving up."""
SILENT_S = 900.0
"""If a slice in progress is silent for this long, its worker is considered lost."""
_CONNECT_S = 5.0
_FIRST_S = 15.0  # for a scheduler that has just been started
_REFRESH_S = 1.0
_RESULT_S = 60.0


@dataclass(slots=True)
class _Firmware:
    payload: Bundle | CompiledModel
    future: Any = None
    epoch: int = 0
    is_built: bool = False


@dataclass(slots=True)
class _Submitted:
    future: Any
    worker: str
    heard: float | None = None  # time of the last sign of life; None before it begins


class Farm:
    """A connection to a board farm, used by one thread.

    Args:
        address: the scheduler's address.
        board: the name of the boards to use.
        tls: certificates.
        patience_s: how long to wait for a scheduler.
        silent_s: how long a slice may be silent.
    """

    def __init__(
        self, address: str, board: str, tls: Tls = DASKS, patience_s: float = PATIENCE_S, silent_s: float = SILENT_S
    ) -> None:
        security.require()
        self.address, self.board = security.address_of(address, tls), board
        self.patience_s, self.silent_s = patience_s, silent_s
        self.topic = f"mtool-{new_id()}"
        self.builders = 0
        self.offered: Counter[str] = Counter()
        self._security = security.security_of(tls, self.address)
        self._events: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
        self._client: Any = None
        self._epoch = 0
        self._refreshed = 0.0
        self._firmwares: dict[str, _Firmware] = {}
        self._submitted: dict[str, _Submitted] = {}
        self._workers: dict[str, int] = {}  # how many boards each has
        self._numbers = itertools.count()
        self._connect(_FIRST_S)

    def __enter__(self) -> "Farm":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Cancel everything in progress; boards stop measuring."""
        self._epoch += 1
        with contextlib.suppress(Exception):
            self._client.close(timeout=_CONNECT_S)

    @property
    def boards(self) -> int:
        """The number of boards, busy or not."""
        return sum(self._workers.values())

    @property
    def free(self) -> int:
        """The number of boards without a slice from this client."""
        busy = self._busy()
        return sum(max(0, count - busy[address]) for address, count in self._workers.items())

    def _busy(self) -> Counter[str]:
        """Return the number of slices on each worker."""
        return Counter(submitted.worker for submitted in self._submitted.values())

    def post(self, event: object) -> None:
        """Add an event to those that `wait` returns; may be called by another thread."""
        self._events.put((-1, event))

    def add(self, ident: str, payload: Bundle | CompiledModel) -> None:
        """Send a firmware, or a project for a worker to build; `Built` or `Refused` follows."""
        self._firmwares[ident] = _Firmware(payload)
        self._send(ident)

    def release(self, ident: str) -> None:
        """Forget a firmware."""
        self._firmwares.pop(ident, None)

    def submit(self, slice_: Slice, firmware: str, avoid: frozenset[str] = frozenset()) -> None:
        """Submit a slice to a worker, if possible to one that is not in `avoid`.

        `free` must be more than 0.
        """
        from mtool.tuning.farm import tasks

        busy, boards = self._busy(), self._workers
        free = [name for name, count in boards.items() if count > busy[name]]
        address = min(free, key=lambda name: (name in avoid, busy[name] / boards[name]))
        self._ask(slice_.ident, address, tasks.measure, self._future(firmware), slice_)

    def run(self, bundle: Bundle, unit: Unit, where: tuple[str, str]) -> Ended:
        """Run a whole model on a board, and return the outcome.

        Args:
            bundle: the model's firmware.
            unit: the unit of the times.
            where: the worker and the board's label; both empty: any.
        """
        from mtool.tuning.farm import tasks

        self._refresh()
        address, label = where
        if not address:
            workers = [name for name, count in self._workers.items() if count]
            if not workers:
                return Ended("", "", None, f"no {self.board} is available")
            address = min(workers, key=self._busy().__getitem__)
        elif address not in self._workers:
            return Ended("", address, None, f"{label} is gone")
        ident, firmware = new_id(), new_id()
        self._firmwares[firmware] = _Firmware(bundle, is_built=True)
        self._ask(ident, address, tasks.run, self._future(firmware), self.board, label, unit)
        try:
            while True:
                for event in self.wait(_REFRESH_S):
                    if isinstance(event, Refused):
                        raise event.error
                    if isinstance(event, Ended) and event.ident == ident:
                        return event
        finally:
            self.release(firmware)

    def wait(self, timeout_s: float) -> list[Any]:
        """Wait for events up to the timeout, and return them.

        Raises:
            CommunicationError: the scheduler is gone and does not come back.
        """
        events: list[Any] = []
        with contextlib.suppress(queue.Empty):
            event = self._events.get(timeout=timeout_s)
            while True:
                events += self._read(*event)
                event = self._events.get_nowait()
        if self._client.status != "running":
            return events + self._reconnect()
        if time.monotonic() - self._refreshed > _REFRESH_S:
            events += self._refresh()
        return events

    def _read(self, epoch: int, event: Any) -> list[Any]:
        if epoch < 0:
            return [event]
        if epoch != self._epoch:
            return []
        kind, ident, detail = event
        submitted, firmware = self._submitted.get(ident), self._firmwares.get(ident)
        if kind == "heard":
            if submitted is not None:
                submitted.heard = time.monotonic()
            return [] if detail is None else [Answer.of_message(detail)]
        if kind == "built" and (firmware is None or firmware.is_built):
            return []
        if kind == "ended" and (submitted is None or submitted.future is not detail):
            return []
        ended = _ended(detail)
        if ended is None:
            return self._reconnect()
        result, error = ended
        if firmware is not None and kind == "built":
            firmware.is_built = error is None
            if error is not None and _is_of_the_cluster(error):
                self._send(ident)
                return []
            return [Built(ident, result) if error is None else Refused(ident, error)]
        worker = self._submitted.pop(ident).worker
        if error is None:
            run, end = result if isinstance(result, tuple) else (None, result)
            return [Ended(ident, worker, end, run=run)]
        if _is_of_the_cluster(error):
            return [Ended(ident, worker, None, f"{type(error).__name__}: {error}")]
        return [Refused("", error)]

    def _ask(self, ident: str, address: str, function: Callable[..., Any], *arguments: Any) -> None:
        future = self._client.submit(
            function,
            *arguments,
            key=f"mtool-{function.__name__}-{ident}-{self._epoch}",
            workers=[address],
            resources={resource(self.board): 1},
            pure=False,
        )
        self._submitted[ident] = _Submitted(future, address)
        self._tell_when_done("ended", ident, future)

    def _send(self, ident: str) -> None:
        from mtool.tuning.farm import tasks

        firmware = self._firmwares[ident]
        firmware.future = None
        about = self._client.submit(
            tasks.compiler_of,
            self._future(ident),
            key=f"mtool-compiler-{ident}-{next(self._numbers)}",
            resources={ANY: 1},
        )
        self._tell_when_done("built", ident, about)

    def _future(self, ident: str) -> Any:
        """Return the future of a firmware; after a reconnection it is sent again."""
        from mtool.tuning.farm import tasks

        firmware = self._firmwares[ident]
        if firmware.future is None or firmware.epoch != self._epoch:
            is_built = isinstance(firmware.payload, Bundle)
            firmware.future = self._client.submit(
                tasks.hold if is_built else tasks.build,
                firmware.payload,
                key=f"mtool-firmware-{ident}-{next(self._numbers)}",
                resources={ANY if is_built else BUILD: 1},
            )
            firmware.epoch = self._epoch
        return firmware.future

    def _tell_when_done(self, kind: str, ident: str, future: Any) -> None:
        epoch = self._epoch
        future.add_done_callback(lambda done: self._events.put((epoch, (kind, ident, done))))

    def _connect(self, patience_s: float) -> None:
        from distributed import Client

        deadline = time.monotonic() + patience_s
        while True:
            try:
                self._client = Client(
                    self.address, security=self._security, timeout=_CONNECT_S, set_as_default=False, name="mtool"
                )
                break
            except (OSError, TimeoutError, ValueError, RuntimeError) as failed:
                if time.monotonic() >= deadline:
                    raise security.refused(failed, self.address) from None
                time.sleep(0.5)
        epoch = self._epoch
        self._client.subscribe_topic(self.topic, lambda event: self._events.put((epoch, ("heard", *event[1]))))
        self._refresh()

    def _reconnect(self) -> list[Any]:
        """Connect again, and report all slices as lost; unfinished builds are started again."""
        log.warning("lost the scheduler at %s; waiting for it", self.address)
        self._epoch += 1
        again = "the scheduler was restarted"
        lost = [Ended(ident, submitted.worker, None, again) for ident, submitted in self._submitted.items()]
        self._submitted.clear()
        with contextlib.suppress(Exception):  # before there is a new one, which would share its thread
            self._client.close(timeout=1)
        self._connect(self.patience_s)
        for ident, firmware in self._firmwares.items():
            if not firmware.is_built:
                self._send(ident)
        return lost

    def _refresh(self) -> list[Any]:
        """Update the list of workers; slices whose worker is gone, or silent for too long, are lost."""
        try:
            # not scheduler_info(): a concurrent call may replace its result by one without the workers
            workers = self._client.sync(self._client.scheduler.identity, callback_timeout=_RESULT_S)["workers"]
        except (OSError, TimeoutError, RuntimeError, CommunicationError):
            return []  # the client's status will show it
        self._refreshed = now = time.monotonic()
        declared = {address: info["resources"] for address, info in workers.items()}
        self.offered = Counter()
        for offers in declared.values():
            self.offered.update({board: int(count) for name, count in offers.items() if (board := board_of(name))})
        self.builders = sum(int(offers.get(BUILD, 0)) for offers in declared.values())
        counts = {address: int(offers.get(resource(self.board), 0)) for address, offers in declared.items()}
        busy, self._workers, lost = self._busy(), counts, []
        for ident, submitted in self._submitted.items():
            worker, reason = submitted.worker, ""
            if worker not in counts:
                reason = f"the worker {worker} is gone"
            elif submitted.heard is None and busy[worker] > counts[worker]:
                busy[worker] -= 1  # the slice would wait for a board that is gone
                reason = f"the worker {worker} has lost a board"
            elif submitted.heard is not None and now - submitted.heard > self.silent_s:
                reason = f"the worker {worker} has been silent for {self.silent_s:.0f} s"
            if reason:
                lost.append(Ended(ident, worker, None, reason))
        for ended in lost:
            submitted = self._submitted.pop(ended.ident)
            with contextlib.suppress(Exception):
                submitted.future.cancel()
        return lost


def _ended(future: Any) -> tuple[Any, BaseException | None] | None:
    """Return a finished task's result or error; None: its worker or the scheduler is gone."""
    from distributed.client import FutureCancelledError

    try:
        if future.status == "finished":
            return future.result(timeout=_RESULT_S), None
        return (None, future.exception(timeout=_RESULT_S)) if future.status == "error" else None
    except (OSError, TimeoutError, FutureCancelledError, RuntimeError):
        return None


def _is_of_the_cluster(error: BaseException) -> bool:
    """Return whether a task failed because of a worker or a connection, not because of its own work."""
    from distributed import KilledWorker
    from distributed.client import FutureCancelledError

    return isinstance(error, KilledWorker | FutureCancelledError | OSError) and not isinstance(error, MtoolError)
