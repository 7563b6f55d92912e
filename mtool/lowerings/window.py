"""Windows that slide over space, in one or more dimensions."""

Pair = tuple[int, int]


def pair(values: tuple[int, ...], single: int) -> Pair:
    """Return a number for each of one or two dimensions as (vertical, horizontal), `single` where one is missing."""
    return (values[0], values[1]) if len(values) == 2 else (single, values[0])
