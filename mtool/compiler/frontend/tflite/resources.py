"""Resource variables: VAR_HANDLE finds one by its name; a subgraph that CALL_ONCE runs gives it its first value."""

from mtool.compiler.frontend.problems import Unsupported
from mtool.compiler.frontend.tflite.description import Model
from mtool.compiler.frontend.tflite.translation import Translation
from mtool.compiler.frontend.tflite.variables import Key


def _call_once(t: Translation) -> None:
    """CALL_ONCE: the subgraph assigns constants."""
    graph = _subgraph(t, t.op.option("InitSubgraphIndex"))
    handles: dict[int, Key] = {}
    for operator in graph.operators:
        if operator.kind == "VAR_HANDLE" and operator.outputs:
            handles[operator.outputs[0]] = _key(operator.option("Container"), operator.option("SharedName"))
            continue
        if operator.kind != "ASSIGN_VARIABLE" or len(operator.inputs) != 2:
            raise Unsupported(f"its subgraph has {operator.name}; it may only assign constants to variables")
        handle, value = operator.inputs
        data = graph.tensors[value].data if value >= 0 else None
        if handle not in handles or data is None:
            raise Unsupported(f"its subgraph assigns what is not a constant, or to no variable, in {operator.name}")
        t.variables.begin(handles[handle], data)


def _subgraph(t: Translation, number: int) -> Model:
    """Return a subgraph of the file that an operator names.

    Raises:
        Unsupported: there is none of that number.
    """
    if not 1 <= number <= len(t.model.others):
        raise Unsupported(f"it names subgraph {number} of {1 + len(t.model.others)}")
    return t.model.others[number - 1]


def _key(container: bytes | None, name: bytes | None) -> Key:
    return "resource", container or b"", name or b""


def _var_handle(t: Translation) -> None:
    t.handles[t.op.outputs[0]] = _key(t.op.option("Container", b""), t.op.option("SharedName", b""))


def _variable(t: Translation) -> Key:
    if not t.has(0) or t.op.inputs[0] not in t.handles:
        raise Unsupported("its input 0 is not what a VAR_HANDLE makes")
    return t.handles[t.op.inputs[0]]


def _read_variable(t: Translation) -> None:
    key = _variable(t)
    assert isinstance(key, tuple)
    stem = key[2].decode("utf-8", "replace") or "variable"
    t.put(t.variables.read(key, t.result(), lambda: t.unique(stem)))


def _assign_variable(t: Translation) -> None:
    t.variables.write(_variable(t), t.tensor(1), t.stored(1))


TRANSLATIONS = {
    "CALL_ONCE": _call_once,
    "VAR_HANDLE": _var_handle,
    "READ_VARIABLE": _read_variable,
    "ASSIGN_VARIABLE": _assign_variable,
}

WITHOUT_OUTPUTS = ("CALL_ONCE", "ASSIGN_VARIABLE")
