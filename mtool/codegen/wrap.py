"""Wrap long lines of generated C at commas and operators."""

WIDTH = 118
_BREAKS = (", ", " + ", " - ", " ? ", " : ", " = ")


def wrapped(code: str) -> str:
    """Return the code with lines of at most `WIDTH` columns where they can be broken; comments are left alone."""
    return "\n".join(_wrapped_line(line) for line in code.split("\n"))


def _wrapped_line(line: str) -> str:
    indent = len(line) - len(line.lstrip())
    margin = " " * (indent + 8)
    if len(line) <= WIDTH or line.lstrip().startswith(("/*", "*", "#")) or '"' in line:
        return line
    pieces, rest = [], line
    while len(rest) > WIDTH:
        places = [(rest.rfind(mark, indent + 12, WIDTH - 1), mark) for mark in _BREAKS]
        commas, others = places[0], max(places[1:])
        place, mark = commas if commas[0] > WIDTH // 2 else max(commas, others)
        if place <= indent + 12:
            break
        cut = place + len(mark)
        pieces.append(rest[:cut].rstrip())
        rest = margin + rest[cut:]
    return "\n".join([*pieces, rest])
