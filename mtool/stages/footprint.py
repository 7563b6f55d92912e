"""The footprint of a compiled model on a board: measured on a built firmware where its toolchain is installed."""

import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mtool.base.errors import BuildError, FitError, UsageError
from mtool.device.build import measure
from mtool.stages import formatting
from mtool.stages.building import STANDALONE, build_model
from mtool.stages.compiling import Model
from mtool.stages.fitting import fit_of


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes and work of one model on one board.

    file_bytes: the ONNX file.
    macs: nominal multiply-accumulates.
    weight_bytes: weights, biases and scales as the model's file holds them, whatever the board.
    constant_bytes: the same and tables, as the board's kernels want them.
    arena_bytes: activations, inputs and outputs.
    code_bytes: the standalone firmware without the constants; on the host the model's functions alone; None: not
        built, for the reason that `note` gives.
    fits: whether it fits the board; None: the board does not say how much it has.
    """

    file_bytes: int
    macs: int
    weight_bytes: int
    constant_bytes: int
    arena_bytes: int
    code_bytes: int | None
    fits: bool | None
    note: str

    def as_json(self) -> dict[str, Any]:
        """Return the figures by name."""
        return asdict(self)


def footprint_of(model: Model, weight_bytes: int) -> Footprint:
    """Build a compiled model's standalone firmware in a folder that goes again, and measure it."""
    described, board = model.manifest, model.board
    fits = fit_of(model).fits if board.memories else None
    code: int | None = None
    note = ""
    with tempfile.TemporaryDirectory(prefix="mtool-footprint-") as folder:
        try:
            built = build_model(model, Path(folder) / model.default_folder().name, kinds=(STANDALONE,)).built
            code = measure(built.firmware[STANDALONE], built.manifest).flash_code_bytes
            fits = None if fits is None else True
        except FitError as too_large:
            fits, note = False, "; ".join(too_large.details)
        except (BuildError, UsageError) as failed:
            note = f"not built: {failed.what}"
    return Footprint(
        file_bytes=model.path.stat().st_size,
        macs=described.macs,
        weight_bytes=weight_bytes,
        constant_bytes=described.constant_bytes,
        arena_bytes=described.arena_bytes,
        code_bytes=code,
        fits=fits,
        note=note,
    )


def side_by_side(before: Footprint, after: Footprint, *, is_board: bool = True) -> list[list[str]]:
    """Return rows that put two footprints side by side: a label, and a figure of each.

    Of this computer (not `is_board`) flash means nothing: its kernels want weights of 8 bits in 16 or 32.
    """
    both = (before, after)
    rows = [
        ["file", *(formatting.kilobytes(one.file_bytes) for one in both)],
        ["MACs", *(formatting.amount(one.macs) for one in both)],
        ["weights", *(formatting.kilobytes(one.weight_bytes) for one in both)],
    ]
    if is_board:
        rows.append(["flash: constants", *(formatting.kilobytes(one.constant_bytes) for one in both)])
        code = ("not built" if one.code_bytes is None else formatting.kilobytes(one.code_bytes) for one in both)
        rows.append(["flash: code", *code])
    rows += [
        ["RAM: arena", *(formatting.kilobytes(one.arena_bytes) for one in both)],
    ]
    if any(one.fits is not None for one in both):
        rows.append(["", *("fits" if one.fits else "DOES NOT FIT" for one in both)])
    return rows
