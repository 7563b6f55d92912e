"""A worker: declares its boards to a Dask scheduler, and connects again after the scheduler has ended."""

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
from mtool.base import locks, plural
from mtool.base.errors import BoardError, UsageError
from mtool.boards import Board
from mtool.device.flash import ports
from mtool.stages.deployment import Deployment
from mtool.tuning.farm import security
from mtool.tuning.farm.messages import ANY, BUILD, PLENTY, resource
from mtool.tuning.farm.security import DASKS, Tls
from mtool.tuning.farm.worker_boards import HANG_S, HeldBoard, Opener, WorkerBoards

log = logging.getLogger(__name__)


def hold_board(board: Board, deployment: Deployment, number: int) -> tuple[HeldBoard, tuple[str, ...]]:
    """Return a board for a board farm, and its devices, which are to be locked while the farm uses it.

    If a board with a port or probe is not attached yet, that is only a warning.

    Args:
        board: the board.
        deployment: its port, probe and power command.
        number: the board's number on this computer, which identifies an emulator.

    Raises:
        BoardError: there is no port or probe, and not exactly one matching board is attached.
    """
    name = deployment.probe or deployment.port
    place = Opener(board, deployment).site(Path())
    devices: tuple[str, ...] = ()
    if place.is_attached:
        try:
            device = ports.require(board, ports.DeviceSelector(deployment.port, deployment.probe))
            devices = (device.lock, f"at {device.port}")
            name = name or device.probe or device.port
            deployment = replace(deployment, port=deployment.port or ("" if device.probe else device.port))
        except BoardError as missing:
            if not name:
                raise
            log.warning("%s %s is not attached yet: %s", board.name, name, missing.what)
            devices = (ports.Attached(deployment.port, "", deployment.probe, "").lock,)
    label = f"{board.name} {name or f'{number}'} at {platform.node()}"
    return HeldBoard(board.name, label, Opener(board, deployment)), devices


def check_tool(board: Board, deployment: Deployment) -> None:
    """Check that a tool on this computer can flash a board with a firmware file.

    Raises:
        FlashError: there is none, or it is not installed.
    """
    place = Opener(board, deployment).site(Path())
    if place.is_attached:
        place.runner(next(iter(board.templates), "")).probe_version()


_LONGEST_PAUSE_S = 10.0
_CONNECT_S = 10.0


@dataclass(frozen=True, slots=True)
class Service:
    """A worker's configuration.

    Attributes:
        address: the scheduler's address.
        boards: the worker's boards.
        builds: the number of firmwares that it compiles at a time.
        tls: its certificates.
        name: its name in the cluster; "": the computer's name and the process id.
        host: the address that it listens on; "": that of the interface that reaches the scheduler.
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
    """Let others tune on this computer's boards until SIGTERM or Ctrl-C. A worker runs whatever its scheduler sends.

    Args:
        scheduler: the Dask scheduler's address, HOST:PORT.
        held: the boards, each with its port, probe, and flash and power commands.
        builds: the number of firmwares to compile at a time.
        tls: certificates; default: those in Dask's configuration.
        name: the worker's name; default: the computer's name and the process id.
        hang_s: a board that is silent for this long is considered hung.
        host: the address to listen on; default: that of the interface that reaches the scheduler, loopback for a
            local one.
        insecure: listen beyond loopback without TLS.

    Raises:
        UsageError: dask.distributed is missing, the address or a certificate is wrong, a board is listed twice, or
            it would listen beyond loopback without TLS.
        BoardError: a board is unknown or in use, or several match.
        FlashError: no tool on this computer can flash a board with firmware files.
    """
    security.require()
    ready = [hold_board(boards.get(board), how, number) for number, (board, how) in enumerate(held)]
    devices = [device for _, names in ready for device in names]
    twice = [device for device, count in Counter(devices).items() if count > 1]
    if twice:
        raise UsageError(f"{twice[0]} is used for two boards", hint="give each board its own --port or --probe")
    for board, how in held:
        check_tool(boards.get(board), how)
    with locks.locked(*devices):
        serve(Service(scheduler, WorkerBoards([name for name, _ in ready], hang_s), builds, tls, name, host, insecure))


def serve(service: Service) -> None:
    """Work for a scheduler until SIGTERM or Ctrl-C; while it is unreachable, wait for it.

    Raises:
        UsageError: dask.distributed is missing, the address or a certificate is wrong, or it would listen beyond
            loopback without TLS.
    """
    security.require()
    asyncio.run(_serve(service))


def resources(service: Service) -> dict[str, float]:
    """Return the resources that a worker declares to the scheduler."""
    result: dict[str, float] = {ANY: PLENTY, **({BUILD: service.builds} if service.builds else {})}
    return result | {resource(board): count for board, count in service.boards.counts().items()}


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
    pause_s, is_reported = 0.2, False
    with tempfile.TemporaryDirectory(prefix="mtool-worker-") as folder:
        while not ended.is_set():
            try:
                worker = _worker(service, address, certificates, folder)
                await asyncio.wait_for(worker, _CONNECT_S)
            except (OSError, ValueError, RuntimeError) as failed:  # ValueError: its name is still taken
                if not is_reported:
                    log.warning("waiting for the scheduler: %s", "; ".join(security.refused(failed, address).lines()))
                is_reported = True
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(ended.wait(), pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                continue
            log.info(
                "%s works for %s with %s, listening on %s", worker.name, address, _offer_text(service), worker.address
            )
            pause_s, is_reported = 0.2, False
            finished = asyncio.ensure_future(worker.finished())
            stop = asyncio.ensure_future(ended.wait())
            await asyncio.wait([finished, stop], return_when=asyncio.FIRST_COMPLETED)
            stop.cancel()
            if ended.is_set():
                await worker.close(timeout=5, executor_wait=False)
                return
            log.warning("lost the scheduler at %s", address)


def _worker(service: Service, address: str, certificates: Any, folder: str) -> Any:
    from distributed import Worker

    from mtool.tuning.farm.tasks import BoardsPlugin

    class WithoutPages(Worker):  # type: ignore[misc]
        """A worker without an HTTP server: Dask's has no certificates, and shows everything that the worker does."""

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
        memory_limit=0,  # it only keeps firmware, and should not pause because others fill the memory
        local_directory=folder,
        plugins=(BoardsPlugin(service.boards, lambda: resources(service)),),
    )


def _offer_text(service: Service) -> str:
    boards = [f"{count} {board}" for board, count in service.boards.counts().items()]
    builds = [f"{plural.count(service.builds, 'build')} at a time"] if service.builds else []
    return ", ".join([*boards, *builds]) or "nothing"
