"""`mtool.json`: all that the device half knows about compiled models and their project.

Schema 2: a list of the firmware's models, usually one, and the project. The compile half writes a
model's manifest without `project`; the project stage adds it. Keys that are not described here are refused, so that a
stale or foreign file is detected at once.
"""

import os
import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AliasChoices, Field, PlainSerializer, SerializationInfo, ValidationError

from mtool.base import configuration, formulas, records
from mtool.base.errors import UsageError, of_os_error
from mtool.base.escaping import plain
from mtool.base.identifiers import firmware_name
from mtool.base.option_values import CODE_IN_RAM, Executor, InterfaceApi, OperatorsApi, is_set
from mtool.base.records import Strict
from mtool.boards import Board

FILE_NAME = "mtool.json"

# Types for the fields of mtool.json: records that refuse unknown keys, and validated text.


BYTE_WIDE = {"int2": "int8", "int4": "int8", "uint2": "uint8", "uint4": "uint8"}
"""The type in which an element of 2 or 4 bits is stored."""
TEMPLATES: dict[str, Any] = {"for": "the texts of a template"}
"""The context of a dump whose texts are used in a template."""


def _written(text: str, info: SerializationInfo) -> str:
    return plain(text) if info.context is TEMPLATES else text


OfModel = Annotated[str, PlainSerializer(_written)]
"""Text from the model: exact in mtool.json, see mtool.base.escaping."""


def _inside(path: str) -> str:
    if path.startswith("/") or "\0" in path or {"", ".", ".."} & {*path.split("/")}:
        raise ValueError(f"{path!r} is not a path inside the project folder")
    return path


Inside = Annotated[str, AfterValidator(_inside)]
"""A path inside the project folder."""


def _formula(text: str) -> str:
    formulas.parsed(text)
    return text


FormulaText = Annotated[str, AfterValidator(_formula)]
"""A formula of run-time sizes, in terms of their symbols: 64 * n."""


# The memory that a model can access while it runs under memory protection (--protect).


class Area(Strict):
    """An area that a model can access while it runs.

    `bytes` is the size of the memory that it covers, in granules of `granule` bytes of the core's memory protection:
    `used` bytes, rounded up to a whole granule; both are 0 where only the linker knows the size.
    `offset` is the area's place in the arena, `alignment` the alignment of its address.
    """

    name: Literal["arena", "states", "variables", "inputs", "constants"]
    access: Literal["read", "write"]
    used: int = 0
    bytes: int = 0
    granule: int
    alignment: int
    offset: int = 0


class Protection(Strict):
    """The memory protection of a model: the unit, and the areas in addition to flash and the stack."""

    unit: Literal["PMSAv7", "PMSAv8", "PMP"]
    areas: tuple[Area, ...]

    def area(self, name: str) -> Area | None:
        """Return an area by its name; None: there is none."""
        return next((area for area in self.areas if area.name == name), None)


# A model's inputs, outputs and states.


class SizeRange(Strict):
    """The range of a run-time size. `dimension` is its name in the model, `symbol` its name in formulas."""

    dimension: OfModel
    symbol: str
    least: int
    most: int


class RowStream(Strict):
    """An input that is passed row by row, as rows arrive (`--interface-api feed`).

    There are `rows` of them, of `row_bytes` each. They are the rows of the model's tensor, transposed by `order` unless
    that is empty. `until` is the last operator that is computed as they arrive.
    """

    rows: int
    row_bytes: int
    order: tuple[int, ...] = ()
    until: str


class Window(Strict):
    """An input that is a window of `rows` along an axis, of which each call gets those that are new (`--slide`)."""

    axis: int
    rows: int


