"""Options of what a model is given, how often, and where the result goes."""

from typing import Annotated, Any

import typer


def output_file(metavar: str, meaning: str) -> Any:
    """Return the option -o with its help."""
    return typer.Option("--output", "-o", metavar=metavar, help=meaning, show_default=False)


def repeat(meaning: str) -> Any:
    """Return the option --repeat with its help."""
    return typer.Option("--repeat", min=1, help=meaning)


Seed = Annotated[int, typer.Option("--seed", min=0, help="The seed of the inputs that are drawn.")]
_MOST_SAMPLES = 100_000  # all of them are drawn before the first is run
SampleCount = Annotated[int, typer.Option("--samples", min=1, max=_MOST_SAMPLES, help="The number of inputs to draw.")]
Fill = Annotated[
    str,
    typer.Option(
        "--fill",
        metavar="zeros|ones|random|FILE",
        help="What the inputs are filled with: a pattern, arrays (.npz, .npy), or the bytes of all inputs in order.",
    ),
]
