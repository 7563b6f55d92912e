"""Wrap long lines of generated C at commas and operators, the outermost first."""

WIDTH = 118
_BREAKS = {", ": 0, " || ": 1, " && ": 1, " + ": 1, " - ": 1, " ? ": 1, " : ": 1, " = ": 1, " * ": 2, " / ": 2}
_LEAST = WIDTH // 2  # columns of a line that is broken, where one can be that long


def wrapped(code: str) -> str:
    """Return the code with lines of at most `WIDTH` columns where they can be broken; comments are left alone."""
    return "\n".join(_wrapped_line(line) for line in code.split("\n"))


def _wrapped_line(line: str) -> str:
    indent = len(line) - len(line.lstrip())
    margin = " " * (indent + 8)
    if len(line) <= WIDTH or line.lstrip().startswith(("/*", "*", "#")) or '"' in line:
        return line
    pieces, rest, depth = [], line, 0
    while len(rest) > WIDTH:
        cut, depth = _break(rest, indent + 12, depth)
        if not cut:
            break
        pieces.append(rest[:cut].rstrip())
        rest = margin + rest[cut:]
    return "\n".join([*pieces, rest])


def _break(line: str, first: int, depth: int) -> tuple[int, int]:
    """Return the column at which to break a line that begins within `depth` brackets, and how many are open there.

    It is the last one within the fewest brackets, there a comma before an operator, a product last; else
    behind the last bracket of a call. 0: there is none.
    """
    best, found = (True, 0, 0, 0), (0, depth)
    call = found  # behind the last bracket of a call, if there is nothing else
    for column in range(WIDTH - 1):
        depth += (line[column] in "([{") - (line[column] in ")]}")
        if column <= first:
            continue
        if line[column] == "(" and (line[column - 1].isalnum() or line[column - 1] == "_"):
            call = (column + 1, depth)
        mark = next((mark for mark in _BREAKS if line.startswith(mark, column)), "")
        cut = column + len(mark)
        rank = (cut < _LEAST, depth, _BREAKS.get(mark, 0), -column)
        if mark and cut <= WIDTH and (not found[0] or rank < best):
            best, found = rank, (cut, depth)
    return found if found[0] else call