class Tensor(Strict):
    """One input or output of the model, in the model's own order.

    `shape` is in elements, row-major, including the batch. `arena_offset` is its place in the arena in bytes, or None
    where the caller keeps it (`--io external`); for an arena in several pools, from the start of pool number `pool`.
    `parts` are the operands whose bytes an output consists of.
    `scale`, `zero_point` and `axis` are those of the quantization, if it has one (value = (q - zero_point) * scale).
    Where the size depends on data, `count` is the name of the output that says how many elements along dimension
    `count_axis` are valid; the elements after them are undefined. Where the shape follows run-time sizes, `shape` is
    the largest, and `dims` has a formula of the sizes for each dimension (mtool.base.formulas): the elements are
    contiguous, as in a tensor of that shape. An input that is such a size itself has its `range`: the name of the
    dimension in the model, the minimum and the maximum; formulas call it by its `symbol`. An input that is passed by
    rows has a `stream`, and no place in the arena; one of which only the new rows are passed has its `window`.
    """

    name: OfModel
    c_name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int
    arena_offset: int | None
    pool: int = 0
    parts: tuple[OfModel, ...] = ()
    scale: tuple[float, ...] | None = None
    zero_point: tuple[int, ...] | None = None
    axis: int | None = None
    count: OfModel | None = None
    count_axis: int | None = None
    dims: tuple[FormulaText, ...] | None = None
    range: SizeRange | None = None
    stream: RowStream | None = None
    window: Window | None = None

    @property
    def stored(self) -> str:
        """The type in which an element is stored: an integer of 2 or 4 bits takes a byte."""
        return BYTE_WIDE.get(self.dtype, self.dtype)

    @property
    def outside_bytes(self) -> int:
        """The bytes that a program holds for it outside of the arena; for an input that is passed by rows, one row."""
        if self.stream is not None:
            return self.stream.row_bytes
        return self.bytes if self.arena_offset is None else 0


class StateTensor(Strict):
    """A state: an output of the model that feeds an input of its next call; it stays in the arena between calls.

    `output` and `input` are their names in the model. `dtype` and `shape` are those in memory, where a state may be
    transposed, or quantized where the model has it as float. `pool` and `arena_offset` are as a Tensor's. Operators
    read it as the operand `value`; `parts` are those that its next contents consist of. `initial` is the initial
    contents in base64; "": zeros.
    """

    output: OfModel
    input: OfModel
    c_name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int
    arena_offset: int
    pool: int = 0
    value: OfModel = ""
    parts: tuple[OfModel, ...] = ()
    initial: str = ""
    scale: tuple[float, ...] | None = None
    zero_point: tuple[int, ...] | None = None


# The compiled operators of a model, their operands and constants, and the regions that backends compute.


class Source(Strict):
    """A tensor of the model, and the moves that turn it into an operand, in order.

    "transpose" has the permutation of the dimensions, "reshape" the new shape, "take" the channels of the last
    dimension that remain, "signed" the number subtracted to make it signed, "rows" the first row of the second
    dimension that remains and the one after the last, "quantised" the bits of the float32 scale, the zero
    point, the least and the largest integer, of a float that takes only the grid's values. Where new shapes follow
    run-time sizes, `reshapes` has the formulas of each "reshape", in order.
    """

    tensor: OfModel
    moves: tuple[tuple[Literal["transpose", "reshape", "take", "signed", "rows", "quantised"], tuple[int, ...]], ...]
    reshapes: tuple[tuple[FormulaText, ...], ...] | None = None


class Operand(Strict):
    """A tensor that an operator reads or writes, except constants: in the arena, or the caller's.

    `memory` is where it lies: "arena" (`offset` bytes from its start, or from that of its `index`-th pool), or the
    `index`-th of the "inputs" or "outputs". `shape` is in elements, in the layout that the operator uses (NHWC),
    without dead channels. `parts` are the tensors whose bytes it consists of, where an operator reads a part of one, or
    several side by side; empty: `value` itself. `source` is the model's tensor that it holds; None: the model has no
    such tensor. Where the shape follows run-time sizes, `shape` is the largest, and `dims` has the formulas, as a
    Tensor's.
    """

    value: OfModel
    dtype: str
    shape: tuple[int, ...]
    bytes: int
    memory: Literal["arena", "inputs", "outputs"]
    index: int
    offset: int
    parts: tuple[OfModel, ...] = ()
    source: Source | None = None
    dims: tuple[FormulaText, ...] | None = None

    @property
    def stored(self) -> str:
        """The type in which an element is stored, as a Tensor's."""
        return BYTE_WIDE.get(self.dtype, self.dtype)


