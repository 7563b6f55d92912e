"""A request to the compile half, with all its options, and the result."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from mtool.base.errors import UsageError
from mtool.base.filetree import FileTree
from mtool.base.option_table import DEFAULTS
from mtool.base.option_values import Compress, Io, Optimize, Order, Partial, Weights
from mtool.compiler.backends.spec import BackendSpec
from mtool.compiler.codegen.conventions import Conventions
from mtool.compiler.frontend.options import ModelOptions
from mtool.compiler.plan.choice import Choice
from mtool.compiler.plan.pool import Pool
from mtool.compiler.tuned.results import TuningResults
from mtool.manifest import Manifest

if TYPE_CHECKING:
    from mtool.compiler.codegen.generation import Emitted


@dataclass(frozen=True, slots=True)
class Request(ModelOptions):
    """The options of one compilation: those of the model, and how it is compiled.

    io: "arena" puts the inputs and outputs into the arena, where the planner may overlap them with what is not live;
        "external" leaves them to the caller.
    partial: whether operators may be computed a few rows at a time for a smaller arena (mtool.compiler.plan.partial):
        "never", "always", or "auto", which becomes "always" if the board's memory is too small otherwise.
    order: "auto" computes the operators in the order with the smallest arena found, "written" in the model's own.
    optimize: when to spend the board's memory on speed, as larger constants for fewer instructions
        (plan.for_time) or as copies in RAM of constants in slow flash: if the share of memory is smaller than
        the share of time saved ("balanced"), wherever there is room ("speed"), or never ("size").
    compress: "auto" packs constants where that is worth its time and memory, "none" never, the others in one way.
    conventions: how the model and its operators are called, and what runs them
        (mtool.compiler.codegen.conventions).
    stream: the input that is streamed by rows, if the conventions' interface is "feed"; "": the only one.
    schedules: the user's choices, by node (`pw_2`); the cost model chooses all others.
    backends: those that may compute parts of the network, in order of preference.
    tolerance: by how many steps an integer that a backend computes may differ from mtool's own.
    backend_fallback: a region that a backend fails to compile is left to C.
    tuning_results: measured for the board; `schedules` take precedence.
    arena_section: the section of the object file that the arena lies in, for a linker script; empty: that of
        crt/include/mt_place.h.
    pools: the memories that tensors lie in (mtool.compiler.plan.pools); none: in one arena.
    guard: each run checks the constants, the bytes beside the arena and the order of the operators (codegen.guard).
    protect: the model runs inside the core's memory protection (crt/include/mtool.h); None: no.
    weights: "auto" puts large constants into a `.bin` file if the toolchain can include it, "text" all into C.
    """

    io: Io = DEFAULTS["io"]
    partial: Partial = DEFAULTS["partial"]
    order: Order = "auto"
    optimize: Optimize = DEFAULTS["optimize"]
    compress: Compress = DEFAULTS["compress"]
    conventions: Conventions = field(default_factory=Conventions)
    stream: str = DEFAULTS["stream"]
    schedules: Mapping[str, Choice] = field(default_factory=dict)
    weights: Weights = DEFAULTS["weights"]
    arena_section: str = DEFAULTS["arena_section"]
    pools: tuple[Pool, ...] = ()
    guard: bool = DEFAULTS["guard"]
    protect: bool | None = DEFAULTS["protect"]
    tuning_results: TuningResults = field(default_factory=TuningResults)
    backends: tuple[BackendSpec, ...] = ()
    tolerance: int = DEFAULTS["tolerance"]
    backend_fallback: bool = DEFAULTS["backend_fallback"]

    @property
    def backend_steps(self) -> int:
        """By how many steps an integer of the whole model's operators may differ because a backend computes it."""
        return self.tolerance if self.backends else 0

    def __post_init__(self) -> None:
        """Choose the interface for a streamed input."""
        if self.stream and self.conventions.interface == "c":
            object.__setattr__(self, "conventions", replace(self.conventions, interface="feed"))

    @property
    def is_streamed(self) -> bool:
        """Whether an input is streamed row by row."""
        return self.conventions.interface == "feed"

    def check_stream(self, open_sizes: Collection[str] = ()) -> None:
        """Refuse options that can't be combined with a streamed input.

        Raises:
            UsageError: there is a backend, inputs lie in the caller's memory, or a size is known only at run time.
        """
        if not self.is_streamed:
            return
        reasons = {
            "--backend, which computes its regions as a whole": bool(self.backends),
            "--io external, where all inputs lie in the caller's memory": self.io == "external",
            "--arena caller": self.conventions.context,
            f"the run-time size {next(iter(open_sizes), '')}, which the rows would follow": bool(open_sizes),
        }
        for reason, is_there in reasons.items():
            if is_there:
                raise UsageError(f"an input by rows (--interface-api feed, --stream) can't be combined with {reason}")

    @property
    def may_be_split(self) -> bool:
        """Whether an arena that is too large for one memory may be split into several without --pool."""
        return not self.conventions.context and not self.arena_section and not self._against_pools()

    def check_pools(self, pools: Sequence[Pool]) -> None:
        """Refuse options that can't be combined with an arena in several memories.

        Args:
            pools: the requested pools, as the board has them.

        Raises:
            UsageError: there is a graph executor, a backend, or a section for an arena in one memory.
        """
        reasons = [*self._against_pools(), *(["--arena-section: name each pool's"] if self.arena_section else [])]
        if self.conventions.context and any(pool.use == "weights" for pool in pools):
            reasons.append("--arena caller where it is for=weights, which each instance would have a copy of")
        if pools and reasons:
            raise UsageError(
                f"--pool can't be combined with {reasons[0]}",
                hint="--pool NAME=BYTES,section=NAME" if self.arena_section else "leave one of them out",
            )

    def _against_pools(self) -> list[str]:
        reasons = {
            f"--executor {self.conventions.executor}, which knows one arena": self.conventions.executor != "aot",
            "--backend, whose devices may not reach every memory": bool(self.backends),
            "--protect, which protects one arena": bool(self.protect),
        }
        return [reason for reason, is_there in reasons.items() if is_there]

    def allowed_partial(self) -> Partial:
        """Return `partial`, or "never" where operators are called by name, each as a whole.

        Raises:
            UsageError: it is "always", but the conventions need whole operators.
        """
        if self.conventions.operators == "typed" and not self.conventions.has_functions:
            return self.partial
        if self.partial == "always":
            raise UsageError(
                "--partial always computes operators a few rows at a time, but packed functions and graph executors "
                "compute each as a whole",
                hint="leave --partial out, or choose --interface-api c, pointers or step, --operators-api typed and "
                "--executor aot",
            )
        return "never"


USUAL = Request()


@dataclass(frozen=True, slots=True)
class Compilation:
    """The result of the compile half: the files of all models of a firmware, and each one's manifest.

    Attributes:
        files: C and constants.
        manifests: one for each model; each lists the other models.
        apart_bytes: the total bytes of their arenas if each had its own.
        emitted: each model's functions, from which its files are made; empty if the files are from the cache.
        is_cached: the files are from the cache.
    """

    files: FileTree
    manifests: tuple[Manifest, ...]
    apart_bytes: int
    emitted: "tuple[Emitted, ...]" = ()
    is_cached: bool = False

    @property
    def manifest(self) -> Manifest:
        """That of the first model."""
        return self.manifests[0]
