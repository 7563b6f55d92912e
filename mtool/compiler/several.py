"""The compile half for several models of one firmware: one arena, equal constants and functions stored once."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mtool.base.errors import ModelError, UsageError
from mtool.base.filetree import FileTree
from mtool.base.identifiers import firmware_name
from mtool.base.option_values import Arenas
from mtool.boards import Board
from mtool.compiler.codegen.firmware import firmware_files
from mtool.compiler.codegen.functions import Stored
from mtool.compiler.codegen.generation import Emitted
from mtool.compiler.codegen.protect import Place
from mtool.compiler.compilation import Planned, planned, unit_for
from mtool.compiler.plan.shared_arena import every_pause, interleave, share_arena
from mtool.compiler.request import Request
from mtool.manifest import Manifest

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CompiledModels:
    """The result of the compile half: the files of all models, and the manifest of each with the others beside it.

    `emitted` is what each was made of; `apart_bytes` are those of their arenas, if each had its own.
    """

    files: FileTree
    manifests: tuple[Manifest, ...]
    emitted: tuple[Emitted, ...]
    apart_bytes: int


def compile_models(sources: Sequence[tuple[Path, Request]], board: Board, arenas: Arenas = "shared") -> CompiledModels:
    """Compile models for one firmware.

    Args:
        sources: each model and how it is compiled.
        board: whose core and features choose the schedules.
        arenas: "shared": one arena, of the largest need; the models run one after another. "interleaved": one arena, in
            which each may run between two operators of those after it. "own": one for each; "caller": of each the
            caller's.

    Raises:
        UsageError: two models have the same name, or one that begins with the other's, or other calling conventions;
            or models are to interleave that do not run operator by operator, or to share an arena with one whose
            input is given by rows or that wants it in another section.
        MtoolError: as `mtool.compiler.compilation.compile_model`, for one of them.
    """
    if any(request.conventions.context for _, request in sources):
        arenas = "caller"
    sharing = arenas in ("shared", "interleaved")
    if sharing and any(request.pools for _, request in sources):
        raise UsageError(
            "models that share an arena have it in one memory, and --pool gives them several",
            hint="--arena own gives each model pools of its own",
        )
    models = _planned(sources, board, is_alone=not sharing)
    names = [one.plan.graph.name for one in models]
    _check_names(models)
    _check_conventions(models)
    firmware = firmware_name(names)
    apart_bytes = sum(one.plan.arena_bytes for one in models)
    plans = [one.plan for one in models]
    pauses: list[tuple[int, ...]] = [() for _ in models]
    unit = unit_for(board, models[0].request)
    if arenas in ("shared", "interleaved"):
        _check_sections(models)
    if arenas == "shared":
        _check_whole(models)
        plans = share_arena(plans, unit)
    elif arenas == "interleaved":
        _check_steps(models)
        _check_apart(models)
        plans, pauses = interleave(plans)
    else:
        pauses = [every_pause(plan) for plan in plans]
    models = [replace(one, plan=plan) for one, plan in zip(models, plans, strict=True)]
    stored = Stored()
    emitted = []
    for number, model in enumerate(models):
        section = model.request.arena_section
        shares = sharing and model.plan.arena_bytes > 0
        emitted.append(
            model.emit(Place.of(number, names, f"{firmware}_arena" if shares else "", section, unit), stored)
        )
    files = dict(firmware_files(firmware, emitted, pauses).files)
    for one, model in zip(emitted, models, strict=True):
        for name, data in one.files(model.request.weights).files.items():
            if files.setdefault(name, data) != data:
                raise UsageError(f"two of the models have a file {name}", hint="give one another name: --name")
    described = zip(emitted, pauses, strict=True)
    manifests = tuple(one.manifest.model_copy(update={"pauses": chosen}) for one, chosen in described)
    together = tuple(one.model_copy(update={"firmware": manifests}) for one in manifests)
    return CompiledModels(FileTree(files), together, tuple(emitted), apart_bytes)


def _planned(sources: Sequence[tuple[Path, Request]], board: Board, *, is_alone: bool) -> list[Planned]:
    """Plan each model, and tell what can't be compiled of all of them at once."""
    models: list[Planned] = []
    failed: list[ModelError] = []
    for path, request in sources:
        try:
            models.append(planned(path, board, request, is_alone=is_alone))
        except ModelError as error:
            failed.append(error)
    if len(failed) > 1:
        told = [line for error in failed for line in (error.what, *(f"  {detail}" for detail in error.details))]
        raise ModelError(f"{len(failed)} of {len(sources)} models can't be compiled", details=told, hint=failed[0].hint)
    if failed:
        raise failed[0]
    return models


def _check_conventions(models: Sequence[Planned]) -> None:
    """Refuse what the linker would (crt/include/mt_convention.h), in words."""
    first, *others = models
    for one in others:
        own, that = first.request.conventions, one.request.conventions
        if own.name != that.name:
            raise UsageError(
                "the models of a firmware have the same calling conventions",
                details=[
                    f"{each.plan.graph.name} has --interface-api {how.interface} --operators-api {how.operators}"
                    + " --arena caller" * how.context
                    for each, how in ((first, own), (one, that))
                ],
            )


def _check_sections(models: Sequence[Planned]) -> None:
    """Refuse two sections for one arena."""
    first, *others = models
    for one in others:
        if one.request.arena_section != first.request.arena_section:
            raise UsageError(
                "an arena that models share lies in one section",
                details=[
                    f"{each.plan.graph.name} has --arena-section {each.request.arena_section or 'of the runtime'}"
                    for each in (first, one)
                ],
                hint="--arena own gives each an arena of its own",
            )


def _check_whole(models: Sequence[Planned]) -> None:
    """Refuse an inference that lasts from its first row to its last in an arena that others use meanwhile."""
    streamed = [one.plan.graph.name for one in models if one.request.is_streamed]
    if streamed and len(models) > 1:
        raise UsageError(
            f"{streamed[0]} computes with rows as they arrive, and the other models would run over them in its arena",
            hint="--arena own",
        )


def _check_steps(models: Sequence[Planned]) -> None:
    for one in models:
        if one.request.conventions.interface != "step":
            raise UsageError(
                f"models interleave between operators, and {one.plan.graph.name} runs as a whole",
                details=[f"it has --interface-api {one.request.conventions.interface}"],
                hint="give --interface-api step too",
            )


def _check_apart(models: Sequence[Planned]) -> None:
    """Refuse models that lie among each other's tensors, each inside a fence."""
    if any(one.request.protect for one in models):
        raise UsageError(
            "--arena interleaved puts a model among the tensors of another that has paused, which no fence can part",
            hint="--arena own",
        )


def _check_names(models: Sequence[Planned]) -> None:
    """Refuse models whose symbols and macros could be the same.

    Raises:
        UsageError: two have the same name, or one that begins with the other's.
    """
    for number, one in enumerate(models):
        for other in models[:number]:
            first, second = sorted((one.plan.graph.name, other.plan.graph.name), key=len)
            if f"{second}_".startswith(f"{first}_"):
                same = "have the same name in C" if first == second else "have names in C that can make equal symbols"
                raise UsageError(
                    f"two models {same}: {', '.join(dict.fromkeys((first, second)))}",
                    details=[f"{other.path} is {other.plan.graph.name}", f"{one.path} is {one.plan.graph.name}"],
                    hint="name all of them, in their order: "
                    + " ".join(f"--name {_another(count, each)}" for count, each in enumerate(models)),
                )


def _another(number: int, model: Planned) -> str:
    return f"{chr(ord('a') + number % 26)}_{model.plan.graph.name}"