class Operator(Strict):
    """One compiled operator, in the order of execution.

    `name` is its own, `whole` the operator of which it computes some rows, if any, `function` its C function (equal
    operators share one), `label` a readable name ("conv2d 3x3"), `origins` the ONNX nodes that it was compiled from,
    `macs` its multiply-accumulates. `reads` and `writes` are its tensors in the order of its arguments, `in_place`
    pairs of numbers: of a tensor that it reads, and of one that it may write over it. `calls` are the functions that a
    branch or a loop calls, with the schedule of each. `constant_bytes` is the size of its constants,
    which operators may share; `scratch_offset` and `scratch_bytes` are its working memory in the arena, or in the pool
    with number `scratch_pool`; `constants_in` is the name of the pool with a copy of its constants, from which they are
    read. For a region that a backend computes, `backend` is its name, and `device_cycles` its estimate of the
    accelerator's cycles, 0 if unknown.
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
    in_place: tuple[tuple[int, int], ...] = ()
    constant_bytes: int = 0
    scratch_offset: int = 0
    scratch_bytes: int = 0
    scratch_pool: int = 0
    constants_in: str = ""
    backend: str = ""
    device_cycles: float = 0.0

    @property
    def by(self) -> str:
        """What computes it, as shown by every command: its schedule, or the backend whose region it is."""
        return self.backend or self.schedule


class InnerRegion(Strict):
    """A region inside a branch or loop that may fail: its name and backend, and the nodes that it was compiled from.

    `operator` is the index of the branch or loop; `key` identifies the region on the device (crt/include/mtool.h).
    """

    key: int
    name: str
    backend: str
    operator: int
    origins: tuple[OfModel, ...]


class Refusal(Strict):
    """Why a backend does not compute an operator."""

    backend: str
    reason: OfModel


class Claim(Strict):
    """An operator of the model, as backends see it, and what computes it.

    `operator` is its name, `kind` the ONNX operator type; `backend` and `region` are empty if it is compiled to C.
    """

    operator: OfModel
    kind: str
    backend: str = ""
    region: str = ""
    refusals: tuple[Refusal, ...] = ()


class WeightOverhead(Strict):
    """Constants of an operator that take over 10% more flash than in the model's file, and why.

    `tensor` is the largest of them; `operator` one that reads it in the generated C. Bytes are the sum over all of
    them. `for_speed`: the larger layout was chosen because of `--optimize`.
    """

    tensor: OfModel
    operator: str
    file_bytes: int
    flash_bytes: int
    reason: str
    for_speed: bool = False


class Project(Strict):
    """The build and the connection of a project folder.

    `build_hash` covers every file that goes into the firmware. `firmware` maps a firmware kind to its ELF (or host
    executable), relative to the project folder and inside its `build`. `model` is the folder with the model's own
    files, also relative. `levels` has the files that are compiled at their own optimization level, and the compiler's
    option for it. `program` is the folder of a user's own program, which is then the standalone firmware, also
    relative, outside of the project folder; empty: the template's. The builder "own": the folder is a package with the
    RPC server (`mtool compile --rpc`), and mtool does not build the firmware that contains it.
    """

    template: str
    builder: Literal["host", "cmake", "west", "arduino", "zig", "own"]
    transport: Literal["process", "emulator", "serial"]
    board: Board
    build_hash: str
    options: dict[str, str]
    firmware: dict[str, Annotated[Inside, Field(pattern=r"^build/")]]
    model: Inside = "model"
    levels: dict[Inside, Literal["-O2", "-O3", "-Os"]] = Field(default={})
    program: str = ""

    @property
    def is_own(self) -> bool:
        """Whether the folder is a package in firmware of the user's own."""
        return self.builder == "own"


class PoolOfArena(Strict):
    """A memory that holds a part of a model's arena.

    `name` is the board's name for the memory, or any name with a `section` of the object file; `symbol` is the array's
    C name. `bytes` of at most `limit_bytes` are used, `constant_bytes` of them by copies of constants. Its address is a
    multiple of `alignment`. `waits` are the approximate wait cycles of an access. `is_arena`: it is in the memory that
    holds the board's arena, which is cleared before `main`.
    """

    name: str
    symbol: str
    bytes: int
    limit_bytes: int
    constant_bytes: int = 0
    alignment: int
    waits: float = 0.0
    section: str = ""
    is_arena: bool = False

    @property
    def memory(self) -> str:
        """The board's memory that holds it, other than the arena's; empty: there is none, or it is unused."""
        return "" if self.section or self.is_arena or not self.bytes else self.name


