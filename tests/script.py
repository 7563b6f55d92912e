"""Load a script of the folder scripts/ as a module."""

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from unittest import mock

FOLDER = Path(__file__).parents[1] / "scripts"


def load(name: str) -> ModuleType:
    """Run a script's definitions and return them; the environment stays as it is."""
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where its dataclasses look for their types
    with mock.patch.dict(os.environ):
        spec.loader.exec_module(module)
    return module
