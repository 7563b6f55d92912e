"""A request to the compile half, all its options in one record, and the result."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from mtool.base.errors import UsageError
from mtool.base.filetree import FileTree
from mtool.base.option_table import DEFAULTS
from mtool.base.option_values import Io, Optimize, Order, Partial, Weights
from mtool.compiler.backends.spec import BackendSpec
from mtool.compiler.codegen.conventions import Conventions
from mtool.compiler.frontend.options import ModelOptions
from mtool.compiler.plan.choice import Choice
from mtool.compiler.plan.pool import Pool
from mtool.compiler.tuned.known import Known
from mtool.manifest import Manifest

if TYPE_CHECKING:
    from mtool.compiler.codegen.generation import Emitted


@dataclass(frozen=True, slots=True)
class Request(ModelOptions):
    """The options of one compilation: those of the model, and how it is compiled.

    io: "arena" puts the inputs and outputs into the arena, where the planner may overlap them with what is not live;
        "external" leaves them to the caller.
    partial: whether operators may be computed a few rows at a time for a smaller arena (mtool.compiler.plan.partial):
        "never", "always", or "auto", which becomes "always" where the board's memory is too small else.
    order: "auto" computes the operators in the order of the smallest arena that is found, "written" in the model's own.
    optimize: what the board's memory is spent on: larger constants for fewer instructions (plan.for_time),
        and constants in RAM beside a flash that lets the core wait (plan.for_time), where the part of the
        memory is smaller than that of the time ("balanced"), wherever there is room ("speed"), or nowhere ("size").
    conventions: how the model and its operators are called, and what runs them; mtool.compiler.codegen.conventions
    makes them. stream: the input that is given by rows, where the conventions' interface is "feed"; "": the only one.
    schedules: a user's choices, by node (`pw_2`); the cost model chooses all others.
    backends: what else computes parts of the network, in order of preference.
    tolerance: by how many steps an integer that a backend computes may differ from mtool's own.
    backend_fallback: a region that a backend fails to compile is left to C.
    known: what tuning has found for the board; `schedules` come before it.
    arena_section: the section of the object file that the arena lies in, for a linker script; empty: that of
        crt/include/mt_math.h.
    pools: the memories that tensors lie in (mtool.compiler.plan.pools); none: in one arena.
    protect: the model runs inside the core's memory protection (crt/include/mtool.h).
    weights: "auto" puts large constants into a `.bin` file where the toolchain can take one in, "text" all into C.
    """

    io: Io = DEFAULTS["io"]
    partial: Partial = DEFAULTS["partial"]
    order: Order = "auto"
    optimize: Optimize = DEFAULTS["optimize"]
    conventions: Conventions = field(default_factory=Conventions)
    stream: str = DEFAULTS["stream"]
    schedules: Mapping[str, Choice] = field(default_factory=dict)
    weights: Weights = DEFAULTS["weights"]
    arena_section: str = DEFAULTS["arena_section"]
    pools: tuple[Pool, ...] = ()
    protect: bool = DEFAULTS["protect"]
    known: Known = field(default_factory=Known)
    backends: tuple[BackendSpec, ...] = ()
    tolerance: int = DEFAULTS["tolerance"]
    backend_fallback: bool = DEFAULTS["backend_fallback"]

    @property
    def backend_steps(self) -> int:
        """By how many steps an integer of the whole model's operators may differ because a backend computes it."""
        return self.tolerance if self.backends else 0

    def __post_init__(self) -> None:
        """Let an input that is given by rows choose the interface."""
        if self.stream and self.conventions.interface == "c":
            object.__setattr__(self, "conventions", replace(self.conventions, interface="feed"))

    @property
    def is_streamed(self) -> bool:
        """Whether an input is given by rows, as they arrive."""
        return self.conventions.interface == "feed"

    def check_stream(self, open_sizes: Collection[str] = ()) -> None:
        """Refuse what does not go with an input that is given by rows.

        Raises:
            UsageError: a backend, inputs in the caller's memory, or a size that is known at run time alone.
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
                raise UsageError(f"an input by rows (--interface-api feed, --stream) does not go with {reason}")

    @property
    def may_be_split(self) -> bool:
        """Whether an arena that is too large for one memory may lie in several, where nobody asks for that."""
        return not self.conventions.context and not self.arena_section and not self._against_pools()

    def check_pools(self, pools: Sequence[Pool]) -> None:
        """Refuse what does not go with an arena in several memories.

        Args:
            pools: those that are asked for, as the board has them.

        Raises:
            UsageError: graph executors, backends, or a section for an arena in one.
        """
        reasons = [*self._against_pools(), *(["--arena-section: name each pool's"] if self.arena_section else [])]
        if self.conventions.context and any(pool.use == "weights" for pool in pools):
            reasons.append("--arena caller where it is for=weights, which each instance would have a copy of")
        if pools and reasons:
            raise UsageError(
                f"--pool does not go with {reasons[0]}",
                hint="--pool NAME=BYTES,section=NAME" if self.arena_section else "leave one of them out",
            )

    def _against_pools(self) -> list[str]:
        reasons = {
            f"--executor {self.conventions.executor}, which knows one arena": self.conventions.executor != "aot",
            "--backend, whose devices may not reach every memory": bool(self.backends),
            "--protect, which protects one arena": self.protect,
        }
        return [reason for reason, is_there in reasons.items() if is_there]

    def allowed_partial(self) -> Partial:
        """Return `partial`, or "never" where operators are called by name, each as a whole.

        Raises:
            UsageError: it is "always", and the conventions need whole operators.
        """
        if self.conventions.operators == "typed" and not self.conventions.has_functions:
            return self.partial
        if self.partial == "always":
            raise UsageError(
                "--partial always computes operators a few rows at a time, packed functions and graph executors each "
                "as a whole",
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
        manifests: of each model, with the others beside it where there are several.
        apart_bytes: the bytes of their arenas, if each had its own.
        emitted: what each model's files are made of; empty where they are of the cache.
        is_cached: they were compiled before.
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