class StackBound(Strict):
    """The most stack that a function and all that it calls need, in one linked file.

    `bytes` is the number below the caller's frame; None: it is not known, and `unknown` is the reason. `path` has the
    functions of the deepest path, each with its own bytes. `compiler` is the version and the options of the compiler,
    as it recorded them for the model's file; empty: it recorded nothing.
    """

    bytes: int | None
    path: tuple[tuple[str, int], ...] = ()
    unknown: str = ""
    compiler: str = ""

    def __str__(self) -> str:
        if self.bytes is None:
            return f"not known: {self.unknown}"
        inner = " > ".join(f"{name} {count:,}" for name, count in self.path)
        return f"{self.bytes:,} B" + (f"  ({inner})" if len(self.path) > 1 else "")


class EntryPoint(Strict):
    """A function of a model's header, and how it may be called.

    `reentrant`: "by_arena", two calls with different arenas may run at the same time. `in_interrupts`: an interrupt
    handler may call it between calls of the model's functions, or with an arena that no interrupted call uses.
    `stack` is its bound in firmware: only a build knows it, and writes it to the copy of this file in `build`.
    """

    name: str
    reentrant: Literal["no", "by_arena"]
    in_interrupts: Literal["between_calls", "by_arena"]
    stack: StackBound | None = None


class ConstantPool(Strict):
    """One of several memories that hold a model's constants; they are not copied there at run time.

    `name` is the board's name for the memory, or any name with a `section` of the object file. `bytes` of at most
    `limit_bytes` are used; `constants` lists what it holds, each by its C symbol and with its bytes.
    `waits` are the approximate wait cycles of an access.
    """

    name: str
    bytes: int
    limit_bytes: int
    waits: float = 0.0
    section: str = ""
    constants: dict[str, int]


