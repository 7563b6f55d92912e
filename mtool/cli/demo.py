"""`mtool demo`: handwritten digits, read on this computer and on an emulated Cortex-M4."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtool import commands
from mtool.base import resources
from mtool.base.errors import MismatchError
from mtool.cli.output import Output, table

if TYPE_CHECKING:
    from numpy.typing import NDArray


LEAST_ACCURACY = 0.95
HOST = "host"
EMULATED = ("mps2_an386", "sim_m4")
"""Emulated Cortex-M4 boards: QEMU's, with code from GCC, comes first."""

_PICTURES = 8
_ACROSS = 4
_GAP = "    "
_LEVELS = " ░▒▓█"
_INK = 16  # the darkest pixel


def demo(out: Output, board: list[str] | None = None, output_dir: Path = Path("build")) -> None:
    """Read handwritten digits; show what it costs.

    Ends with exit code 9 if less than 95% of the images are read correctly.
    """
    import numpy as np

    from mtool.commands.cost import comparison

    example = resources.path("examples/digits")
    with np.load(example / "test_data.npz", allow_pickle=False) as data:
        images, labels = data["x"], data["y"]
    names = list(board) if board else available_boards(out)
    costs, digits = {}, {}
    for name in names:
        ran = commands.run(
            example / "digits_int8.onnx",
            board=name,
            inputs=example / "test_data.npz",
            deployment=commands.Deployment(output_dir / f"digits-{name}"),
            kinds=commands.ALL_KINDS,
        )
        scores = np.stack([next(iter(output.values())).reshape(-1) for output in ran.outputs])
        costs[name], digits[name] = ran.cost, scores.argmax(axis=1)
    accuracy = {name: float(np.mean(digits[name] == labels)) for name in names}
    out.result(
        {
            "images": len(images),
            "boards": {name: {"accuracy": accuracy[name], **costs[name].as_json()} for name in names},
        }
    )
    out.text("", *(f"  {line}" for line in pictures(images, labels, digits[names[0]])))
    read = ["read correctly", *(f"{accuracy[name]:.1%} of {len(images)} images" for name in names)]
    out.text(table((costs[names[0]].model, *names), [read, *comparison([*costs.values()])]))
    wrong = [f"{name}: {share:.1%}" for name, share in accuracy.items() if share < LEAST_ACCURACY]
    if wrong:
        raise MismatchError(f"less than {LEAST_ACCURACY:.0%} of the images were read correctly", details=wrong)


def available_boards(out: Output) -> list[str]:
    """Return the host, even without a compiler, and the first emulated board whose tools are installed."""
    from mtool import boards
    from mtool.stages import checkup

    notes = []
    for name in EMULATED:
        lacking = sorted(item.name for item in checkup.missing(checkup.programs_of(boards.get(name))))
        if not lacking:
            return [HOST, name]
        verb = "is" if len(lacking) == 1 else "are"
        notes.append(f"{name} is left out: {', '.join(lacking)} {verb} missing (mtool doctor)")
    out.note(*notes)
    return [HOST]


def pictures(images: "NDArray[Any]", labels: "NDArray[Any]", digits: "NDArray[Any]") -> list[str]:
    """Draw some images, two characters per pixel, with the digits that were read; the last is a misread one, if any."""
    import numpy as np

    wrong = np.flatnonzero(digits != labels)
    shown = [*range(_PICTURES - 1), int(wrong[0]) if len(wrong) else _PICTURES - 1]
    lines = []

    def shade(pixel: int) -> str:
        return 2 * _LEVELS[min(len(_LEVELS) - 1, pixel * len(_LEVELS) // (_INK + 1))]

    for start in range(0, _PICTURES, _ACROSS):
        row = shown[start : start + _ACROSS]
        drawn = [images[index].reshape(8, 8) for index in row]
        lines += [_GAP.join("".join(map(shade, image[y])) for image in drawn) for y in range(8)]
        read = ((digits[index], labels[index]) for index in row)
        captions = (str(digit) if digit == label else f"{digit}, but is {label}" for digit, label in read)
        lines += [_GAP.join(f"{caption:^16}" for caption in captions), ""]
    return lines
