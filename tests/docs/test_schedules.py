"""docs/schedules.md is up to date."""

from pathlib import Path
from types import ModuleType

import pytest
from script import load

from mtool.compiler.kernels import registry

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load("schedules")


def test_the_page_is_as_the_schedules_are(script: ModuleType) -> None:
    assert (ROOT / "docs" / "schedules.md").read_text() == script.page(), "run `make schedules`"


def test_the_page_has_every_schedule_and_knob(script: ModuleType) -> None:
    page = script.page()
    for kernel in registry.KERNELS.values():
        for schedule in kernel.schedules:
            section = page.split(f"### `{schedule.name}`")[1].split("###")[0]
            assert "Supports: " in section and len(section.splitlines()) > 4
            for name in schedule.knobs():
                assert f"| `{name}` |" in section
