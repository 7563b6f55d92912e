"""All that the documentation names exists: files, links, functions, commands with their options, boards, keys."""

import ast
import functools
import inspect
import pydoc
import re
import tomllib
from pathlib import Path
from typing import Any

import pages
import pytest
import yaml
from typer.core import TyperCommand
from typer.exceptions import TyperException

from mtool import boards, project
from mtool.cli import app
from mtool.compiler.kernels import registry

ROOT = pages.ROOT
TOP = {path.name for path in ROOT.iterdir()}
NOT_MODULES = (  # files, groups of entry points, and metadata
    "mtool.slides", "mtool.states", "mtool.h", "mtool.json", "mtool.toml", "mtool.yml", "mtool.operators",
    "mtool.backends",
)  # fmt: skip
SCHEDULES = {"SCHEDULE", *(schedule.name for kernel in registry.KERNELS.values() for schedule in kernel.schedules)}
A_BOARD_OF_YOURS = re.compile(
    r"B|BOARD|NAME|my_\w+|simulated_\w+|zephyr:\S+|cortex-m\w+"
)  # what stands for a board, or a core of a rack


def name_of(page: Path) -> str:
    """Return a page's path in the repository."""
    return page.relative_to(ROOT).as_posix()


per_page = pytest.mark.parametrize("page", pages.PAGES, ids=name_of)
command_of = functools.cache(app.command_of)


def arguments_of(command: pages.Command) -> list[str]:
    """Return the words of a command line without the command's name."""
    words = list(command.words)
    words.remove(command.name)
    return words


def parse(command: pages.Command) -> dict[str, Any]:
    """Return what the command line's own parser makes of a command of a page."""
    known: TyperCommand = command_of(command.name)
    return known.make_context(command.name, arguments_of(command)).params


@per_page
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        assert target.startswith("https://") or (page.parent / target).exists(), target


@per_page
def test_links_to_pages_have_titles_not_file_names(page: Path) -> None:
    """The site has no files: `backends.md` is the page Backends there."""
    assert re.findall(r"\[[a-z][\w-]*\.md\]\(", page.read_text()) == []


@per_page
def test_files_that_are_named_are_there(page: Path) -> None:
    for named in re.findall(r"`([\w./-]+)`", page.read_text()):
        if "/" in named and named.split("/")[0] in TOP - {"build", ".github"}:  # a project of a user has them too
            assert (ROOT / named).exists(), named


@per_page
def test_functions_and_modules_that_are_named_are_there(page: Path) -> None:
    for named in re.findall(r"(?<![\w/.])mtool(?:\.\w+)+", page.read_text()):
        if named not in NOT_MODULES and not named.endswith(".pack"):
            assert pydoc.locate(named) is not None, named


@pytest.mark.parametrize("page", [page for page in pages.PAGES if page.name != "errors.md"], ids=name_of)
def test_each_command_of_a_block_is_one_that_can_be_typed(page: Path) -> None:
    for command in pages.commands(page.read_text()):
        assert command.name in app.COMMANDS, command.line
        try:
            values = parse(command)
        except TyperException as wrong:
            pytest.fail(f"{command.line}: {wrong.format_message()}")
        for asked in values.get("schedule") or ():
            assert re.split("[=:]", str(asked))[1] in SCHEDULES, command.line
        named = values.get("board") or []
        known = boards.load_all()
        for board in [named] if isinstance(named, str) else named:
            assert A_BOARD_OF_YOURS.fullmatch(board) or board in known, f"{command.line}: {board}"
            if board in known and command.name != "new":
                template = str(values.get("template") or next(iter(known[board].templates)))
                given = {str(one).partition("=")[0] for one in values.get("option") or ()}
                if given and (ROOT / "project_templates" / template).is_dir() and template != ".":
                    assert given <= set(project.load(template).options), command.line


@per_page
def test_each_command_of_a_sentence_is_one_of_ours_with_its_options(page: Path) -> None:
    for command in pages.mentioned(page.read_text()):
        if command.name in ("", "COMMAND"):  # `mtool --version`
            continue
        assert command.name in app.COMMANDS, command.line
        options = {option for parameter in command_of(command.name).params for option in parameter.opts}
        for word in arguments_of(command):
            option = word.partition("=")[0]
            assert not option.startswith("-") or option in {*options, "-vv", "--", "--help"}, (
                f"{command.line}: {option}"
            )


@per_page
def test_each_python_block_calls_what_is_there(page: Path) -> None:
    for block in pages.blocks(page.read_text(), "python"):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.Call) and (name := ast.unparse(node.func)).startswith("mtool."):
                called = pydoc.locate(name)
                assert called is not None, name
                given = [None] * len(node.args), {key.arg or "": None for key in node.keywords}
                inspect.signature(called).bind(*given[0], **given[1])  # type: ignore[arg-type]


@per_page
def test_each_block_of_toml_and_yaml_can_be_read(page: Path) -> None:
    text = page.read_text()
    for block in pages.blocks(text, "toml"):
        tomllib.loads(block)
    for block in pages.blocks(text, "yaml"):
        yaml.safe_load(block)


def test_each_extra_that_a_page_names_is_one_of_the_package_and_all_are_named() -> None:
    project_table = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = set(project_table["optional-dependencies"])
    for page in pages.PAGES:
        for package, named in re.findall(r"pip install (?:-\S+ )?'?([\w-]+)\[([\w,-]+)\]", page.read_text()):
            assert package == project_table["name"] and set(named.split(",")) <= extras, (
                f"{page.name}: {package}[{named}]"
            )
    table = (ROOT / "docs" / "install.md").read_text()
    assert {extra for extra in extras if f"| `{extra}` |" in table} == extras - {"dev", "exported", "slow"}
