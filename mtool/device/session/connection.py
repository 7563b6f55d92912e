"""The connection to a device: its channel, the open session, and the models that answer there."""

import base64
import functools
import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from mtool import boards
from mtool.base import plural
from mtool.base.errors import BoardError, CommunicationError, DeviceError, UsageError
from mtool.base.proc import Closing
from mtool.device.rpc import Client, Expected, Served, loading, protocol
from mtool.device.rpc.client import Owner
from mtool.device.rpc.loading import Place
from mtool.device.rpc.protocol import Status
from mtool.device.session import faults
from mtool.device.transport import Transport
from mtool.manifest import Manifest, Operator, Project, named
from mtool.manifest.link_key import LinkKey
from mtool.manifest.modules import format
from mtool.manifest.modules.format import Interface
from mtool.version import __version__


def reset(client: Client, manifest: Manifest) -> None:
    """Write the initial values to a model's states; `client` is the model's.

    Raises:
        DeviceError: the device refuses them.
    """
    for state in manifest.states:
        data = base64.b64decode(state.initial) or bytes(state.bytes)
        client.write_at(protocol.ARENA, state.pool, state.arena_offset, data)


def takes_modules(project: Project) -> bool:
    """Return whether a project's firmware was built with `--modules`."""
    return project.options.get("modules", "none") != "none"


def require_modules(project: Project) -> None:
    """Refuse a module if the firmware does not support modules.

    Raises:
        UsageError: it does not support them.
    """
    if not takes_modules(project):
        raise no_modules()


def no_modules() -> UsageError:
    """Return the error for firmware that does not support modules."""
    hint = "build it with --modules --module-key FILE.pub, and flash it again"
    return UsageError("the firmware does not support modules", hint=hint)


def of_flash(error: DeviceError, flash: Path | None) -> DeviceError:
    """Return the error of a failed load; if an emulator could not write its flash file, it names the file."""
    if flash is None or Status.MT_IO.name not in str(error):
        return error
    return DeviceError(
        f"the emulator could not write its flash file {flash}",
        details=[error.what],
        hint="check that the disk is not full and that the file is writable",
    )


def interfaces(client: Client) -> Mapping[int, Interface]:
    """Return the interfaces of a device's modules, by the models' numbers.

    Raises:
        CommunicationError: a module's description is malformed.
    """
    numbers = [model.index for model in loading.models(client) if model.place != Place.FIRMWARE]
    return {number: format.read(functools.partial(loading.fetch, client, number)) for number in numbers}


def manifest_of(module: Interface, project: Project) -> Manifest:
    """Return the manifest of the module's model, as far as it is known without its file."""
    description = module.description
    operators = tuple(
        Operator(
            index=index, name=operator.name, label=operator.label, schedule=operator.schedule, macs=operator.macs,
            function="", origins=(), shape="",
        )
        for index, operator in enumerate(description.operators)
    )  # fmt: skip
    return Manifest(
        mtool_version=__version__,
        model=module.name,
        model_file=description.model_file,
        model_hash=module.model_hash,
        io="arena",
        inputs=description.inputs,
        outputs=description.outputs,
        macs=sum(operator.macs for operator in operators),
        parameters=0,
        arena_bytes=module.arena_bytes,
        arena_bound_bytes=0,
        constant_bytes=module.constant_bytes,
        constants=(),
        symbols={},
        operators=operators,
        states=description.states,
        project=project,
    )


log = logging.getLogger(__name__)
_REOPEN_S = 0.2  # between two attempts to find a missing port
_EMULATED_S = 20e6 * 1e-9  # an emulated instruction is a nanosecond of the machine's time


