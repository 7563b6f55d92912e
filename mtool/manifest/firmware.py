"""The whole of `mtool.json`: the models of a firmware, and their project."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from mtool.base.identifiers import firmware_name
from mtool.base.option_values import Executor, InterfaceApi, OperatorsApi
from mtool.boards import Board
from mtool.manifest.fields import TEMPLATES, Inside, OfModel, Strict
from mtool.manifest.operators import Claim, GrownConstant, InnerRegion, Operator
from mtool.manifest.protection import Protection
from mtool.manifest.tensors import StateTensor, Tensor


class Project(Strict):
    """The build and the connection of a project folder.

    `build_hash` is over every file that goes into the firmware. `firmware` maps a firmware kind
    to its ELF (or host executable), relative to the project folder and below its `build`. `model` is the folder of
    the model's own files, relative likewise. `levels` has the files that are compiled at an optimisation level of their
    own, and the compiler's option for it. `program` is the folder of a user's own program, which is the standalone
    firmware then, relative likewise, outside of the project folder; empty: the template's.
    """

    template: str
    builder: Literal["host", "cmake", "west", "arduino", "zig"]
    transport: Literal["process", "emulator", "serial"]
    board: Board
    build_hash: str
    options: dict[str, str]
    firmware: dict[str, Annotated[Inside, Field(pattern=r"^build/")]]
    model: Inside = "model"
    levels: dict[Inside, Literal["-O2", "-O3", "-Os"]] = Field(default={})
    program: str = ""


class PoolOfArena(Strict):
    """A memory that a part of a model's arena lies in.

    `name` is the board's of the memory, or any with a `section` of the object file; `symbol` is the array's C name.
    `bytes` are used of the `limit_bytes` that may be, `constant_bytes` of them by copies of constants. Its address is a
    multiple of `alignment`. `waits` are the cycles that an access waits, about. `is_arena`: it lies where the board's
    arena does, which is cleared before `main`.
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
        """The memory of the board that holds it, beside what holds the arena; empty: there is none, or it is unused."""
        return "" if self.section or self.is_arena or not self.bytes else self.name


class ConstantPool(Strict):
    """A memory, one of several, that constants of a model lie in; nothing copies them there.

    `name` is the board's of the memory, or any with a `section` of the object file. `bytes` are used of the
    `limit_bytes` that may be; `constants` are those that lie there, each by its C symbol and with its bytes.
    `waits` are the cycles that an access waits, about.
    """

    name: str
    bytes: int
    limit_bytes: int
    waits: float = 0.0
    section: str = ""
    constants: dict[str, int]


