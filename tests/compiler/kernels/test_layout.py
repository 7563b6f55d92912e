"""A schedule is in mtool/compiler/kernels/<operator>/<instruction set>/<method>_<type>.py."""

import importlib
from pathlib import Path

import pytest

from mtool.compiler.kernels import registry
from mtool.compiler.kernels.schedule import Schedule

KERNELS = Path(registry.__file__).parent
PLACES = {  # by what a schedule's name begins with: the folder, and how the file's name ends
    "c99": ("c99", ""), "int": ("integer", "_int8"), "f32": ("f32", "_f32"),
    "dsp": ("dsp", "_int8"), "dsp16": ("dsp", "_int16"),
    "mve": ("mve", "_int8"), "mve16": ("mve", "_int16"), "mve_f32": ("mve", "_f32"),
    "rvv": ("rvv", "_int8"), "simd": ("simd", ""),
}  # fmt: skip
SCHEDULES = [(op, schedule) for op, kernel in registry.KERNELS.items() for schedule in kernel.schedules]


@pytest.mark.parametrize(("op", "schedule"), SCHEDULES, ids=[f"{op}-{schedule.name}" for op, schedule in SCHEDULES])
def test_a_schedule_lies_in_the_folder_of_its_instruction_set(op: str, schedule: Schedule) -> None:
    words = schedule.name.split("_")
    folder, ending = PLACES["_".join(words[:2])] if "_".join(words[:2]) in PLACES else PLACES[words[0]]
    *package, name = type(schedule).__module__.split(".")
    assert package == ["mtool", "compiler", "kernels", op, folder]
    assert name.endswith(ending) or name == "move"  # of elements of any type


def test_the_folders_of_operators_and_of_the_kernel_library_have_the_same_names() -> None:
    folders = {folder for folder, _ in PLACES.values()}
    own = {name for name in registry.KERNELS if (KERNELS / name).is_dir()} | {"control"}
    for package in [KERNELS, *(KERNELS / name for name in own)]:
        found = {path.name for path in package.iterdir() if path.is_dir()}
        assert found - own - {"__pycache__", "epilogues"} <= folders, package


def test_no_file_of_a_schedule_is_overlooked() -> None:
    """A class with a name of a schedule is found by discovery, whatever file it lies in."""
    found = {type(schedule) for _, schedule in SCHEDULES}
    for path in KERNELS.rglob("[!_]*.py"):
        module = importlib.import_module(".".join(path.relative_to(KERNELS.parents[2]).with_suffix("").parts))
        for one in vars(module).values():
            if isinstance(one, type) and one.__module__ == module.__name__ and isinstance(vars(one).get("name"), str):
                assert not hasattr(one, "emit") or any(issubclass(each, one) for each in found), (path, one)
