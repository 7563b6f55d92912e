"""The graph executor in C, under the sanitizers: a real graph, and thousands of truncated, edited and invented ones."""

import json
import random
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mtool import commands
from mtool.compiler.codegen import conventions
from mtool.device.rpc.protocol import Status
from tests.crt import firmware

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits_int8.onnx"
MODEL = commands.compile(DIGITS, board="host", options=commands.Options(conventions=conventions(executor="graph")))
MANIFEST = MODEL.manifest
GRAPH = MODEL.files[MANIFEST.graph].decode()
ROUNDS = 4000


def room(**changes: int) -> list[str]:
    """Return how much of everything the executor has, as the graph needs it but for `changes`."""
    graph = json.loads(GRAPH)
    reads = [len(node["inputs"]) for node in graph["nodes"]]
    needed = {
        "nodes": len(reads),
        "tensors": len(reads),
        "arguments": sum(reads) + len(reads),
        "values": max(reads) + 1,
        "dims": sum(map(len, graph["attrs"]["shape"][1])),
    }
    places = [number for t in (*MANIFEST.inputs, *MANIFEST.outputs) for number in (t.arena_offset, t.bytes)]
    return [str(number) for number in (MANIFEST.arena_bytes, *{**needed, **changes}.values(), *places)]


def statuses(graphs: list[bytes], **changes: int) -> list[tuple[int, int]]:
    """Open and run graphs; the statuses of both."""
    program = firmware.build("mt_test_graph.c")
    given = b"".join(struct.pack("<I", len(graph)) + graph for graph in graphs)
    names = MANIFEST.functions[:-1]
    done = subprocess.run(
        [program, *room(**changes), *names],
        input=given,
        capture_output=True,
        check=False,
        env={"ASAN_OPTIONS": "detect_leaks=0"},  # the room is needed until the end
    )
    assert (done.returncode, done.stderr.decode()) == (0, "")
    found = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    assert len(found) == len(graphs)
    return [(opened, ran) for opened, ran in found]


def edited(change: object) -> bytes:
    graph = json.loads(GRAPH)
    change(graph)  # type: ignore[operator]
    return json.dumps(graph).encode()


def test_the_generated_graph_and_other_spellings_of_it() -> None:
    graph = json.loads(GRAPH)
    spellings = [GRAPH, json.dumps(graph), json.dumps(graph, indent=4), json.dumps(graph, sort_keys=True)]
    spellings.append(json.dumps({"metadata": {"a": [1, {"b": None}, -1.5e3, '\\"x]']}, **graph}))
    assert statuses([text.encode() for text in spellings]) == [(0, 0)] * len(spellings)


@pytest.mark.parametrize("what", ["nodes", "tensors", "arguments", "values", "dims"])
def test_too_little_memory_for_the_graph(what: str) -> None:
    parts = ["nodes", "tensors", "arguments", "values", "dims"]
    exact = int(room()[1 + parts.index(what)])
    assert statuses([GRAPH.encode()], **{what: exact - 1}) == [(Status.MT_TOO_LARGE, 0)]


def attribute(name: str, position: int, value: Any) -> object:
    def change(graph: dict[str, Any]) -> None:
        graph["attrs"][name][1][position] = value

    return change


