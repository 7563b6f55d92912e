"""A worker: declares the boards that it holds to a Dask scheduler, and begins again when that has ended."""

import asyncio
import contextlib
import logging
import os
import platform
import signal
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mtool import boards
from mtool.base import locks
from mtool.base.errors import BoardError, UsageError
from mtool.boards import Board
from mtool.device.flash import ports
from mtool.stages.deployment import Deployment
from mtool.tuning.farm import security
from mtool.tuning.farm.messages import ANY, BUILD, PLENTY, resource
from mtool.tuning.farm.security import DASKS, Tls
from mtool.tuning.farm.worker_boards import HANG_S, Held, Opener, WorkerBoards

log = logging.getLogger(__name__)


def hold_board(board: Board, deployment: Deployment, number: int) -> tuple[Held, tuple[str, ...]]:
    """Return a board for a board farm, and its devices, which are to be locked while the farm has it.

    One that was named and is not there now is told: it is asked when it is there.

    Args:
        board: the board.
        deployment: how it is found.
        number: of the board on this computer, by which an emulator is called.

    Raises:
        BoardError: nothing was named, and not exactly one is attached.
    """
    name = deployment.probe or deployment.port
    place = Opener(board, deployment).site(Path())
    devices: tuple[str, ...] = ()
    if place.is_attached:
        try:
            found = ports.require(board, ports.Wanted(deployment.port, deployment.probe))
            devices = (found.lock, f"at {found.port}")
            name = name or found.probe or found.port
            deployment = replace(deployment, port=deployment.port or ("" if found.probe else found.port))
        except BoardError as missing:
            if not name:
                raise
            log.warning("%s %s is not there yet: %s", board.name, name, missing.what)
            devices = (ports.Attached(deployment.port, "", deployment.probe, "").lock,)
    label = f"{board.name} {name or f'{number}'} at {platform.node()}"
    return Held(board.name, label, Opener(board, deployment)), devices


def check_tool(board: Board, deployment: Deployment) -> None:
    """Check that something here can flash a board with a firmware file.

    Raises:
        FlashError: nothing can, or the tool is missing.
    """
    place = Opener(board, deployment).site(Path())
    if place.is_attached:
        place.runner(next(iter(board.templates), "")).probe_version()


_LONGEST_PAUSE_S = 10.0
_CONNECT_S = 10.0


@dataclass(frozen=True, slots=True)
class Service:
    """What a worker offers, and to whom.

    Attributes:
        address: the scheduler's.
        boards: the ones that it has.
        builds: how many firmwares it compiles at once.
        tls: its certificates.
        name: of the worker in the cluster; "": the computer's, and the number of this process.
        host: the address it listens on; "": that of the interface that reaches the scheduler.
        insecure: it may listen beyond loopback without TLS.
    """

    address: str
    boards: WorkerBoards
    builds: int = 0
    tls: Tls = DASKS
    name: str = ""
    host: str = ""
    insecure: bool = False


def work(
    scheduler: str,
    held: Sequence[tuple[str, Deployment]] = (),
    *,
    builds: int = 0,
    tls: Tls = DASKS,
    name: str = "",
    hang_s: float = HANG_S,
    host: str = "",
    insecure: bool = False,
) -> None:
    """Let others tune on this computer's boards, until SIGTERM or Ctrl-C. A worker runs what its scheduler sends.

    Args:
        scheduler: the Dask scheduler's address, HOST:PORT.
        held: the boards, each with how it is found, flashed, and its power cycled.
        builds: how many firmwares to compile at a time.
        tls: certificates; default: what Dask's configuration says.
        name: of the worker; default: the computer's, and the number of this process.
        hang_s: a board that says nothing for so long hangs.
        host: the address to listen on; default: that of the interface that reaches the scheduler, loopback for a
            local one.
        insecure: listen beyond loopback without TLS.

    Raises:
        UsageError: dask.distributed is missing, the address or a certificate is wrong, a board is named twice, or
            it would listen beyond loopback without TLS.
        BoardError: a board is unknown, or in use, or was not named and is not the only one.
        FlashError: nothing on this computer can flash a board with the firmware files that it would be sent.
    """
    security.require()
    found = [hold_board(boards.get(board), how, number) for number, (board, how) in enumerate(held)]
    devices = [device for _, own in found for device in own]
    twice = [device for device, count in Counter(devices).items() if count > 1]
    if twice:
        raise UsageError(f"{twice[0]} is the device of two boards")
    for board, how in held:
        check_tool(boards.get(board), how)
    with locks.locked(*devices):
        serve(Service(scheduler, WorkerBoards([one for one, _ in found], hang_s), builds, tls, name, host, insecure))


