"""The pages show the real output of `$ mtool …`: all of it with `make test-all`, otherwise a quick part.

`make outputs` updates the pages.
"""

import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import amount
import pytest
from script import load

TOOLS = ("arm-none-eabi-gcc", "qemu-system-arm", "gdb-multiarch", "avr-gcc", "cmake", "ninja")
COMPILER = "12.2"  # of the figures in the pages: others make other code
outputs: ModuleType = load("outputs")
PAGES = [page for page in outputs.PAGES if any(outputs.shown_in(page))]
NOT_RUN = {
    "modules.md": ["a key and a module of the reader's"] * 2,
    "own-ci.md": ["limits and data of the reader's"],
    "tune.md": ["minutes of tuning"] * 2,
    "your-board.md": ["what is installed"],
}
"""By page, the commands that a page says are not run: a test of the pages is none of them."""


@pytest.fixture(scope="module")
def has_tools() -> bool:
    """Whether what compiles and runs the pages' firmware is here, in the version that the figures are of."""
    if any(shutil.which(tool) is None for tool in TOOLS):
        return False
    version = subprocess.run([TOOLS[0], "-dumpfullversion"], capture_output=True, text=True, check=True).stdout
    return version.startswith(COMPILER)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_each_command_prints_what_the_page_shows(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_tools: bool
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    for shown, code, printed in outputs.run_page(page, tmp_path, lambda one: _takes(one, has_tools=has_tools)):
        reported = next((int(line.split()[1]) for line in shown.output if line.startswith("exit ")), 0)
        assert code == reported, f"{page.name}:{shown.number + 1}"
        assert outputs.is_shown(shown.output, printed), (
            f"{page.name}:{shown.number + 1}: {' '.join(shown.words)}: run `make outputs`\n" + "\n".join(printed)
        )


def _takes(shown: object, *, has_tools: bool) -> bool:
    return has_tools if amount.IS_ALL else shown.is_quick and amount.takes(" ".join(shown.words).encode())  # type: ignore[attr-defined]


def test_few_commands_are_not_run() -> None:
    marked = {
        page.name: [one.not_run for one in outputs.shown_in(page) if one.not_run and one.is_mtool]
        for page in outputs.PAGES
    }
    assert {name: sorted(reasons) for name, reasons in marked.items() if reasons} == {
        name: sorted(reasons) for name, reasons in NOT_RUN.items()
    }


@pytest.mark.parametrize(
    ("shown", "printed", "is_right"),
    [
        (["a 1.5 s", "b"], ["a 20 s", "b"], True),
        (["a", "b"], ["a", "c"], False),
        (["238,320 instructions"], ["128,880 instructions"], False),
        (["a"], ["a", "b"], False),
        (["a", "...", "c"], ["a", "b", "b", "c"], True),
        (["a", "...", "c"], ["a", "b", "c", "d"], False),
        (["a", "...", "c", "..."], ["a", "b", "c", "d"], True),
        (["...", "c"], ["a", "c", "d"], False),
        (["gcc 12.2.1", "build 9fe3db66"], ["gcc 13.1.0", "build 825b68f2"], True),
    ],
)
def test_only_what_differs_between_computers_is_not_compared(
    shown: list[str], printed: list[str], is_right: bool
) -> None:
    assert outputs.is_shown(shown, printed) == is_right
    assert outputs.is_shown(outputs.brought_up_to_date(shown, printed), printed)
