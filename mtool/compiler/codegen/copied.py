"""A constant that has a copy in a pool of the arena."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Copied:
    """The copy of a constant: its pool's number, the offset there, its bytes, and its elements' type in C."""

    pool: int
    offset: int
    bytes: int
    c_type: str
