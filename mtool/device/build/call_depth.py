"""How deep the stack of linked functions goes, from what GCC says of each (`-fcallgraph-info=su`)."""

import re
from collections.abc import Iterable

_NODE = re.compile(
    r'^node: \{ title: "([^"]+)" label: "[^"]*?(?:\\n(\d+) bytes \(([\w,]+)\))?" ?(?:shape|\})', re.MULTILINE
)
_EDGE = re.compile(r'^edge: \{ sourcename: "([^"]+)" targetname: "([^"]+)"', re.MULTILINE)
_INDIRECT = "__indirect_call"


def deepest(texts: Iterable[str], start: str) -> int:
    """Return the bytes of stack that a function takes with all that it calls.

    Functions that no text describes (of the firmware, of the compiler's library) count as nothing.

    Args:
        texts: the call graphs, one of each file.
        start: the function's name.

    Returns:
        0 where it is not known: functions call one another in a circle or through a pointer, or a frame's size varies.
    """
    frames: dict[str, int] = {}
    calls: dict[str, set[str]] = {}
    varying = set()
    for text in texts:
        for name, size, how in _NODE.findall(text):
            if size:
                frames[name] = int(size)
                if how not in ("static", "dynamic,bounded"):
                    varying.add(name)
        for source, target in _EDGE.findall(text):
            calls.setdefault(source, set()).add(target)
    depths: dict[str, int | None] = {}

    # Depth first, without recursion: a function is left when those that it calls are known.
    waiting = [start]
    while waiting:
        name = waiting[-1]
        if name not in depths:
            depths[name] = None
            waiting += [one for one in sorted(calls.get(name, ())) if one not in depths]
            continue
        waiting.pop()
        if depths[name] is None:
            inner = [depths[one] for one in calls.get(name, ())]
            if name == _INDIRECT or name in varying or None in inner:
                return 0
            depths[name] = frames.get(name, 0) + max([one for one in inner if one is not None], default=0)
    return depths[start] or 0
