"""The stack use of functions, from GCC's call graphs."""

import subprocess
from pathlib import Path

from mtool.device.build.symbolizer import deepest


def node(name: str, size: int, how: str = "static") -> str:
    return f'node: {{ title: "{name}" label: "{name}\\na.c:1:1\\n{size} bytes ({how})" }}\n'


def edge(source: str, target: str) -> str:
    return f'edge: {{ sourcename: "{source}" targetname: "{target}" label: "a.c:1:2" }}\n'


NODES = node("f", 8) + node("g", 16) + node("h", 100) + node("i", 32)


def test_the_deepest_path_counts() -> None:
    calls = edge("f", "g") + edge("f", "h") + edge("g", "i") + edge("i", "memcpy") + edge("h", "memcpy")
    assert deepest([NODES, calls], "f") == 108 and deepest([NODES + calls], "g") == 48


def test_what_is_not_known_is_nothing() -> None:
    assert deepest([NODES + edge("f", "g") + edge("g", "i") + edge("i", "g")], "f") == 0
    assert deepest([NODES + edge("f", "g") + edge("g", "__indirect_call")], "f") == 0
    assert deepest([NODES + node("k", 8, "dynamic") + edge("f", "k")], "f") == 0
    assert deepest([NODES + node("k", 8, "dynamic") + edge("k", "f")], "f") == 8


def test_gccs_own_texts_are_read(tmp_path: Path) -> None:
    source = (
        "#include <string.h>\nint f(int *x);\n"
        "static __attribute__((noinline)) int g(int *x) { volatile char y[999]; y[0] = 1; return y[x[0]]; }\n"
        "int f(int *x) { memset(x, 1, 400); return g(x) + 1; }\n"
    )
    (tmp_path / "a.c").write_text(source)
    argv = ["gcc", "-O2", "-fno-stack-protector", "-fcallgraph-info=su", "-c", "a.c"]
    subprocess.run(argv, cwd=tmp_path, check=True)
    assert 850 < deepest([(tmp_path / "a.ci").read_text()], "f") < 1100  # less the red zone, which x86-64 has
