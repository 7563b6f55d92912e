"""docs/pipeline.md names existing functions."""

import importlib
import re
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "pipeline.md").read_text()
STAGES = re.findall(r"^\| \w+ \| `(mtool(?:\.\w+)+)`", PAGE, re.MULTILINE)


def test_each_function_is_there() -> None:
    assert len(STAGES) == 7
    for name in STAGES:
        parts = name.split(".")
        owner = parts[:-2] if parts[-2][0].isupper() else parts[:-1]
        found: object = importlib.import_module(".".join(owner))
        for part in parts[len(owner) :]:
            found = getattr(found, part)
        assert callable(found), name
