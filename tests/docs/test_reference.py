"""The pages generated from code are up to date: docs/errors.md, docs/files.md."""

import pages
import pytest
from script import load

import mtool
from mtool import commands
from mtool.base import errors


@pytest.mark.parametrize("script", ["errors", "formats"])
def test_the_page_is_as_the_code_is(script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    module = load(script)
    assert module.RESULT.read_text() == module.page(), "run `make reference`"


def test_every_class_of_error_and_every_public_name_has_its_place() -> None:
    reported = (pages.ROOT / "docs" / "errors.md").read_text()
    for name, one in vars(errors).items():
        if isinstance(one, type) and issubclass(one, errors.MtoolError):
            assert f"| {one.exit_code} | `mtool.errors.{name}` | " in reported


def test_every_class_of_a_result_is_a_class_of_the_reference() -> None:
    written = (pages.ROOT / "docs" / "python.md").read_text()  # whose other classes and functions are those of __all__
    for name in {*commands.__all__} - {*mtool.__all__}:
        assert not isinstance(getattr(commands, name), type) or f".. autoclass:: mtool.commands.{name}\n" in written
