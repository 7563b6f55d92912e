"""The calling conventions from TVM's AOT RFC, and what runs the operators; see docs/executors.md."""

from typing import Literal

from mtool.base import checked
from mtool.base.errors import UsageError
from mtool.base.frozen import frozen
from mtool.base.option_values import Executor, InterfaceApi, OperatorsApi

Form = Literal["pointers", "values", "packed"]


@frozen
class Conventions:
    """The calling conventions of a model, and of its operators.

    Attributes:
        interface: the entry point: a typed C function, one with arrays of pointers and a handle for devices, a packed
            function, one call per operator, or one call for some rows of an input.
        operators: how the entry point calls the operators: as typed C functions; or as wrappers that take an array
            of pointers, values with pointers to the data, or values with pointers to DLTensors.
        executor: "aot" calls them from C, "graph" uses the graph executor on the device, "graph-host" leaves the
            firmware as with "aot" and calls them one by one from the host.
        context: the caller has the arena and passes it with each call.
    """

    interface: InterfaceApi = "c"
    operators: OperatorsApi = "typed"
    executor: Executor = "aot"
    context: bool = False

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            UsageError: one has an unknown value.
        """
        checked.fields(self, {})

    @property
    def name(self) -> str:
        """A C name that is equal for conventions whose models and callers can be linked together."""
        return f"{self.interface}_{self.operators}" + "_context" * self.context

    @property
    def takes_resource(self) -> bool:
        """Whether the entry point takes a handle for devices."""
        return self.interface in ("pointers", "packed")

    @property
    def has_functions(self) -> bool:
        """Whether the model has packed functions that can be called by name."""
        return self.interface == "packed" or self.operators == "packed"

    @property
    def forms(self) -> tuple[Form, ...]:
        """The kinds of operator wrappers that are needed."""
        forms: list[Form] = [] if self.operators == "typed" else [self.operators]
        return (*forms, "packed") if self.has_functions and "packed" not in forms else tuple(forms)


def conventions(
    interface: InterfaceApi = "c",
    operators: OperatorsApi | None = None,
    executor: Executor = "aot",
    *,
    context: bool = False,
) -> Conventions:
    """Return the requested conventions; operators are typed unless the executor needs packed ones.

    Raises:
        UsageError: they can't be combined.
    """
    if executor != "aot" and operators not in (None, "packed"):
        raise UsageError(
            f"--executor {executor} calls the operators as packed functions",
            details=["expected  --operators-api packed", f"found     --operators-api {operators}"],
            hint="leave --operators-api out",
        )
    if executor == "graph" and interface == "step":
        raise UsageError(
            "--interface-api step runs the operators from C, --executor graph from the graph's JSON",
            hint="choose one of them",
        )
    if executor == "graph" and interface == "pointers":
        raise UsageError(
            "--interface-api pointers passes a resource on to the operators, but --executor graph has none",
            hint="choose one of them",
        )
    if interface == "feed" and (executor != "aot" or operators not in (None, "typed")):
        raise UsageError(
            "--interface-api feed computes operators by rows, but packed functions and graph executors compute each "
            "as a whole",
            hint="leave --operators-api and --executor out",
        )
    chosen = Conventions(interface, operators or ("typed" if executor == "aot" else "packed"), executor, context)
    if context and (chosen.interface, chosen.operators, chosen.executor) != ("c", "typed", "aot"):
        raise UsageError(
            "--arena caller is for --interface-api c, whose entry point takes the arena",
            hint="leave --interface-api, --operators-api and --executor out",
        )
    return chosen