class Manifest(Strict):
    """Everything that is known about one model of a firmware.

    `arena_bytes` is the arena up to the last byte that the model uses; the firmware's models may
    share one arena. `arena_bound_bytes` is the lower bound of `arena_bytes` that the planner proved. `constants`
    lists the C symbols of weights, biases, scales and tables (all the flash that the model's data takes),
    `shared_constant_bytes` is the part of them that is stored with an earlier model; `weight_overhead` has those that
    take more than in the model's file; `macs` are the multiply-accumulates of the original model, `live_macs` those
    that remain after constant channels were removed, 0 if none were; `instructions` is a rough, generous estimate for
    one inference, with floats in software where the core has no FPU: deadlines follow it; `symbols` maps roles ("run",
    "arena", and "reset" with `states`) to C symbols. `interface_api`, `operators_api` and `executor` are the
    conventions that it was compiled with; `functions` lists the functions that can be called over the RPC: each
    operator, in order, and the entry point. `claims` says what computes which operator, if backends were used.
    `device_buffers` has the bytes of the board's memories, by name, that backends' regions use besides the arena;
    `pools` are the memories that hold the arena if it is not in one piece: then `arena_bytes` is the sum over all of
    them. `constant_pools` are the memories that hold its constants, if there are several. `inner_regions` are regions
    in branches and loops. `caller_has_arena`: the entry point takes the arena as its first argument; mtool's firmware
    provides one. `pauses` are the operators before which a model that precedes this one in the firmware may run.
    `entry_points` are the functions of its header, `in_ram` what lies in RAM besides the caller's own memory, and
    `uses_fpu` whether its code uses the FPU's registers, so that threads must save them.
    `protection` is its memory protection while it runs, if it was compiled with --protect. `graph` is the file with the
    graph's JSON, empty if there is none. `project` and `firmware` are in the file once, beside the models.
    """

    mtool_version: str
    model: str
    model_file: OfModel
    model_hash: str
    io: Literal["arena", "external"]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    states: tuple[StateTensor, ...] = ()
    macs: int
    live_macs: int = 0
    instructions: int = 0
    parameters: int
    arena_bytes: int
    arena_bound_bytes: int
    constant_bytes: int
    constants: tuple[str, ...]
    constant_bytes_in_ram: int = 0
    shared_constant_bytes: int = 0
    weight_overhead: tuple[WeightOverhead, ...] = Field(
        default=(), validation_alias=AliasChoices("weight_overhead", "grown")
    )
    claims: tuple[Claim, ...] = ()
    symbols: dict[str, str]
    operators: tuple[Operator, ...]
    interface_api: InterfaceApi = "c"
    operators_api: OperatorsApi = "typed"
    executor: Executor = "aot"
    caller_has_arena: bool = False
    entry_points: tuple[EntryPoint, ...] = ()
    in_ram: tuple[str, ...] = ()
    uses_fpu: bool = False
    functions: tuple[str, ...] = ()
    graph: Annotated[str, Field(pattern=r"^[^/]*$")] = ""
    device_buffers: dict[str, int] = Field(default={}, validation_alias=AliasChoices("device_buffers", "lent"))
    pools: tuple[PoolOfArena, ...] = ()
    constant_pools: tuple[ConstantPool, ...] = ()
    inner_regions: tuple[InnerRegion, ...] = ()
    pauses: tuple[int, ...] = ()
    protection: Protection | None = None
    project: Project | None = Field(default=None, exclude=True)
    firmware: "tuple[Manifest, ...]" = Field(default=(), exclude=True, repr=False)

    @property
    def models(self) -> "tuple[Manifest, ...]":
        """All models of the firmware, in order; only this one unless there are several."""
        return self.firmware or (self,)

    @property
    def hot_functions(self) -> tuple[str, ...]:
        """The functions whose code lies in RAM."""
        built = {operator.function: operator.schedule for operator in self.operators}
        for operator in self.operators:
            built |= operator.calls
        return tuple(name for name, schedule in built.items() if is_set(schedule, CODE_IN_RAM))

    @property
    def in_project(self) -> Project:
        """The project that contains the model; there must be one."""
        assert self.project is not None, f"{self.model} stands in no project"
        return self.project

    @property
    def bytes_of_arena(self) -> int:
        """The bytes of the arena in the board's memory for it: all of them, unless it is in pools."""
        return sum(pool.bytes for pool in self.pools if pool.is_arena) if self.pools else self.arena_bytes

    def flat(self, pool: int, offset: int) -> int:
        """Return an offset in a pool as an offset in all of them, one after the other."""
        return offset + sum(one.bytes - one.constant_bytes for one in self.pools[:pool])

    @property
    def stream_input(self) -> int | None:
        """The number of the input that the model takes by rows; None: it takes none so."""
        return next((number for number, tensor in enumerate(self.inputs) if tensor.stream is not None), None)

    @property
    def firmware_name(self) -> str:
        """The C name of the firmware: the model's, or one made from the names of all models."""
        return firmware_name([model.model for model in self.firmware]) if self.firmware else self.model

    @property
    def sizes(self) -> tuple[Tensor, ...]:
        """The inputs that are run-time sizes."""
        return tuple(tensor for tensor in self.inputs if tensor.range is not None)

    def for_templates(self) -> dict[str, Any]:
        """Return the manifest as plain values, in which the model's own text is escaped for any text of a template."""
        return self.model_dump(mode="json", context=TEMPLATES)

    def to_json(self) -> bytes:
        """Return the bytes of the firmware's file; equal manifests give equal bytes."""
        return to_json(self.models, self.project)


class Firmware(Strict):
    """The whole file: the models of a firmware, with distinct names, and its project."""

    schema_version: Literal[2] = 2
    models: tuple[Manifest, ...] = Field(min_length=1)
    project: Project | None = None

    def manifests(self) -> tuple[Manifest, ...]:
        """Return the models, each with the project and the other models."""
        several = self.models if len(self.models) > 1 else ()
        return tuple(model.model_copy(update={"project": self.project, "firmware": several}) for model in self.models)


def to_json(models: Sequence[Manifest], project: Project | None) -> bytes:
    """Return the bytes of a firmware's file; equal models and projects give equal bytes."""
    return (Firmware(models=tuple(models), project=project).model_dump_json(indent=2) + "\n").encode()


def total_constant_bytes(models: Sequence[Manifest]) -> int:
    """Return the total bytes of constants of a firmware's models; shared ones count once."""
    return sum(model.constant_bytes - model.shared_constant_bytes for model in models)


def total_arena_bytes(models: Sequence[Manifest]) -> int:
    """Return the total bytes of arenas of a firmware's models; shared ones count once."""
    return sum(arenas_of(models).values())


