"""A call of CMSIS-NN: its C, and what it needs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mtool.compiler.backends.cmsis_nn.library import FOLDER, Library
from mtool.compiler.backends.interface import Context, Product
from mtool.compiler.ir.types import Array

Dims = tuple[int, int, int, int]
"""Batch, height, width, channels."""
Field = int | tuple[int, int]


@dataclass(frozen=True)
class Call:
    """A call: its statements, the functions that it calls, the constants and the buffer that it needs."""

    lines: Sequence[str]
    functions: Sequence[str]
    constants: Mapping[str, Array] = field(default_factory=dict)
    layouts: Mapping[str, str] = field(default_factory=dict)
    buffer_bytes: int = 0

    def product(self, library: Library) -> Product:
        """Return it as what a backend makes of a region."""
        return Product(
            body="\n".join(f"    {line}" for line in self.lines),
            headers=(f"{FOLDER}/arm_nnfunctions.h",),
            files=library.files(self.functions),
            constants=self.constants,
            layouts=self.layouts,
            scratch_bytes=self.buffer_bytes,
            alignment=16 if self.buffer_bytes else 4,
        )


def image(shape: Sequence[int]) -> Dims:
    """Return batch, height, width, channels of an image, or of a sequence."""
    if len(shape) == 3:
        return shape[0], 1, shape[1], shape[2]
    batch, height, width, channels = shape
    return batch, height, width, channels


def buffer_bytes(library: Library, context: Context, function: str, *arguments: "Sequence[int] | int") -> int:
    """Return the working memory of a function on a core; a sequence is a struct of int32_t.

    Whether an Arm core without Helium has the DSP extension is for the flags of its build to say: both will do.
    """
    name = f"{function}_get_buffer_size"
    names = [f"{name}_mve"] if has_helium(context) else [name, f"{name}_dsp"]
    return max(library.asked(one, *arguments) for one in names)


def has_helium(context: Context) -> bool:
    """Whether CMSIS-NN's loops are those of Helium on a core, be it with floats or without."""
    return "mve" in context.target.features


def buffer(size: int) -> list[str]:
    """Return the lines of the context that has the working memory."""
    return [f"const cmsis_nn_context context = {{{'scratch' if size else 'NULL'}, {size}}};"]


def dims(**named: Dims) -> list[str]:
    """Return the lines of dimensions."""
    return [
        f"const cmsis_nn_dims {name} = {{.n = {n}, .h = {h}, .w = {w}, .c = {c}}};"
        for name, (n, h, w, c) in named.items()
    ]


def struct(declared: str, fields: Mapping[str, Field]) -> list[str]:
    """Return the lines of a constant struct; a pair is a struct in it."""
    texts = {name: f"{{{listed(one)}}}" if isinstance(one, tuple) else str(one) for name, one in fields.items()}
    return [f"const {declared} = {{", *(f"    .{name} = {text}," for name, text in texts.items()), "};"]


def flat(fields: Mapping[str, Field]) -> list[int]:
    """Return the numbers of a struct in order."""
    return [number for one in fields.values() for number in (one if isinstance(one, tuple) else (one,))]


def listed(numbers: Sequence[int]) -> str:
    """Return arguments in C."""
    return ", ".join(map(str, numbers))