def serve(service: Service) -> None:
    """Work for a scheduler until SIGTERM or Ctrl-C; while it is away, wait for it.

    Raises:
        UsageError: dask.distributed is missing, the address or a certificate is wrong, or it would listen beyond
            loopback without TLS.
    """
    security.require()
    asyncio.run(_serve(service))


def resources(service: Service) -> dict[str, float]:
    """Return what a worker declares to the scheduler."""
    found: dict[str, float] = {ANY: PLENTY, **({BUILD: service.builds} if service.builds else {})}
    return found | {resource(board): count for board, count in service.boards.counts().items()}


async def _serve(service: Service) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup has SIGHUP
            loop.add_signal_handler(number, ended.set)
    address = security.address_of(service.address, service.tls)
    certificates = security.security_of(service.tls, address)
    if service.host:
        security.check_host(service.host)
    pause_s, is_told = 0.2, False
    with tempfile.TemporaryDirectory(prefix="mtool-worker-") as folder:
        while not ended.is_set():
            try:
                worker = _worker(service, address, certificates, folder)
                await asyncio.wait_for(worker, _CONNECT_S)
            except (OSError, ValueError, RuntimeError) as failed:  # ValueError: its name is still taken
                if not is_told:
                    log.warning("waiting for the scheduler: %s", "; ".join(security.refused(failed, address).lines()))
                is_told = True
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(ended.wait(), pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                continue
            log.info(
                "%s works for %s with %s; it listens on %s", worker.name, address, _offer_text(service), worker.address
            )
            pause_s, is_told = 0.2, False
            finished = asyncio.ensure_future(worker.finished())
            stop = asyncio.ensure_future(ended.wait())
            await asyncio.wait([finished, stop], return_when=asyncio.FIRST_COMPLETED)
            stop.cancel()
            if ended.is_set():
                await worker.close(timeout=5, executor_wait=False)
                return
            log.warning("the scheduler at %s is gone", address)


def _worker(service: Service, address: str, certificates: Any, folder: str) -> Any:
    from distributed import Worker

    from mtool.tuning.farm.tasks import BoardsPlugin

    class WithoutPages(Worker):  # type: ignore[misc]
        """A worker that has no HTTP server: Dask's has no certificates, and shows all that the worker does."""

        def start_http_server(self, *_: Any, **__: Any) -> None:
            """Start none."""

    host = security.listening_host(address, service.host, service.insecure)
    return WithoutPages(
        address,
        nthreads=len(service.boards.boards) + service.builds + 1,
        name=service.name or f"{platform.node()}-{os.getpid()}",
        resources=resources(service),
        security=certificates,
        host=f"[{host}]" if ":" in host else host,
        memory_limit=0,  # all that it keeps is firmware: it is not to pause because others fill the memory
        local_directory=folder,
        plugins=(BoardsPlugin(service.boards, lambda: resources(service)),),
    )


def _offer_text(service: Service) -> str:
    boards = [f"{count} {board}" for board, count in service.boards.counts().items()]
    return ", ".join([*boards, *([f"{service.builds} at a time to compile"] if service.builds else [])]) or "nothing"
