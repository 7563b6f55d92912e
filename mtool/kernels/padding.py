"""Sizes that are filled up to whole vectors, words and tiles."""


def round_up(number: int, multiple: int) -> int:
    """Round up to a multiple."""
    return -(-number // multiple) * multiple