class Connection(Closing):
    """A connection to a device, with one session after the other.

    Args:
        manifest: of a model of the firmware, with its `project`.
        transport: the channel to the firmware; closed with the connection.
        timeout_s: how long the firmware may take to start and to answer.
        stream_s: how long it may compute when it receives rows of an input.
        serial_number: the USB serial number of the board or its probe; "": it has none.
        reopen: starts the firmware or opens its port again, for `reconnect`.
        take_over: open the session even if a host on another computer has one open.
        key: the device's link key; None: its firmware has none.
        firmware: the file that the device runs, to locate faults in it; None: it is not here.

    Raises:
        CommunicationError: nothing answers, or other firmware does; the transport is then closed.

    Attributes:
        owner: the process that opened it, whose threads take turns.
        project: the project of the firmware.
        identity: the device's identity: the board's name and its serial number.
        transport: the channel to the firmware.
        session: the session's own client, whose requests are for no model, or for the firmware's first one.
        models: the manifests of the device's models: the firmware's own and those of modules, which hide
            firmware models of the same name. Look them up here each time, by name, as the list and the numbers may
            change.
        granularity_ns: the smallest step of the device's timer.
    """

    def __init__(
        self,
        manifest: Manifest,
        transport: Transport,
        *,
        timeout_s: float,
        stream_s: float,
        serial_number: str = "",
        reopen: Callable[[], Transport] | None = None,
        take_over: bool = False,
        key: LinkKey | None = None,
        firmware: Path | None = None,
    ) -> None:
        self.owner = Owner()
        self.project = manifest.in_project
        self.identity = f"{self.project.board.name} {serial_number}".strip()
        self.transport = transport
        shared = {"project": manifest.in_project, "firmware": manifest.firmware}
        self._own_models = tuple(model.model_copy(update=shared) for model in manifest.models)
        self.models = self._own_models
        self._timeout_s = timeout_s
        self._reopen = reopen
        self._firmware = firmware
        self._key = key
        self._open_session(stream_s=stream_s, take_over=take_over)

    def _open_session(self, *, stream_s: float, take_over: bool) -> None:
        start = time.monotonic()
        first = self._own_models[0]  # the firmware answers with its name and hash
        board = self.project.board
        entry = board.name if "uart" in board.ports and board.name not in boards.shipped() else ""
        try:
            self.session = Client(
                self.transport,
                expected=Expected(first.model, first.model_hash, self.project.build_hash, entry),
                timeout_s=self._timeout_s,
                model=self._served(0, first),
                key=self._key,
                device_s=_EMULATED_S if self.unit == "instructions" else 1.0,
                take_over=take_over,
                stream_s=stream_s,
                owner=self.owner,
            )
            self.find_models()
            self.granularity_ns = self.session.info().granularity_ns
            for model in self.models:
                reset(self.client_of(model.model), model)
        except BaseException:
            self.transport.close()
            raise
        names = ", ".join(model.model for model in self.models)
        log.info("open: %.2f s, %s runs %s", time.monotonic() - start, self.transport.name, names)

    def find_models(self) -> None:
        """Ask the device for its models if it supports modules, as they may have changed.

        Raises:
            CommunicationError: it stopped answering, or its answer is malformed.
        """
        numbered = dict(enumerate(self._own_models))
        if takes_modules(self.project):
            models = interfaces(self.session)
            numbered |= {number: manifest_of(model, self.project) for number, model in models.items()}
        self._numbers = {manifest.model: number for number, manifest in numbered.items()}
        self.models = tuple(numbered[number] for number in self._numbers.values())
        self._clients = {0: self.session}

    def manifest_of(self, model: str = "") -> Manifest:
        """Return a model's manifest by the model's name; "": the only model.

        Raises:
            UsageError: the device has no such model, or several and none was named; the message lists them.
        """
        if model or len(self.models) == 1:
            return named(self.models, model) if model else self.models[0]
        names = [model.model for model in self.models]
        raise UsageError(
            f"the firmware has {plural.count(len(names), 'model')}: {', '.join(names)}",
            hint=f'choose one: device["{names[0]}"]',
        )

    def client_of(self, model: str = "") -> Client:
        """Return the session's client for a model, by the model's name; "": the only model.

        Raises:
            UsageError: the device has no such model.
        """
        if not model and len(self.models) > 1:
            return self.session
        manifest = self.manifest_of(model)
        number = self._numbers[manifest.model]
        if number not in self._clients:
            self._clients[number] = self.session.of_model(self._served(number, manifest))
        return self._clients[number]

    def _served(self, number: int, model: Manifest) -> Served:
        return Served(
            number,
            on_fault=functools.partial(faults.explain, manifest=model, firmware=self._firmware),
            on_stopped=functools.partial(reset, manifest=model),
            region_of=functools.partial(faults.region_of, manifest=model),
            stream=model.stream_input,
        )

    def reconnect(self, *, stream_s: float) -> None:
        """Open a new session, as `Device.reconnect` does.

        Raises:
            UsageError: the channel was opened by the caller and can't be opened again.
            CommunicationError: nothing answers, or another firmware.
            BoardError: the board is no longer attached.
        """
        if self._reopen is None:
            raise UsageError(
                "this device can't be reopened", hint="open it with mtool.open, or mtool.device.session.open"
            )
        self.close()
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                self.transport = self._reopen()
                break
            except (BoardError, CommunicationError):
                if time.monotonic() > deadline:
                    raise
                time.sleep(_REOPEN_S)
        self._open_session(stream_s=stream_s, take_over=False)

    def close(self) -> None:
        """End the session and release the channel. May be called again; in a fork, both stay open."""
        if self.owner.is_here:
            self.session.close()
            self.transport.close()

    @property
    def unit(self) -> str:
        """The unit of the device's timer: "ns", or "instructions"."""
        timer = self.project.board.timer
        return "ns" if timer is None or self.project.is_own else str(timer.unit)