class Manifest(Strict):
    """All that is known of one model of a firmware.

    `arena_bytes` is the arena up to the last byte that the model has of it, which may be an arena that the firmware's
    models share. `arena_bound_bytes` is the lower bound of `arena_bytes` that the planner proved. `constants`
    lists the C symbols of weights, biases, scales and tables (all the flash that the model's data takes),
    `shared_constant_bytes` are those of them that are stored with a model before it; `grown` has those that take more
    than in the model's file; `macs` are the multiply-accumulates of the model as given, `live_macs` those that are left
    where channels that are constant were taken out, 0 if none were; `instructions` are those of an inference by a
    rough, generous estimate, with floats in software where the core has no FPU: deadlines follow it; `symbols` maps
    roles ("run", "arena", and "reset" with `states`) to C symbols. `interface_api`, `operators_api` and `executor` are
    the conventions that it was compiled with; `functions` names what can be called over the RPC: each operator, in
    order, and the entry point. `claims` says who computes which operator, if backends were asked for. `lent` are the
    bytes of the board's
    memories, by name, that regions of backends have besides the arena; `pools` are the memories that the arena lies in,
    if it is not in one piece: then `arena_bytes` are those of the tensors in all. `constant_pools` are the memories
    that its constants lie in, where they are several. `inner_regions` stand in branches and loops.
    `caller_has_arena`: the entry point takes the arena as its first argument; a firmware of mtool's gives it one.
    `pauses` are the operators before which a model that stands before this one in the firmware may run.
    `protection` is the fence around it while it runs, if it was compiled with --protect.
    `graph` is the file with the graph's JSON, empty if there is none. `project` and `firmware` stand in the file once,
    beside the models.
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
    grown: tuple[GrownConstant, ...] = ()
    claims: tuple[Claim, ...] = ()
    symbols: dict[str, str]
    operators: tuple[Operator, ...]
    interface_api: InterfaceApi = "c"
    operators_api: OperatorsApi = "typed"
    executor: Executor = "aot"
    caller_has_arena: bool = False
    functions: tuple[str, ...] = ()
    graph: Annotated[str, Field(pattern=r"^[^/]*$")] = ""
    lent: dict[str, int] = Field(default={})
    pools: tuple[PoolOfArena, ...] = ()
    constant_pools: tuple[ConstantPool, ...] = ()
    inner_regions: tuple[InnerRegion, ...] = ()
    pauses: tuple[int, ...] = ()
    protection: Protection | None = None
    project: Project | None = Field(default=None, exclude=True)
    firmware: "tuple[Manifest, ...]" = Field(default=(), exclude=True, repr=False)

    @property
    def models(self) -> "tuple[Manifest, ...]":
        """All models of the firmware, in their order; this one alone unless it stands with others."""
        return self.firmware or (self,)

    @property
    def bytes_of_arena(self) -> int:
        """The bytes where the board's arena is: all of it, unless it lies in pools."""
        return sum(pool.bytes for pool in self.pools if pool.is_arena) if self.pools else self.arena_bytes

    def flat(self, pool: int, offset: int) -> int:
        """Return an offset in a pool as one in all of them, each beginning where the tensors of that before it end."""
        return offset + sum(one.bytes - one.constant_bytes for one in self.pools[:pool])

    @property
    def stream_input(self) -> int | None:
        """The number of the input that the model takes by rows; None: all are whole."""
        return next((number for number, one in enumerate(self.inputs) if one.stream is not None), None)

    @property
    def firmware_name(self) -> str:
        """The C name of the firmware: the model's, or one made of the names of all."""
        return firmware_name([one.model for one in self.firmware]) if self.firmware else self.model

    @property
    def sizes(self) -> tuple[Tensor, ...]:
        """The inputs that are run-time sizes."""
        return tuple(tensor for tensor in self.inputs if tensor.range is not None)

    def for_templates(self) -> dict[str, Any]:
        """Return the manifest as plain values, in which the model's own text is safe in any text of a template."""
        return self.model_dump(mode="json", context=TEMPLATES)

    def to_json(self) -> bytes:
        """Return the bytes of the file of its firmware; the same for the same manifests."""
        whole = Firmware(models=self.models, project=self.project)
        return (whole.model_dump_json(indent=2) + "\n").encode()


class Firmware(Strict):
    """The whole file: the models of a firmware, whose names differ, and its project."""

    schema_version: Literal[2] = 2
    models: tuple[Manifest, ...] = Field(min_length=1)
    project: Project | None = None

    def manifests(self) -> tuple[Manifest, ...]:
        """Return the models, each with the project and the others beside it."""
        several = self.models if len(self.models) > 1 else ()
        return tuple(one.model_copy(update={"project": self.project, "firmware": several}) for one in self.models)


def total_constant_bytes(models: Sequence[Manifest]) -> int:
    """Return the bytes of the constants of a firmware's models, what they share once."""
    return sum(one.constant_bytes - one.shared_constant_bytes for one in models)


def total_arena_bytes(models: Sequence[Manifest]) -> int:
    """Return the bytes of the arenas of a firmware's models, what they share once."""
    return sum(arenas_of(models).values())


def arenas_of(models: Sequence[Manifest]) -> dict[str, int]:
    """Return the bytes of each arena of a firmware's models, or pool of one, by its C name."""
    found: dict[str, int] = {}
    for one in models:
        name = one.symbols.get("arena", one.model)
        own = {pool.symbol: pool.bytes for pool in one.pools if pool.bytes}
        for symbol, count in own.items() if one.pools else [(name, one.arena_bytes)] * bool(one.arena_bytes):
            found[symbol] = max(found.get(symbol, 0), count)
    return found


def bytes_in_memories(models: Sequence[Manifest]) -> dict[str, int]:
    """Return the bytes of pools in memories of the board beside that of its arena, by the memory's name."""
    found: dict[str, int] = {}
    for pool in (pool for one in models for pool in one.pools if pool.memory):
        found[pool.memory] = found.get(pool.memory, 0) + pool.bytes
    return found


def constants_in_memories(models: Sequence[Manifest]) -> dict[str, int]:
    """Return the bytes of constants in pools of their own, by the pool's name."""
    found: dict[str, int] = {}
    for pool in (pool for one in models for pool in one.constant_pools):
        found[pool.name] = found.get(pool.name, 0) + sum(pool.constants.values())
    return found
