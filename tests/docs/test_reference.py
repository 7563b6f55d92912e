"""The pages that are written from the code are as the code is: docs/errors.md, docs/python.md, docs/files.md."""

import pages
import pytest
from script import load

import mtool
from mtool.base import errors


@pytest.mark.parametrize("script", ["errors", "python_api", "formats"])
def test_the_page_is_as_the_code_is(script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    module = load(script)
    assert module.RESULT.read_text() == module.page(), "run `make reference`"


def test_every_class_of_error_and_every_public_name_has_its_place() -> None:
    told = (pages.ROOT / "docs" / "errors.md").read_text()
    for name, one in vars(errors).items():
        if isinstance(one, type) and issubclass(one, errors.MtoolError):
            assert f"| {one.exit_code} | `mtool.errors.{name}` | " in told
    written = (pages.ROOT / "docs" / "python.md").read_text()
    for name in mtool.__all__:
        assert f"### mtool.{name}\n" in written or name in ("__version__", "errors")
