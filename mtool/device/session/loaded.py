"""The models that came to a device as modules: their manifests, from what the modules say of themselves."""

from collections.abc import Mapping
from typing import Final

from mtool.base.errors import UsageError
from mtool.device.rpc import Client, loading
from mtool.device.rpc.loading import Place
from mtool.manifest import Manifest, Operator, Project
from mtool.manifest.modules import interface
from mtool.manifest.modules.interface import Interface
from mtool.version import __version__

_OPTION: Final = "modules"
_NONE: Final = "none"


def takes_modules(project: Project) -> bool:
    """Whether the firmware of a project was built with `--modules`."""
    return project.options.get(_OPTION, _NONE) != _NONE


def require_modules(project: Project) -> None:
    """Refuse a module for a firmware that takes none.

    Raises:
        UsageError: it takes none.
    """
    if not takes_modules(project):
        raise UsageError(
            "the firmware takes no modules", hint="build it with --modules --module-key FILE.pub, and flash it again"
        )


def interfaces(client: Client) -> Mapping[int, Interface]:
    """Return what a device's modules say of themselves, by the models' numbers.

    Raises:
        CommunicationError: what the device says of one is malformed.
    """
    found = {}
    for one in loading.models(client):
        if one.place != Place.FIRMWARE:

            def fetch(offset: int, count: int, index: int = one.index) -> bytes:
                return loading.fetch(client, index, offset, count)

            found[one.index] = interface.read(fetch)
    return found


def manifest_of(module: Interface, project: Project) -> Manifest:
    """Return the manifest of a module's model: what can be known without its file."""
    described = module.description
    operators = tuple(
        Operator(
            index=index,
            name=one.name,
            function="",
            label=one.label,
            schedule=one.schedule,
            origins=(),
            shape="",
            macs=one.macs,
        )
        for index, one in enumerate(described.operators)
    )
    return Manifest(
        mtool_version=__version__,
        model=module.name,
        model_file=described.model_file,
        model_hash=module.model_hash,
        io="arena",
        inputs=described.inputs,
        outputs=described.outputs,
        macs=sum(one.macs for one in operators),
        parameters=0,
        arena_bytes=module.arena_bytes,
        arena_bound_bytes=0,
        constant_bytes=module.constant_bytes,
        constants=(),
        symbols={},
        operators=operators,
        states=described.states,
        project=project,
    )
