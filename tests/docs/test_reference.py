"""The hand-written part of the reference has every exit code, class of error and class of result."""

import re

import pages

import mtool
from mtool import commands, errors
from mtool.base import errors as tree
from mtool.cli import app, ending


def test_every_exit_code_and_class_of_error_has_its_row() -> None:
    rows = {
        int(code): (meaning, set(re.findall(r"`mtool\.errors\.(\w+)`", classes)))
        for code, meaning, classes in re.findall(
            r"^\| (\d+) \| ([^|]+) \| ([^|]*)\|", (pages.ROOT / "docs" / "errors.md").read_text(), re.MULTILINE
        )
    }
    by_code: dict[int, set[str]] = {}
    for name in errors.__all__:
        by_code.setdefault(getattr(errors, name).exit_code, set()).add(name)
    assert {code: classes for code, (_, classes) in rows.items() if classes} == by_code
    ends = {0, ending.INTERRUPTED, ending.TERMINATED, ending.HUNG_UP}
    assert {*rows} == {*by_code, *ends}
    assert {*rows} == {int(code) for code in re.findall(r"\b\d+\b", app.HELP.partition("Exit codes:")[2])}


def test_every_class_of_error_is_public() -> None:
    assert set(errors.__all__) == {
        name for name, one in vars(tree).items() if isinstance(one, type) and issubclass(one, errors.MtoolError)
    }


def test_every_class_of_a_result_is_a_class_of_the_reference() -> None:
    written = (pages.ROOT / "docs" / "python.md").read_text()  # whose other classes and functions are those of __all__
    for name in {*commands.__all__} - {*mtool.__all__}:
        assert not isinstance(getattr(commands, name), type) or f".. autoclass:: mtool.commands.{name}\n" in written