def arenas_of(models: Sequence[Manifest]) -> dict[str, int]:
    """Return the bytes of each arena of a firmware's models, or of each pool, by its C name."""
    arenas: dict[str, int] = {}
    for model in models:
        name = model.symbols.get("arena", model.model)
        pools = {pool.symbol: pool.bytes for pool in model.pools if pool.bytes}
        for symbol, count in pools.items() if model.pools else [(name, model.arena_bytes)] * bool(model.arena_bytes):
            arenas[symbol] = max(arenas.get(symbol, 0), count)
    return arenas


def bytes_in_memories(models: Sequence[Manifest]) -> dict[str, int]:
    """Return the bytes of pools in the board's memories other than the arena's, by the memory's name."""
    counts: Counter[str] = Counter()
    for pool in (pool for model in models for pool in model.pools if pool.memory):
        counts[pool.memory] += pool.bytes
    return counts


def constants_in_memories(models: Sequence[Manifest]) -> dict[str, int]:
    """Return the bytes of constants in separate pools, by the pool's name."""
    counts: Counter[str] = Counter()
    for pool in (pool for model in models for pool in model.constant_pools):
        counts[pool.name] += sum(pool.constants.values())
    return counts


# Find and read the `mtool.json` of a project folder.


def firmware_of(folder: Path, project: Project, kind: str) -> Path:
    """Return the file of a firmware kind; it may not exist yet.

    Raises:
        UsageError: the template has no such kind, or a link leads out of the project folder.
    """
    if project.is_own:
        raise UsageError(
            f"{folder} is a package: the firmware that contains it is built and flashed by your own project",
            hint="mtool run, verify and bench drive it: --port PORT (docs/packages.md)",
        )
    if kind not in project.firmware:
        what = f"the template {project.template} has no {kind} firmware"
        raise UsageError(what, details=[f"available: {', '.join(project.firmware) or 'none'}"])
    path = folder / project.firmware[kind]
    if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder)):
        raise UsageError(f"{path} is outside of the project", details=[f"it links to {os.path.realpath(path)}"])
    return path


def project_of(manifest: Manifest, folder: Path) -> Project:
    """Return the project of a folder's manifest.

    Raises:
        UsageError: the manifest has none.
    """
    if manifest.project is None:
        what = f"{folder} holds a compiled model, not a project"
        raise UsageError(what, details=[f"its {FILE_NAME} has no project"], hint="create one with: mtool build MODEL")
    return manifest.project


def is_project(folder: Path) -> bool:
    """Return whether a folder has an `mtool.json`."""
    return (folder / FILE_NAME).is_file()


def own_hint(folder: Path) -> str:
    """Return what to do with a folder that is a user's own project, from `mtool new`; "": it is not one."""
    if not (folder / configuration.FILE_NAME).is_file():
        return ""
    return f"it is your own project (mtool new); run its commands inside it: cd {shlex.quote(str(folder))}"


def load(folder: Path, model: str = "") -> Manifest:
    """Read a model's manifest from the `mtool.json` of a project folder.

    Args:
        folder: the project's.
        model: its name; empty: the first, usually the only one.

    Raises:
        UsageError: the file is missing or not a manifest of this schema, or has no such model; the message says which.
    """
    path = folder / FILE_NAME
    try:
        if not path.is_file():  # missing, or a pipe, from which a read would block
            hint = own_hint(folder) or "create one with: mtool build"
            raise UsageError(f"{folder} is not an mtool project", details=[f"it has no {FILE_NAME}"], hint=hint)
        models = Firmware.model_validate_json(path.read_bytes()).manifests()
    except ValidationError as invalid:
        details = records.lines(invalid, 5)
        raise UsageError(f"{path} is not a manifest of schema 2", details=details, hint="build it again") from None
    except OSError as failed:
        raise of_os_error(failed, f"{path} can't be read") from None
    return named(models, model) if model else models[0]


def named(models: Sequence[Manifest], name: str) -> Manifest:
    """Return a model by its name.

    Raises:
        UsageError: there is none; the message lists the models.
    """
    for model in models:
        if model.model == name:
            return model
    there = ", ".join(model.model for model in models)
    raise UsageError(f"the firmware has no model {name!r}", details=[f"available: {there}"])
