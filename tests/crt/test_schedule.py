"""Models as tasks of the scheduler: in any order they compute their own results, and the urgent one runs first."""

import ctypes
import random
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import amount
import numpy as np
import onnx
import pytest
import sanitized
import stateful
from graphs import FLAGS, reference

import mtool
from mtool.compiler.codegen import conventions

CRT = Path(__file__).parents[2] / "crt"
DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits_int8.onnx"
CALLS = 4
Array = np.ndarray[Any, Any]
Clock = ctypes.CFUNCTYPE(ctypes.c_uint32)


class Task(ctypes.Structure):
    """struct mt_task of mt_schedule.h."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("begin", "step", "done", "pauses")),
        ("priority", ctypes.c_uint8),
        *((name, ctypes.c_void_p) for name in ("inputs", "outputs", "finished")),
        *((name, ctypes.c_uint8) for name in ("is_released", "is_running")),
        ("number", ctypes.c_uint16),
        ("status", ctypes.c_int32),
        *(
            (name, ctypes.c_uint32)
            for name in (
                "released_at", "deadline_ticks", "began_for", "due_ticks", "runs", "missed", "worst_ticks",
            )
        ),
    ]  # fmt: skip


class Firmware:
    """Three models and the scheduler in this process: an urgent one with a state, and two others."""

    def __init__(self, folder: Path) -> None:
        cell, pairs = stateful.recurrent("GRU", "torch", 1)
        onnx.save(cell, folder / "cell.onnx")
        how = mtool.Options(conventions=conventions("step"), arenas="interleaved")
        options = [
            replace(how, name="cell", states=tuple(pairs)), replace(how, name="digits"), replace(how, name="again")
        ]  # fmt: skip
        models = mtool.compile_models([folder / "cell.onnx", DIGITS, DIGITS], board="host", options=options)
        self.manifests = [model.manifest for model in models]
        for name in models[0].files:
            if not name.endswith("_rpc.c"):
                (folder / name).write_bytes(models[0].files[name])
        sources = [*folder.glob("*.c"), CRT / "src" / "mt_schedule.c"]
        options = [*FLAGS, *sanitized.UNDEFINED, "-O1", "-shared", "-fPIC", f"-I{CRT / 'include'}", f"-I{folder}"]
        subprocess.run(["gcc", *options, *sources, "-o", folder / "models.so", "-lm"], check=True)
        self.code = ctypes.CDLL(str(folder / "models.so"))
        self.tasks = (Task * 3).in_dll(self.code, "cell_digits_again_tasks")
        self.ticks = 0
        self.clock = Clock(lambda: self.ticks)
        rng = np.random.default_rng(0)
        self.inputs, self.outputs = [], []
        self.fed: list[list[list[Array]]] = []
        for task, described in zip(self.tasks, self.manifests, strict=True):
            put = [np.zeros(tensor.shape, tensor.dtype) for tensor in described.inputs]
            got = [np.zeros(tensor.shape, tensor.dtype) for tensor in described.outputs]
            pointers = [(ctypes.c_void_p * len(some))(*(one.ctypes.data for one in some)) for some in (put, got)]
            task.inputs, task.outputs = (ctypes.addressof(one) for one in pointers)
            self.inputs.append((put, pointers[0]))
            self.outputs.append((got, pointers[1]))
            self.fed.append([[_random(rng, one) for one in put] for _ in range(CALLS)])
        self.alone = [self.run_alone(number) for number in range(3)]
        self.protos = [cell, onnx.load(DIGITS), onnx.load(DIGITS)]

    def reset(self) -> None:
        self.code.cell_reset()

    def release(self, number: int, call: int, deadline: int = 1000) -> None:
        for put, data in zip(self.inputs[number][0], self.fed[number][call], strict=True):
            put[...] = data
        self.code.mt_schedule_release(ctypes.byref(self.tasks[number]), self.ticks, deadline)

    def step(self) -> bool:
        """Run one operator, which takes a tick."""
        ran = bool(self.code.mt_schedule_step(self.tasks, 3, self.clock))
        self.ticks = (self.ticks + 1) & 0xFFFFFFFF
        return ran

    def results(self, number: int) -> list[Array]:
        return [one.copy() for one in self.outputs[number][0]]

    def run_alone(self, number: int) -> list[list[Array]]:
        self.reset()
        found = []
        for call in range(CALLS):
            self.release(number, call)
            while self.step():
                pass
            found.append(self.results(number))
        return found


def _random(rng: np.random.Generator, like: Array) -> Array:
    if like.dtype.kind == "f":
        return rng.standard_normal(like.shape).astype(like.dtype)
    return rng.integers(np.iinfo(like.dtype).min, np.iinfo(like.dtype).max, like.shape).astype(like.dtype)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Firmware:
    return Firmware(tmp_path_factory.mktemp("models"))


@pytest.fixture
def found(built: Firmware) -> Iterator[Firmware]:
    kept = bytes(built.tasks)
    yield built
    ctypes.memmove(built.tasks, kept, len(kept))


@pytest.mark.slow
def test_each_task_alone_gives_what_onnxruntime_does(found: Firmware) -> None:
    for number in (1, 2):
        names = [tensor.name for tensor in found.manifests[number].inputs]
        for fed, made in zip(found.fed[number], found.alone[number], strict=True):
            wanted = reference(found.protos[number], dict(zip(names, fed, strict=True)))
            for mine, theirs in zip(made, wanted, strict=True):
                np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)


def trial(found: Firmware, seed: int) -> int:
    """Release the models at random times, hold what they compute against what each does alone; count suspensions."""
    chance = random.Random(seed)
    found.reset()
    begun, ended, suspended = [0, 0, 0], [0, 0, 0], 0
    found.ticks = chance.choice([0, 0xFFFFFFF0])
    before = [task.runs for task in found.tasks]
    likely = [chance.random() / 3 for _ in found.tasks]
    while min(ended) < CALLS:
        for number in range(3):
            if begun[number] == ended[number] < CALLS and chance.random() < likely[number]:
                found.release(number, begun[number])
                begun[number] += 1
        found.step()
        suspended += sum(task.is_running for task in found.tasks) > 1
        for number, task in enumerate(found.tasks):
            assert task.status == 0
            if task.runs - before[number] > ended[number]:
                for mine, theirs in zip(found.results(number), found.alone[number][ended[number]], strict=True):
                    np.testing.assert_array_equal(mine, theirs, str((seed, number)))
                ended[number] += 1
    return suspended


@pytest.mark.slow
def test_random_schedules(found: Firmware) -> None:
    assert sum(trial(found, seed) for seed in range(amount.of(10_000, 300))) > 300


def test_pauses_that_the_arena_does_not_allow_are_detected(found: Firmware) -> None:
    several = [one for one in found.manifests[1:] if len(one.pauses) < len(one.operators) - 1]
    assert several
    for task in found.tasks:
        task.pauses = None
    with pytest.raises(AssertionError):
        for seed in range(200):
            trial(found, seed)
    while any(task.is_running or task.is_released for task in found.tasks):
        found.step()


def test_the_most_urgent_goes_first_and_its_wait_is_known(found: Firmware) -> None:
    for task in found.tasks:
        task.pauses = None  # before each operator: what they compute does not matter here
    urgent, network, last = found.tasks
    found.reset()
    for task in found.tasks:
        task.worst_ticks = task.missed = 0
    found.ticks = 0xFFFFFFFE
    found.release(2, 0)
    found.step()
    found.release(1, 0)
    found.release(0, 0, deadline=1)
    steps = len(found.manifests[0].operators)
    for _ in range(steps):
        assert network.is_running == 0
        found.step()
    assert (urgent.is_running, last.is_running, last.number, urgent.worst_ticks) == (0, 1, 1, steps - 1)
    assert urgent.missed == (steps - 1 > 1)
    found.step()
    assert network.is_running == 1
    found.release(0, 1)
    found.release(0, 1)  # before the one before has begun: that one is lost
    assert urgent.missed == (steps - 1 > 1) + 1
    while found.step():
        pass
    assert not any(task.is_running or task.is_released for task in found.tasks)
    # of one priority: by their deadlines, wherever the clock wraps
    network.priority = last.priority = 1
    for start, waited, deadline, late in ((0xFFFFFFF0, 0, 10, 100), (0xE0000000, 2**30, 0, 2**30 - 1)):
        found.ticks = start
        found.release(2, 0, deadline=deadline)
        found.ticks = (start + waited) & 0xFFFFFFFF
        found.release(1, 0, deadline=late)
        found.step()
        assert (network.is_running, last.is_running) == (0, 1)
        while found.step():
            pass