@pytest.mark.parametrize(
    ("change", "status"),
    [
        (lambda graph: graph["nodes"][2]["attrs"].update(func_name="nothing"), Status.MT_UNKNOWN_FUNCTION),
        (lambda graph: graph["nodes"][2].update(inputs=[[2, 0, 0]]), Status.MT_BAD_GRAPH),
        (lambda graph: graph["nodes"][2].update(inputs=[[0, 1, 0]]), Status.MT_BAD_GRAPH),
        (lambda graph: graph["nodes"][2].update(inputs=[[-1, 0, 0]]), Status.MT_BAD_GRAPH),
        (lambda graph: graph["nodes"][2].update(op="tvm"), Status.MT_BAD_GRAPH),
        (lambda graph: graph["nodes"][2].pop("inputs"), Status.MT_BAD_GRAPH),
        (lambda graph: graph.pop("nodes"), Status.MT_BAD_GRAPH),
        (lambda graph: graph.update(heads=[]), Status.MT_BAD_GRAPH),
        (lambda graph: graph.update(heads=[[0, 0, 0]]), Status.MT_BAD_GRAPH),
        (lambda graph: graph.update(arg_nodes=[2]), Status.MT_BAD_GRAPH),
        (lambda graph: graph.update(arg_nodes=[0, 0]), Status.MT_BAD_GRAPH),
        (attribute("dltype", 1, "complex64"), Status.MT_BAD_GRAPH),
        (attribute("shape", 2, [1, 8, 8, 16000]), Status.MT_BAD_RANGE),
        (attribute("shape", 2, [1 << 31, 1 << 31]), Status.MT_BAD_RANGE),
        (attribute("shape", 2, [1 << 32]), Status.MT_BAD_GRAPH),
        (attribute("storage_place", 2, MANIFEST.arena_bytes), Status.MT_BAD_RANGE),
        (attribute("storage_memory", 2, 3), Status.MT_BAD_GRAPH),
        (attribute("storage_memory", 2, 1), Status.MT_BAD_RANGE),
        (lambda graph: graph["attrs"]["shape"][1].pop(), Status.MT_BAD_GRAPH),
        (lambda graph: graph["attrs"]["shape"][1].append([1]), Status.MT_BAD_GRAPH),
    ],
)
def test_errors_are_reported(change: object, status: Status) -> None:
    assert statuses([edited(change)]) == [(status, 0)]


def test_no_graph_leaves_its_memory() -> None:
    random_ = random.Random(5)
    pieces = [
        b"[",
        b"]",
        b"{",
        b"}",
        b'"',
        b"\\",
        b",",
        b":",
        b"0",
        b"4294967295",
        b"18446744073709551616",
        b"-1",
        b"\0",
    ]
    graphs = [GRAPH.encode()[:end] for end in range(0, len(GRAPH), 7)]
    graphs += [piece * count for piece in pieces for count in (1, 15, 16, 17, 40, 5000)]
    for _ in range(ROUNDS):
        data = bytearray(GRAPH.encode())
        for _ in range(random_.choice((1, 1, 2, 8))):
            at = random_.randrange(len(data))
            kind = random_.randrange(4)
            if kind == 0:
                data[at] = random_.randrange(256)
            elif kind == 1:
                data[at:at] = random_.choice(pieces)
            elif kind == 2:
                del data[at : at + random_.randrange(1, 40)]
            else:
                begin = random_.randrange(len(data))
                data[at:at] = data[begin : begin + random_.randrange(1, 60)]
        graphs.append(bytes(data))
    found = statuses(graphs)
    assert {opened for opened, _ in found} <= {0, *(status.value for status in Status)}
    assert {Status.MT_OK, Status.MT_BAD_GRAPH, Status.MT_BAD_RANGE, Status.MT_TOO_LARGE} <= {o for o, _ in found}
    assert all(ran == 0 for _, ran in found)


@pytest.mark.slow
def test_numbers_are_edited_too() -> None:
    """Digits alone: most of these are well-formed graphs whose tensors lie and look otherwise."""
    random_ = random.Random(6)
    digits = [at for at, letter in enumerate(GRAPH) if letter.isdigit()]
    graphs = []
    for _ in range(ROUNDS):
        data = bytearray(GRAPH.encode())
        for at in random_.sample(digits, random_.randrange(1, 5)):
            data[at] = ord(random_.choice("0123456789"))
        graphs.append(bytes(data))
    found = statuses(graphs)
    assert sum(opened == 0 for opened, _ in found) > 20, "some are still graphs, and are run"
    assert sys.byteorder == "little"
