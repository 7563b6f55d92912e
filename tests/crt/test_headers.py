"""The runtime and its Python side have the same numbers and names."""

import re

from mtool.device.rpc import protocol
from mtool.device.rpc.protocol import FaultKind, Machine, Message, Status
from tests.crt.firmware import CRT

ROW = re.compile(r'X\((\w+),\s*(\w+),\s*"([^"]+)"\)')


def rows(header: str) -> list[tuple[str, int, str]]:
    found = ROW.findall((CRT / "include" / header).read_text())
    return [(name, int(code, 0), meaning) for name, code, meaning in found]


def test_statuses() -> None:
    found = rows("mtool.h")
    assert [(name, code) for name, code, _ in found] == [(code.name, code.value) for code in Status]
    assert [protocol.describe(code) for code in Status] == [f"{name}: {meaning}" for name, _, meaning in found]
    assert protocol.describe(13) == "MT_MODEL: the model failed"
    assert "77" in protocol.describe(77)


def test_messages() -> None:
    assert [(name, code) for name, code, _ in rows("mt_protocol.h")] == [(kind.name, kind.value) for kind in Message]


def enumerators(header: str, prefix: str) -> dict[str, int]:
    text = (CRT / "include" / header).read_text()
    return {name: int(value) for name, value in re.findall(rf"({prefix}\w+) = (\d+)", text)}


def test_faults() -> None:
    assert enumerators("mtool.h", "MT_FAULT_") == {kind.name: kind.value for kind in FaultKind}
    assert enumerators("mtool.h", "MT_MACHINE_") == {machine.name: machine.value for machine in Machine}


def test_constants() -> None:
    text = (CRT / "include" / "mt_protocol.h").read_text()
    defines = {name: int(value, 0) for name, value in re.findall(r"#define (\w+) (\w+?)u?\n", text)}
    assert defines["MT_PROTOCOL_VERSION"] == protocol.VERSION
    assert defines["MT_REPLY"] == protocol.REPLY
    assert defines["MT_HELLO_TAKE_OVER"] == protocol.TAKE_OVER
    kinds = [defines[name] for name in ("MT_INPUTS", "MT_OUTPUTS", "MT_ARENA_BYTES", "MT_ROWS")]
    assert kinds == [protocol.INPUTS, protocol.OUTPUTS, protocol.ARENA, protocol.ROWS]


def test_the_specification_has_every_number() -> None:
    text = (CRT / "PROTOCOL.md").read_text()
    for kind in Message:
        assert re.search(rf"^\| `0x{kind.value:02X}` \| {kind.name.removeprefix('MT_')} ", text, re.MULTILINE), kind
    for code in Status:
        assert re.search(rf"^\| {code.value} \| `{code.name}` ", text, re.MULTILINE), code
    for number in (*FaultKind, *Machine):
        assert re.search(rf"^\| {number.value} \| `{number.name}` ", text, re.MULTILINE), number


def test_no_two_headers_define_the_same_macro() -> None:
    """A model may include any of them together."""
    owners: dict[str, set[str]] = {}
    for path in (CRT / "include").glob("*.h"):
        for name in re.findall(r"^#\s*define (\w+)", path.read_text(), re.MULTILINE):
            owners.setdefault(name, set()).add(path.name)
    assert {name: found for name, found in owners.items() if len(found) > 1} == {}


def test_two_headers_are_public() -> None:
    headers = sorted((CRT / "include").glob("*.h"))
    internal = [path.name for path in headers if "Internal to mtool" in path.read_text().splitlines()[0]]
    assert [path.name for path in headers if path.name not in internal] == ["mt_rpc.h", "mtool.h"]


def test_a_project_s_own_files_include_no_other() -> None:
    """What a user may change: main, ports, timers, guards; of a chip's drivers there is a header of their own."""
    found = set()
    for path in (CRT.parent / "project_templates").rglob("*"):
        if path.stem in ("main", "bare_main", "port", "timer", "guard", "runner", "baremetal") and path.is_file():
            found |= set(re.findall(r'#include ["<](mt\w*\.h)[">]', path.read_text()))
    applications = {"mt_app.h", "mt_detector.h", "mt_hops.h"}
    assert found == {"mtool.h", "mt_rpc.h", "mt_build.h", "mt_ports.h", "mt_board.h", *applications}
