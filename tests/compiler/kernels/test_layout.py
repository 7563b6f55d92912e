"""Schedules are found in their module's tuple `SCHEDULES`, and their names have their instruction set."""

import importlib
from pathlib import Path

import pytest

from mtool.compiler.kernels import registry
from mtool.compiler.kernels.discovery import INSTRUCTION_SETS, instruction_set
from mtool.compiler.kernels.schedule import Schedule

KERNELS = Path(registry.__file__).parent
FOLDERS = {"int": "integer"}  # of instruction sets that are not named as their schedules begin
SCHEDULES = [(op, schedule) for op, kernel in registry.KERNELS.items() for schedule in kernel.schedules]


def _modules() -> list[str]:
    return [
        ".".join(path.relative_to(KERNELS.parents[2]).with_suffix("").parts).removesuffix(".__init__")
        for path in sorted(KERNELS.rglob("*.py"))
    ]


@pytest.mark.parametrize(("op", "schedule"), SCHEDULES, ids=[f"{op}-{schedule.name}" for op, schedule in SCHEDULES])
def test_a_schedule_lies_with_its_operator_and_in_no_folder_of_another_instruction_set(
    op: str, schedule: Schedule
) -> None:
    own = instruction_set(schedule)
    assert own in INSTRUCTION_SETS
    package = type(schedule).__module__.split(".")
    assert package[:4] == ["mtool", "compiler", "kernels", op]
    others = {FOLDERS.get(one, one) for one in INSTRUCTION_SETS if one != own}
    assert not others & {*package[4:5]}


def test_schedules_of_an_operator_stand_in_the_order_of_the_instruction_sets() -> None:
    order = [*INSTRUCTION_SETS]
    for kernel in registry.KERNELS.values():
        places = [order.index(instruction_set(schedule)) for schedule in kernel.schedules]
        assert places == sorted(places)


def test_the_folders_of_operators_and_of_the_kernel_library_have_the_same_names() -> None:
    sets = {FOLDERS.get(one, one) for one in INSTRUCTION_SETS}
    own = {name for name in registry.KERNELS if (KERNELS / name).is_dir()}
    for package in [KERNELS, *(KERNELS / name for name in own)]:
        found = {path.name for path in package.iterdir() if path.is_dir()}
        assert found - own - {"__pycache__"} <= sets, package


def test_no_class_of_a_schedule_is_overlooked() -> None:
    """A class with a name of a schedule is in a tuple, whatever file it lies in."""
    found = {type(schedule) for _, schedule in SCHEDULES}
    for name in _modules():
        module = importlib.import_module(name)
        for one in vars(module).values():
            if isinstance(one, type) and one.__module__ == name and isinstance(vars(one).get("name"), str):
                assert not hasattr(one, "emit") or any(issubclass(each, one) for each in found), (name, one)
