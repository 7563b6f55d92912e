"""The Python interface, as `mtool.cli` is the command line: checks arguments, and words errors for Python code."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from mtool import boards, commands
from mtool.base import checked
from mtool.boards import Board

P = ParamSpec("P")
R = TypeVar("R")


class _Names(dict[str, Any]):
    """The names that annotations may use, each loaded when it is first used."""

    def __missing__(self, name: str) -> Any:
        if name == "Module":
            from mtool.manifest.modules import format

            return format.Module
        if name not in commands.__all__:
            raise KeyError(name)
        return getattr(commands, name)


def front(function: Callable[P, R]) -> Callable[P, R]:
    """Return a workflow for Python callers: with checked arguments and errors in Python's terms."""
    return checked.arguments(function, {"boards": _boards, "kinds": _kinds, "since": _module}, _Names())


def _boards(names: Sequence[str]) -> Sequence[Board] | None:
    return None if list(names) == ["all"] else [boards.get(name) for name in names]


def _kinds(texts: Sequence[str]) -> Sequence[str]:
    from mtool.stages.building import FirmwareKind

    return [checked.value_of("kinds", text, FirmwareKind) for text in texts]


def _module(texts: Sequence[str]) -> Any:
    return commands.read_module(Path(texts[0]))[0]
