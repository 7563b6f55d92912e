"""The operands of a changed expression stay, renumbered; those of the kernel stay too."""

from mtool.compiler.ir import DType, Node
from mtool.compiler.ir.expr import acc, call, load
from mtool.compiler.kernels.dense import Dense
from mtool.compiler.kernels.loop import Loop
from mtool.compiler.kernels.registry import with_expression

F = DType.FLOAT32


def test_operands_that_are_not_read_go() -> None:
    node = Node("loop", "n", ("a", "b", "c"), ("y",), Loop(expr=load(0, F, ())))
    changed = with_expression(node, call("add", load(2, F, ()), load(0, F, ())), ("a", "b", "c"))
    assert changed.inputs == ("a", "c")
    assert Loop.of(changed).expr == call("add", load(1, F, ()), load(0, F, ()))


def test_a_kernel_keeps_its_own_operands() -> None:
    node = Node("dense", "n", ("x", "w", "b", "s"), ("y",), Dense(expr=acc(F), macs=1))
    changed = with_expression(node, call("mul", acc(F), load(4, F, ())), ("x", "w", "b", "s", "t"))
    assert changed.inputs == ("x", "w", "b", "t")
