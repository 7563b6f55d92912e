"""The records of flash_runners.yaml; mtool.device.flash runs these tools, and boards' entries refer to them."""

import functools
from pathlib import Path
from typing import Any

from mtool.base import resources

FILE = Path(__file__).with_suffix(".yaml")


@functools.cache
def records() -> dict[str, dict[str, Any]]:
    """Return each flash runner's record by its name."""
    result: dict[str, dict[str, Any]] = resources.read_yaml(FILE)
    return result


def settings_of(name: str) -> tuple[str, ...]:
    """Return the names of a runner's settings in a board's entry."""
    return tuple(records()[name].get("settings", {}))
