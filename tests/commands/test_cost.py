"""The figures of an inference: whether its instructions depend on the inputs, and the stack's bound, as text."""

from dataclasses import replace
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from mtool.base.errors import UsageError
from mtool.commands.cost import Cost, bench, comparison

COST = Cost("m", "b", 100, None, 0, 0, 0, 0, 0, 0, 40)
DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits_int8.onnx"


def rows_of(cost: Cost) -> dict[str, str]:
    return dict(comparison([cost]))  # type: ignore[arg-type]


def test_texts() -> None:
    assert not {"by input", "RAM: stack, at most"} & {*rows_of(COST)}, "nothing is known of either"
    own = rows_of(replace(COST, firmware="own", stack_bytes=None))
    assert own["RAM: stack"] == "not measured"
    assert own["flash, RAM are of"] == "the model alone, in firmware of your own"
    fixed = replace(COST, least_instructions=100, most_instructions=100, inputs=9, stack_bound_bytes=40)
    assert rows_of(fixed)["by input"] == "the same for 9 inputs"
    assert rows_of(fixed)["RAM: stack, at most"] == "40 B"
    other = replace(fixed, least_instructions=90, most_instructions=1100, served_stack_bound_bytes=64)
    assert rows_of(other)["by input"] == "90 to 1,100 for 9 inputs"
    assert rows_of(other)["RAM: stack, at most"] == "40 B, 64 B with the RPC server's call, as measured"
    interrupted = replace(other, stack_bytes=168, interrupt_stack_bytes=108)
    assert rows_of(interrupted)["RAM: stack, at most"].endswith(", as measured without an interrupt's at most 108 B")
    assert not interrupted.is_bound_exceeded
    wrong = replace(interrupted, stack_bytes=173)
    assert rows_of(wrong)["RAM: stack, at most"].endswith(", which is wrong: less than was measured")
    assert wrong.is_bound_exceeded and replace(other, stack_bytes=65).is_bound_exceeded
    assert not replace(wrong, interrupt_stack_bytes=None).is_bound_exceeded
    unknown = replace(COST, stack_bound_unknown="f calls a function through a pointer")
    assert rows_of(unknown)["RAM: stack, at most"] == "not known: f calls a function through a pointer"
    assert "operators" not in other.as_json() and other.as_json()["most_instructions"] == 1100


def test_a_bound_below_what_was_measured_is_reported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cost = replace(COST, stack_bytes=173, stack_bound_bytes=40, served_stack_bound_bytes=64, interrupt_stack_bytes=108)
    replace(cost, stack_bytes=172).check_bound()
    with pytest.raises(AssertionError, match=r"m on b used 173 B of stack; at most 40 B, 64 B .* which is wrong"):
        cost.check_bound()
    monkeypatch.delenv("MTOOL_WERROR")
    cost.check_bound()
    assert "m on b used 173 B of stack" in caplog.text and "please report it" in caplog.text


@pytest.mark.parametrize("contents", [None, b"x"], ids=["missing", "not linked"])
def test_a_file_that_is_not_linked_is_refused_before_the_work(contents: bytes | None, tmp_path: Path) -> None:
    elf = tmp_path / "app.elf"
    if contents is not None:
        elf.write_bytes(contents)
    with pytest.raises(UsageError, match=r"the code of .*app\.elf can't be read") as refused:
        bench(tmp_path / "no_model.onnx", board="mps2_an386", elf=elf)
    assert "with its symbols" in refused.value.hint


@pytest.mark.slow
def test_whether_instructions_depend_on_the_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pytest.importorskip("onnxruntime")
    integers = bench(DIGITS, board="mps2_an386", repeat=1)
    assert integers.least_instructions == integers.most_instructions == integers.instructions
    with pytest.raises(UsageError, match=r"true has no code of digits_int8 that can be read"):
        bench(DIGITS, board="mps2_an386", repeat=1, elf=Path("/bin/true"))
    other = Path("build") / "digits_int8-mps2_an386" / "build" / "host_driven.elf"
    assert bench(DIGITS, board="mps2_an386", repeat=1, elf=other).stack_bound_bytes == integers.stack_bound_bytes
    nodes = [helper.make_node("Exp", ["x"], ["y"])]
    tensors = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 64]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", tensors[:1], tensors[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "exp.onnx")
    floats = bench(tmp_path / "exp.onnx", board="mps2_an386", repeat=1)
    assert floats.least_instructions is not None and floats.most_instructions is not None
    assert 1.1 * floats.least_instructions < floats.most_instructions and floats.inputs == 9
