"""A seeded part of scripts/fuzz_models.py: mutants compile or are refused, and compiled ones are right."""

import os
import random
import signal
from pathlib import Path

import amount
import numpy as np
import onnx
import pytest

from mtool.compiler.frontend import load
from tests.fuzzing import campaign, forks, mutate_onnx, mutate_tflite, oracles, seeds_onnx, seeds_tflite, survivors
from tests.fuzzing.campaign import Form, Tally

COUNT = amount.of(40, 24)
FORMS = {
    "onnx": lambda: Form(".onnx", sorted(seeds_onnx.own().items()), mutate_onnx.mutate),
    "tflite": lambda: Form(".tflite", sorted(seeds_tflite.own().items()), mutate_tflite.mutate),
}
FIRST = {"onnx": 202, "tflite": 240}


@pytest.mark.parametrize("name", FORMS)
def test_mutants_break_nothing(name: str, tmp_path: Path) -> None:
    first = FIRST[name]
    tally = campaign.chunk(FORMS[name](), range(first, first + COUNT), 1, tmp_path, run=True)
    assert tally.counts["mutants"] == COUNT and tally.counts["equal"] > 2
    assert not tally.found(), "\n".join(campaign.figures({name: tally}))


@pytest.mark.parametrize("name", FORMS)
def test_a_number_is_always_the_same_mutant(name: str, tmp_path: Path) -> None:
    form = FORMS[name]()
    (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
    one, two = (campaign.make(form, 5, 0, tmp_path / folder).read_bytes() for folder in "ab")
    assert one == two
    different = {form.mutate(form.seeds[0][1], random.Random(n), tmp_path) for n in range(20)}
    assert len(different) > 10


def test_every_seed_is_a_model_that_mtool_knows(tmp_path: Path) -> None:
    data_dependent = {"nonzero", "unique", "compress", "nms"}
    refused = {}
    for name, model in seeds_onnx.own().items():
        path = tmp_path / f"{name}.onnx"
        onnx.save(model, path)
        try:
            load(path)
        except Exception as error:
            refused[name] = str(error)
    assert set(refused) - data_dependent <= {"groupnorm", "functions"}, refused


def _grow() -> int:
    return len(bytearray(1 << 30))


@pytest.mark.parametrize(
    ("function", "ending"),
    [
        (lambda: 7, "done"),
        (lambda: [][1], "traceback"),
        (lambda: sum(1 for _ in iter(int, 1)), "slow"),
        (_grow, "big"),
        (lambda: os.kill(os.getpid(), signal.SIGSEGV), "crash"),
    ],
)
def test_how_a_child_ends(function, ending: str) -> None:
    result = forks.call(function, forks.Limits(cpu_s=1, memory_bytes=1 << 28))
    assert result.ending == ending
    assert result.value == (7 if ending == "done" else None)


def test_the_cause_of_a_traceback_is_the_innermost_frame_of_mtool() -> None:
    words = (
        'Traceback (most recent call last):\n  File "/a/mtool/compiler.py", line 3, in compile_model\n'
        '  File "/a/mtool/ops/einsum.py", line 37, in _letters\n  File "/b/numpy/x.py", line 1, in y\nValueError: no\n'
    )
    assert forks.cause(words) == "ops/einsum.py:_letters ValueError"


def test_a_tally_goes_on_and_keeps_the_smallest_mutant_of_a_cause(tmp_path: Path) -> None:
    path = tmp_path / "tally.json"
    Tally(200, {"mutants": 200}, {"c": {"number": 3, "bytes": 90, "times": 2}}).write(path)
    tally = Tally.read(path)
    fresh = tally.add(
        Tally(0, {"mutants": 5}, {"c": {"number": 8, "bytes": 40, "times": 1}, "d": {"bytes": 1, "times": 1}})
    )
    assert (tally.next, tally.counts["mutants"], fresh) == (200, 205, ["d"])
    assert tally.causes["c"] == {"number": 8, "bytes": 40, "times": 3}


def test_a_wrong_result_and_a_fault_are_noticed(tmp_path: Path) -> None:
    """The generated C of a sum is changed by hand: to a difference, and to read beyond its input."""
    from tests.fuzzing import trial

    text = "g (float[4] x, float[4] z) => (float[4] y) { y = Add(x, z) }"
    alive = []
    for number, (old, new) in enumerate((("", ""), (" + ", " - "), ("[i]", "[i + 4000]"))):
        path = tmp_path / f"m{number}.onnx"
        graph = onnx.parser.parse_graph(text)
        opsets = [onnx.helper.make_opsetid("", 17)]
        onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=9), path)
        made = trial.compiled(path, random.Random(0))
        assert isinstance(made, trial.Compiled)
        source = f"m{number}.c"
        changed = {name: made.files[name] for name in made.files}
        lines = changed[source].decode().splitlines()
        loop = next(n for n, line in enumerate(lines) if " + " in line and "=" in line and "for" not in line)
        lines[loop] = lines[loop].replace(old, new) if old else lines[loop]
        changed[source] = "\n".join(lines).encode()
        files = type(made.files)(changed)
        alive.append(survivors.Survivor(number, path, trial.Compiled(files, made.manifest, "onnx")))
    verdicts = {verdict.number: verdict.kind for verdict in survivors.verdicts(alive, tmp_path / "build")}
    assert verdicts == {0: "equal", 1: "wrong", 2: "fault"}


def test_differences_of_outputs() -> None:
    one = [np.array([1, 2, 200], np.uint8)]
    assert oracles.difference(one, one) == ""
    assert oracles.difference(one, [one[0] + np.uint8(1)]) == "step"
    assert "by 2" in oracles.difference(one, [one[0] + np.uint8(2)])
    assert "for" in oracles.difference(one, [one[0].astype(np.int16)])
    real = [np.array([1.0, np.nan, np.inf], np.float32)]
    assert oracles.difference(real, [real[0] * np.float32(1 + 1e-6)]) == ""
    assert "nan" in oracles.difference(real, [np.array([1.0, 0.0, np.inf], np.float32)])
