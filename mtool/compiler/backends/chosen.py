"""The user's choice of backends: found by name or path, with the limits that every backend has."""

import importlib.util
import logging
import re
import types
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mtool.base import spelling
from mtool.base.errors import MtoolError, UsageError
from mtool.base.identifiers import is_keyword
from mtool.compiler.backends.interface import Backend, BackendError, Operation, Region
from mtool.compiler.backends.spec import COMMON, BackendSpec

GROUP = "mtool.backends"
"""The group of entry points by which installed packages offer backends."""
_SEE = "mtool check lists them"
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Chosen:
    """A backend, and the limits that the user set for it.

    skip, only: names of nodes of the model.
    most: the largest number of regions; None: all.
    inputs_only: its regions read only the model's inputs.
    """

    backend: Backend
    skip: frozenset[str] = frozenset()
    only: frozenset[str] = frozenset()
    most: int | None = None
    inputs_only: bool = False

    def skips(self, operation: Operation) -> str:
        """Return why the backend must not compute an operation; "": it may."""
        names = _names_of(operation)
        if names & self.skip:
            return "skip= names it"
        return "only= does not name it" if self.only and not names & self.only else ""

    def tell_unknown(self, operations: Sequence[Operation]) -> None:
        """Warn about names in skip= and only= that match no operation."""
        existing = {name for operation in operations for name in _names_of(operation)}
        for option, names in (("skip", self.skip), ("only", self.only)):
            for name in sorted(names - existing):
                hint = spelling.did_you_mean(name, sorted(existing))
                log.warning(
                    "%s: %s=%s matches no operator of the model; %s", self.backend.name, option, name, hint or _SEE
                )

    def limits(self, region: Region, count: int, inputs: Collection[str]) -> str:
        """Return why the backend does not get another region; "": it does.

        `inputs` are the model's, unless the region is inside a branch or loop.
        """
        if self.most is not None and count >= self.most:
            return f"regions={self.most} is reached by regions with more multiply-accumulates"
        if self.inputs_only and not {operand.value for operand in region.inputs} <= {*inputs}:
            return "it reads more than the model's inputs (inputs-only=yes)"
        return ""


def choose(specs: Sequence[BackendSpec]) -> list[Chosen]:
    """Return the requested backends, in order.

    Raises:
        UsageError: one is unknown, is given twice, or has no such option.
    """
    choices: list[Chosen] = []
    for spec in specs:
        choice = _chosen(spec)
        if any(choice.backend.name == other.backend.name for other in choices):
            raise UsageError(f"the backend {choice.backend.name} is given twice")
        choices.append(choice)
    return choices


def _chosen(spec: BackendSpec) -> Chosen:
    common = {key: value for key, value in spec.options.items() if key in COMMON}
    options = {key: value for key, value in spec.options.items() if key not in COMMON}
    most = common.get("regions")
    if most is not None and not (most.isascii() and most.isdigit() and len(most) < 9):
        raise UsageError(f"the backend {spec.where} has regions={most}; expected a number")
    alone = common.get("inputs-only", "no")
    if alone not in ("yes", "no"):
        raise UsageError(f"the backend {spec.where} has inputs-only={alone}; expected yes or no")
    skip, only = (_names(common.get(key, "")) for key in ("skip", "only"))
    return Chosen(_instance_of(spec, options), skip, only, None if most is None else int(most), alone == "yes")


def _instance_of(spec: BackendSpec, options: Mapping[str, str]) -> Backend:
    kind = _class_of(spec)
    try:
        return kind(options)
    except MtoolError:
        raise
    except (Exception, SystemExit) as failed:
        raise BackendError(
            f"the backend {spec.where} can't be created: {type(failed).__name__}: {failed}",
            details=[f"with the options {', '.join(f'{key}={value}' for key, value in options.items()) or 'none'}"],
        ) from failed


def _names_of(operation: Operation) -> set[str]:
    return {operation.name, *operation.origins, *(operand.tensor for operand in operation.outputs)}


def _names(text: str) -> frozenset[str]:
    return frozenset(name.strip() for name in text.split("|") if name.strip())


def available() -> dict[str, str]:
    """Return the available backends: `module:Class` by name."""
    built_in = {
        "cmsis_nn": "mtool.compiler.backends.cmsis_nn:CmsisNn",
        "ethos_u": "mtool.compiler.backends.ethos_u:EthosU",
        "json": "mtool.compiler.backends.json:Json",
    }
    offered = {entry.name: entry.value for entry in importlib.metadata.entry_points(group=GROUP)}
    return {**offered, **built_in}


def _class_of(spec: BackendSpec) -> type[Backend]:
    if spec.is_file:
        return _from_file(spec)
    places = available()
    if spec.where not in places:
        message = f"unknown backend {spec.where}"
        hint = "for your own backend, give its file: --backend ./my_backend.py:MyNpu"
        raise UsageError(message, details=[f"available: {', '.join(sorted(places))}"], hint=hint)
    module, _, name = places[spec.where].partition(":")
    with _loading(f"the backend {spec.where}"):
        backend = getattr(importlib.import_module(module), name)
    return _checked(backend, spec.where)


@contextmanager
def _loading(subject: str) -> Iterator[None]:
    """Turn exceptions from a backend's module into a UsageError while it is loaded."""
    try:
        yield
    except (Exception, SystemExit) as failed:
        raise UsageError(f"{subject} can't be loaded", details=[f"{type(failed).__name__}: {failed}"]) from failed


class _Source(importlib.machinery.SourceFileLoader):
    """Always reads the source: cached bytecode of a file with the same time and size would be taken for it."""

    def get_code(self, fullname: str) -> types.CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


def _from_file(spec: BackendSpec) -> type[Backend]:
    path = Path(spec.where)
    if not path.is_file():
        raise UsageError(f"there is no file {path}", hint="give the path of the backend's Python file")
    name = f"mtool_backend_{path.stem}"
    module_spec = importlib.util.spec_from_file_location(name, path, loader=_Source(name, str(path)))
    assert module_spec is not None and module_spec.loader is not None
    module = importlib.util.module_from_spec(module_spec)
    with _loading(str(path)):
        module_spec.loader.exec_module(module)
    classes = [
        cls for cls in vars(module).values()
        if isinstance(cls, type) and issubclass(cls, Backend) and cls.__module__ == module.__name__
    ]  # fmt: skip
    if spec.attribute:
        return _checked(getattr(module, spec.attribute, None), f"{path}:{spec.attribute}")
    if len(classes) != 1:
        names = ", ".join(cls.__name__ for cls in classes) or "none"
        message = f"{path} does not define exactly one backend"
        raise UsageError(message, details=[f"found: {names}"], hint=f"choose one: {path}:CLASS")
    return _checked(classes[0], str(path))


def _checked(backend: object, where: str) -> type[Backend]:
    if not (isinstance(backend, type) and issubclass(backend, Backend)):
        raise UsageError(f"{where} is not a backend", details=["expected a class derived from mtool.Backend"])
    name: object = backend.name
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z]\w*", name, re.ASCII) or is_keyword(name):
        raise UsageError(f"the backend of {where} is named {backend.name!r}; expected a valid name in C")
    return backend
