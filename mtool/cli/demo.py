"""`mtool demo`: handwritten digits, read on this computer and on an emulated Cortex-M4."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from mtool import commands
from mtool.base import resources
from mtool.base.errors import MismatchError
from mtool.cli import parameters
from mtool.cli.output import Output, table
from mtool.cli.parameters import option

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mtool.commands import Cost

LEAST_ACCURACY = 0.95
HOST = "host"
EMULATED = ("mps2_an386", "sim_m4")
"""An emulated Cortex-M4: the one of QEMU, with the code of GCC, comes first."""

_PICTURES = 8
_ACROSS = 4
_GAP = "    "
_LEVELS = " ░▒▓█"
_INK = 16  # the darkest pixel


@dataclass(frozen=True, slots=True)
class Read:
    """The digits that a board read, one for each image."""

    cost: "Cost"
    digits: "NDArray[Any]"


def demo(
    out: Output,
    board: Annotated[
        list[str] | None,
        parameters.boards(
            f"May be repeated; default: {HOST}, and the first of {', '.join(EMULATED)} whose tools are here."
        ),
    ] = None,
    output_dir: Annotated[Path, option("--output-dir -d DIR", "The projects go below it.")] = Path("build"),
) -> None:
    """Read handwritten digits; show what it costs.

    Ends with exit code 9 if less than 95% of the images are read correctly.
    """
    import numpy as np

    from mtool.commands.cost import comparison

    example = resources.path("examples/digits")
    with np.load(example / "test_data.npz", allow_pickle=False) as data:
        images, labels = data["x"], data["y"]
    names = list(board) if board else available_boards(out)
    read = {name: _read(example, name, output_dir) for name in names}
    accuracy = {name: float(np.mean(result.digits == labels)) for name, result in read.items()}
    out.result(
        {
            "images": len(images),
            "boards": {name: {"accuracy": accuracy[name], **result.cost.as_json()} for name, result in read.items()},
        }
    )
    first = read[names[0]]
    out.text()
    for line in pictures(images, labels, first.digits):
        out.text(f"  {line}")
    columns = [[name, f"{accuracy[name]:.1%} of {len(images)} images"] for name in names]
    rows = [["read correctly", *(text for _, text in columns)], *comparison([r.cost for r in read.values()])]
    out.text(table((first.cost.model, *names), rows))
    wrong = [f"{name}: {share:.1%}" for name, share in accuracy.items() if share < LEAST_ACCURACY]
    if wrong:
        raise MismatchError(f"less than {LEAST_ACCURACY:.0%} of the images were read correctly", details=wrong)


def available_boards(out: Output) -> list[str]:
    """Return the host, whether its compiler is here or not, and the first emulated board whose tools are here."""
    from mtool import boards
    from mtool.stages import checkup

    told = []
    for name in EMULATED:
        lacking = sorted(item.name for item in checkup.missing(checkup.programs_of(boards.get(name))))
        if not lacking:
            return [HOST, name]
        told.append(f"{name} is left out: {', '.join(lacking)} is missing (mtool doctor)")
    for line in told:
        out.note(line)
    return [HOST]


def _read(example: Path, board: str, below: Path) -> Read:
    import numpy as np

    ran = commands.run(
        example / "digits_int8.onnx",
        board=board,
        inputs=example / "test_data.npz",
        deployment=commands.Deployment(below / f"digits-{board}"),
        kinds=commands.ALL_KINDS,
    )
    scores = np.stack([next(iter(output.values())).reshape(-1) for output in ran.outputs])
    return Read(ran.cost, scores.argmax(axis=1))


def pictures(images: "NDArray[Any]", labels: "NDArray[Any]", digits: "NDArray[Any]") -> list[str]:
    """Draw some images, two characters a pixel, with what was read; the last is a wrong one, if there is any."""
    import numpy as np

    wrong = np.flatnonzero(digits != labels)
    shown = [*range(_PICTURES - 1), int(wrong[0]) if len(wrong) else _PICTURES - 1]
    lines = []
    for start in range(0, _PICTURES, _ACROSS):
        row = shown[start : start + _ACROSS]
        drawn = [images[index].reshape(8, 8) for index in row]
        lines += [_GAP.join("".join(map(_shade, image[y])) for image in drawn) for y in range(8)]
        lines += [_GAP.join(f"{_caption(digits[index], labels[index]):^16}" for index in row), ""]
    return lines


def _caption(digit: int, label: int) -> str:
    return str(digit) if digit == label else f"{digit}, but it is {label}"


def _shade(pixel: int) -> str:
    return 2 * _LEVELS[min(len(_LEVELS) - 1, pixel * len(_LEVELS) // (_INK + 1))]
