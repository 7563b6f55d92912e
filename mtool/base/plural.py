"""A number of things, in messages."""

_ES = ("s", "x", "ch", "sh")


def count(number: int, thing: str) -> str:
    """Format a number of things: 1 operator, 14 operators, 2 entries, 3 matches, 4 axes."""
    if number == 1:
        return f"1 {thing}"
    if thing.endswith("axis"):
        return f"{number:,} {thing[:-2]}es"
    if thing.endswith("y") and thing[-2] not in "aeiou":
        return f"{number:,} {thing[:-1]}ies"
    return f"{number:,} {thing}{'es' if thing.endswith(_ES) else 's'}"
