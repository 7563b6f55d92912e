"""Which boards a model fits: measured where its firmware is built already, else estimated at the upper end."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mtool import boards as known
from mtool import project
from mtool.boards import Board
from mtool.build import firmware_of, measure
from mtool.build.fit import Need, needs_of
from mtool.compiler import Compiled, compile_for
from mtool.errors import MtoolError
from mtool.manifest import FILE_NAME, Manifest
from mtool.project.template import Template
from mtool.sizes.estimate import estimate
from mtool.workflow.stages import Model, Options


@dataclass(frozen=True, slots=True)
class Fit:
    """What a model's firmware needs of a board.

    Attributes:
        board: the board's name.
        needs: of each memory; none, where an operating system places things.
        flash: the memory with code or weights that is the fullest.
        ram: the memory with the arena, data or the stack that is the fullest.
        refused: what the board's compiler does not take, whatever the room.
        is_built: the figures are those of a firmware that is built; else some are estimated.
    """

    board: str
    needs: tuple[Need, ...] = ()
    flash: Need | None = None
    ram: Need | None = None
    refused: tuple[str, ...] = ()
    is_built: bool = False

    @property
    def fits(self) -> bool:
        """Whether a build will succeed, as far as memory goes."""
        return not self.refused and not any(need.missing_bytes for need in self.needs)

    def as_json(self) -> dict[str, Any]:
        """Return the figures by name."""
        return {
            "board": self.board,
            "fits": self.fits,
            "is_built": self.is_built,
            "flash_bytes": self.flash and self.flash.bytes,
            "flash_limit_bytes": self.flash and self.flash.limit_bytes,
            "ram_bytes": self.ram and self.ram.bytes,
            "ram_limit_bytes": self.ram and self.ram.limit_bytes,
            "memories": [
                {
                    "name": need.memory,
                    "bytes": need.bytes,
                    "limit_bytes": need.limit_bytes,
                    "parts": [
                        {"what": part.what, "bytes": part.bytes, "estimated": part.estimated} for part in need.parts
                    ],
                }
                for need in self.needs
            ],
            "refused": list(self.refused),
        }


@dataclass(frozen=True, slots=True)
class Fits:
    """What `mtool check` tells: the manifest for the first board, and the fit on each."""

    manifest: Manifest
    fits: tuple[Fit, ...]


def check(
    path: str | Path,
    boards: Sequence[Board] | None = None,
    options: Options | None = None,
    *,
    folder: Path | None = None,
) -> Fits:
    """Compile a model for each board, and tell what its firmware needs and whether it fits; builds nothing.

    Args:
        path: the ONNX or TFLite model.
        boards: the boards; default: all.
        options: how it would be compiled and which template would be used.
        folder: the project folder, of which a build that is up to date is measured; default: build/<model>-<board>.

    Raises:
        UsageError: the file is missing, or an option names nothing of the model or of the template.
        ModelError: the model is malformed or can't be compiled; every reason is listed.
    """
    chosen = options or Options()
    asked = list(known.load_all().values()) if boards is None else list(boards)
    manifests, fits = [], []
    for board, compiled in _compiled(Path(path), asked, chosen):
        manifests.append(compiled.manifest)
        fits.append(fit_of(Model(Path(path), board, chosen, compiled.files, compiled.manifest), folder=folder))
    return Fits(manifests[0], tuple(fits))


def _compiled(path: Path, boards: Sequence[Board], options: Options) -> Iterator[tuple[Board, Compiled]]:
    return compile_for(
        path,
        boards,
        options,
        io=options.io,
        partial=options.partial,
        conventions=options.conventions,
        schedules=options.schedules,
    )


def fit_of(model: Model, *, folder: Path | None = None) -> Fit:
    """Return what a compiled model needs of its board.

    Raises:
        UsageError: there is no such template, or it has no such option.
    """
    template = _template_of(model)
    if template is None or not model.board.memories:
        return Fit(model.board.name)
    board = model.board.placed_by(template.name)
    built = _of_build(model, folder or model.default_folder())
    if built is not None:
        return _fit(board, built, is_built=True)
    values = template.read_options(model.options.template_options)
    estimated = estimate(model.files, model.manifest, board, template, values)
    return _fit(board, estimated.needs, estimated.refused)


def _template_of(model: Model) -> Template | None:
    name = model.options.template or next(iter(model.board.templates), "")
    return project.load(name) if name else None


def _of_build(model: Model, folder: Path) -> tuple[Need, ...] | None:
    """Return the needs of the firmware that a folder holds, at most of its kinds; None: none, or it is stale."""
    if not (folder / FILE_NAME).is_file():
        return None
    try:
        tree = model.project_tree()
        firmware = firmware_of(folder, tree)
        if firmware is None:
            return None
        manifest = Manifest.model_validate_json(tree[FILE_NAME])
        found = [needs_of(measure(path, manifest), manifest) for path in firmware]
    except MtoolError:
        return None  # a folder of something else, a toolchain that is gone: estimates will do
    return tuple(max(needs, key=lambda need: need.bytes) for needs in zip(*found, strict=True))


def _fit(board: Board, needs: tuple[Need, ...], refused: tuple[str, ...] = (), *, is_built: bool = False) -> Fit:
    def fullest(*roles: str) -> Need | None:
        names = {board.region_for(role) for role in roles}
        those = [need for need in needs if need.memory in names]
        return max(those, key=lambda need: (need.missing_bytes, need.bytes / need.limit_bytes), default=None)

    return Fit(
        board.name, needs, fullest("code", "weights"), fullest("arena", "data", "stack"), refused, is_built=is_built
    )
