"""What the documentation names is there: files, links, commands and their options."""

import pydoc
import re
from pathlib import Path

import pytest

from mtool.cli import app

ROOT = Path(__file__).parents[2]
EXAMPLES = [ROOT / "examples" / name / "README.md" for name in ("accelerator", "digits", "own_kernel")]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *EXAMPLES]
TOP = {path.name for path in ROOT.iterdir()}

per_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())


@per_page
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        assert target.startswith("https://") or (page.parent / target).exists(), target


@per_page
def test_files_that_are_named_are_there(page: Path) -> None:
    for named in re.findall(r"`([\w./-]+)`", page.read_text()):
        if "/" in named and named.split("/")[0] in TOP - {"build"}:
            assert (ROOT / named).exists(), named


@per_page
def test_functions_and_modules_that_are_named_are_there(page: Path) -> None:
    for named in re.findall(r"(?<![\w/])mtool(?:\.\w+)+", page.read_text()):
        if named not in ("mtool.json", "mtool.toml", "mtool.operators"):  # files, and a group of entry points
            assert pydoc.locate(named) is not None, named


@per_page
def test_commands_are_as_written(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for line in re.findall(r"(?:^    |`)(?:\$ )?mtool ([^`\n]+)", page.read_text(), re.MULTILINE):
        name, *arguments = line.split("#")[0].split()
        if name.startswith("-") or not name.islower():
            continue
        assert app.invoke([name, "--help"]) == 0, line
        shown = capsys.readouterr().out
        for option in re.findall(r"--[a-z-]+", " ".join(arguments)):
            assert option in shown, f"mtool {line}: {option}"
