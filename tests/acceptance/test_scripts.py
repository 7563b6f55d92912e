"""Each script loads: the names that it imports exist, and other tests keep their environment."""

import os
import sys

import pytest
from script import FOLDER, load

OPTIONAL = ("matplotlib", "playwright", "librosa")


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.py")))
def test_each_script_loads(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.delitem(sys.modules, name, raising=False)
    before = dict(os.environ)
    try:
        load(name)
    except ModuleNotFoundError as missing:
        if missing.name not in OPTIONAL:
            raise
        pytest.skip(f"{missing.name} is not installed")
    assert dict(os.environ) == before
