"""The compiled operators of a model, their operands and constants, and what backends compute of them."""

from typing import Literal

from pydantic import Field

from mtool.manifest.fields import BYTE_WIDE, FormulaText, OfModel, Strict


class Source(Strict):
    """A tensor of the model, and the moves that make an operand of it, in order.

    "transpose" has the permutation of the dimensions, "reshape" the new shape, "take" the channels of the last
    dimension that are left, "signed" what is taken off to make it signed, "rows" the first of the second
    dimension that is left and the one after the last, "quantised" the bits of the float32 that is the scale, the zero
    point, the least and the largest integer, of a float that stands on that grid. Where new shapes follow run-time
    sizes, `reshapes` has the formulas of each "reshape", in order.
    """

    tensor: OfModel
    moves: tuple[tuple[Literal["transpose", "reshape", "take", "signed", "rows", "quantised"], tuple[int, ...]], ...]
    reshapes: tuple[tuple[FormulaText, ...], ...] | None = None


class Operand(Strict):
    """A tensor that an operator reads or writes, constants apart: in the arena, or of the caller.

    `memory` says where it lies: "arena" (`offset` bytes from its start, or from that of its `index`-th pool), or the
    `index`-th of the "inputs" or "outputs". `shape` is in elements, in the layout that the operator uses (NHWC),
    without the channels that were found dead. `source` is the model's tensor that it holds; None: the model has no such
    tensor. Where the shape follows run-time sizes, `shape` is the largest, and `dims` has the formulas, as a Tensor's.
    """

    value: OfModel
    dtype: str
    shape: tuple[int, ...]
    bytes: int
    memory: Literal["arena", "inputs", "outputs"]
    index: int
    offset: int
    source: Source | None = None
    dims: tuple[FormulaText, ...] | None = None

    @property
    def stored(self) -> str:
        """The type that an element is stored as, as a Tensor's."""
        return BYTE_WIDE.get(self.dtype, self.dtype)


class Operator(Strict):
    """One compiled operator, in the order of execution.

    `name` is its own, `whole` that of the operator of which it computes some rows, if it does, `function` that of the
    C function which computes it (equal operators share one), `label` what a person calls it ("conv2d 3x3"), `origins`
    the ONNX nodes that went into it, `macs` its multiply-accumulates. `reads` and `writes` are its tensors in the
    order of its arguments. `calls` are the functions that a branch or a loop calls, with the schedule of each.
    `constant_bytes` is the size of its constants, which operators may share; `scratch_offset`
    and `scratch_bytes` are its working memory in the arena, or in its pool of number `scratch_pool`; `constants_in` is
    the name of the pool that has a copy of its constants, which are read there. Of a region that
    a backend computes, `backend` is its name, and `device_cycles` its estimate of the accelerator's cycles, 0 if
    there is none.
    """

    index: int
    name: str
    whole: str = ""
    function: str
    label: str
    schedule: str
    calls: dict[str, str] = Field(default={})
    origins: tuple[OfModel, ...]
    shape: str
    macs: int
    reads: tuple[Operand, ...] = ()
    writes: tuple[Operand, ...] = ()
    constant_bytes: int = 0
    scratch_offset: int = 0
    scratch_bytes: int = 0
    scratch_pool: int = 0
    constants_in: str = ""
    backend: str = ""
    device_cycles: float = 0.0

    @property
    def by(self) -> str:
        """What computes it, as every command calls it: its schedule, or the backend whose region it is."""
        return self.backend or self.schedule


class InnerRegion(Strict):
    """A region inside of a branch or loop that may fail: its name and backend, the nodes that went into it.

    `operator` is the index of the branch or loop; `key` is what the device says that it is (crt/include/mt_device.h).
    """

    key: int
    name: str
    backend: str
    operator: int
    origins: tuple[OfModel, ...]


class Refusal(Strict):
    """Why a backend that was asked does not compute an operator."""

    backend: str
    reason: OfModel


class Claim(Strict):
    """An operator of the model, as backends see it, and who computes it.

    `operator` is its name, `kind` what ONNX calls it; `backend` and `region` are empty if it is compiled to C.
    """

    operator: OfModel
    kind: str
    backend: str = ""
    region: str = ""
    refusals: tuple[Refusal, ...] = ()


class GrownConstant(Strict):
    """Constants of an operator that take more than a tenth more flash than they take in the model's file, and why.

    `tensor` is the largest of them; `operator` one that reads it in the generated C. Bytes are of all of them.
    `for_speed`: that was chosen, as `--optimize` has it.
    """

    tensor: OfModel
    operator: str
    file_bytes: int
    flash_bytes: int
    reason: str
    for_speed: bool = False
