"""A Zephyr tree: where it is, which boards it knows, and what it says of one."""

from mtool.boards.zephyr.describing import PREFIX, describe
from mtool.boards.zephyr.failures import explain
from mtool.boards.zephyr.tree import (
    ROOTS,
    VARIANTS,
    base,
    board_names,
    find,
    hal_of,
    has_sdk,
    knows,
    modules_in,
    roots,
    variant_of,
    version,
    workspace,
)

__all__ = [
    "PREFIX",
    "ROOTS",
    "VARIANTS",
    "base",
    "board_names",
    "describe",
    "explain",
    "find",
    "hal_of",
    "has_sdk",
    "knows",
    "modules_in",
    "roots",
    "variant_of",
    "version",
    "workspace",
]
