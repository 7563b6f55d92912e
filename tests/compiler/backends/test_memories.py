"""Backends' buffers in named memories of the board, and cache maintenance for non-coherent devices."""

import shutil
from pathlib import Path

import amount
import onnx
import pytest
from onnx import TensorProto, helper

import mtool
from mtool import boards
from mtool.base.errors import BuildError, MtoolError
from mtool.compiler.backends import BackendSpec
from mtool.device.build import size
from mtool.manifest import Manifest
from mtool.stages.compiling import CompiledModel
from mtool.stages.options import Options

# A device behind a cache: what the core wrote it sees when that is cleaned, and the core sees its results when what
# it knew of them is invalidated. It refuses what lies outside of its memory.
SOURCE = """
#include "npu.h"
#include <string.h>
#define LINES 64
#define BYTES 2048
static uint8_t seen[BYTES];
static const uint8_t *base;
static uint8_t *at(const void *address) { return seen + ((const uint8_t *)address - base); }
void npu_clean(const void *address, size_t bytes) { memcpy(at(address), address, bytes); }
void npu_invalidate(const void *address, size_t bytes)
{
    union { const void *from; void *to; } both = {address};
    memcpy(both.to, at(address), bytes);
}
int32_t npu_open(void) { base = (const uint8_t *)(uintptr_t)MEMORY; return 0; }
int32_t npu_run(const float *from, float *to, int32_t count, uint8_t *work, uint8_t *fast)
{
    if ((uintptr_t)from % LINES != 0 || (uintptr_t)to % LINES != 0 || (uintptr_t)work % 8 != 0)
        return 6;
    if ((const uint8_t *)from < base || (const uint8_t *)to + 4 * count > base + BYTES || *at(work) != 42)
        return 7;
    if ((const uint8_t *)fast < base || fast > base + BYTES || *fast != 43 || *at(fast) == 43)
        return 8;
    for (int32_t i = 0; i < count; ++i) {
        float value;
        memcpy(&value, at(from + i), sizeof value);
        value = -value;
        memcpy(at(to + i), &value, sizeof value);
        to[i] = 99; /* a line of the cache, out of date */
    }
    *at(work) = 7;
    *work = 1;
    return 0;
}
"""
HEADER = """
#include <stddef.h>
#include <stdint.h>
int32_t npu_open(void);
int32_t npu_run(const float *from, float *to, int32_t count, uint8_t *work, uint8_t *fast);
void npu_clean(const void *address, size_t bytes);
void npu_invalidate(const void *address, size_t bytes);
"""
BACKEND = """
from mtool.compiler.backends import Backend, Buffer, Pattern, Product

class Npu(Backend):
    name = "npu"
    patterns = (Pattern("Neg"),)
    options = {{"place": "C"}}

    def compile(self, region, folder):
        count = region.outputs[0].type.count
        body = f"    return npu_run(input0, output0, {{count}}, work, fast);"
        product = dict(
            body=body, headers=("npu.h",), can_fail=True, hooks={{"open": "npu_open"}},
            files={{"npu.h": {header!r}, "npu.c": self.values["place"].encode() + {source!r}}},
            prepare="    work[0] = 42;\\n    fast[0] = 43;",
            finish="    output0[0] += work[0] == 7 ? 0.0f : 1.0f;",
            buffers={{
                "work": Buffer("{memory}", 16), "fast": Buffer("{memory}", 4, cached=False),
                "input0": Buffer("{memory}", alignment=64), "output0": Buffer("{memory}", alignment=64),
            }},
            device={{"work": "both", "fast": "reads"}},
            caches={{"clean": "npu_clean", "invalidate": "npu_invalidate"}},
        )
        return Product(**{{**product, **dict({change})}})
"""


def compiled(folder: Path, board: str = "mps3_an547", memory: str = "dtcm", change: str = "") -> tuple[Path, Options]:
    nodes = [
        helper.make_node("Sin", ["x"], ["s"], "the sine"),
        helper.make_node("Neg", ["s"], ["r"], "the negation"),
        helper.make_node("Exp", ["r"], ["e"], "the power"),
        helper.make_node("Neg", ["e"], ["y"], "the other negation"),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [37]) for name in "xy")
    graph = helper.make_graph(nodes, "net", [x], [y])
    path = folder / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    text = BACKEND.format(header=HEADER.encode(), source=SOURCE.encode(), memory=memory, change=change)
    (folder / "npu.py").write_text(text)
    place = f"extern uint8_t net_{memory}[];\n#define MEMORY net_{memory}\n"
    where = boards.get(board).memories
    if where:  # the address that the memory has, whatever the linker says
        place = f"#define MEMORY 0x{where[memory].base if memory in where else 0:x}u + START\n"
        place += f"extern uint8_t net_{memory}[];\n#define START ((uintptr_t)net_{memory} & 0xfffffu)\n"
    spec = BackendSpec(str(folder / "npu.py"), options={"place": f"#include <stdint.h>\n{place}"})
    return path, Options(backends=(spec,))


def model(folder: Path, **asked: str) -> CompiledModel:
    path, options = compiled(folder, **asked)
    return mtool.compile(path, board=asked.get("board", "mps3_an547"), options=options)


@pytest.mark.parametrize(
    ("board", "memory"),
    [
        ("mps3_an547", "dtcm"),
        *([("host", "anything"), ("mps2_an386", "psram"), ("mps2_an500", "psram")] if amount.IS_ALL else []),
    ],
)
def test_a_device_behind_a_cache(board: str, memory: str, tmp_path: Path) -> None:
    if shutil.which("cc" if board == "host" else "qemu-system-arm") is None:
        pytest.skip(f"nothing runs {board}")
    path, options = compiled(tmp_path, board, memory)
    report = mtool.verify(path, board=board, options=options, deployment=mtool.Deployment(tmp_path / "p"), samples=2)
    assert report.ok


def test_regions_have_a_memory_one_after_another(tmp_path: Path) -> None:
    made = model(tmp_path)
    assert made.manifest.device_buffers == {"dtcm": 64 + 3 * 64 + 3 * 64}, (
        "16 and 4 bytes, and 148 in lines of 64, twice"
    )
    assert b"MT_IN_MEMORY(dtcm, 64) uint8_t net_dtcm[448];" in made.files["net.c"]


@pytest.mark.parametrize(
    ("memory", "change", "words"),
    [
        (
            "dtcn",
            "",
            "dtcn, which is not a memory of mps3_an547; available: itcm .512 KB, code., .* dtcm .512 KB, data, stack",
        ),
        ("qspi", "", "qspi, which is for weights on mps3_an547"),
        ("dtcm", 'buffers={"work": Buffer("dtcm", 600000), "fast": Buffer("dtcm", 4)}', "in dtcm take 600,008 B"),
        ("dtcm", 'buffers={"work": Buffer("d t", 4)}', "is in 'd t'"),
        ("dtcm", 'buffers={"work": Buffer(3, 4)}', "memory of the buffer work is 3; expected a string"),
        ("dtcm", 'buffers={"work": Buffer("dtcm")}', "the buffer work has no bytes"),
        ("dtcm", 'buffers={"input0": Buffer("dtcm", 147)}', "has 147 bytes; it needs 148"),
        ("dtcm", 'buffers={"input1": Buffer("dtcm", 147)}', "the buffer input1 is neither a tensor"),
        ("dtcm", 'buffers={"scratch": Buffer("dtcm")}', "the buffer scratch has no bytes"),
        ("dtcm", 'buffers={"int": Buffer("dtcm", 4)}', "a name that is taken"),
        ("dtcm", 'buffers={"a b": Buffer("dtcm", 4)}', "nor a valid name in C"),
        ("dtcm", 'buffers={"work": 3}', "is 3; expected Buffer"),
        ("dtcm", 'buffers={"work": Buffer("dtcm", 4, alignment=3)}', "alignment of the buffer work is 3"),
        ("dtcm", 'buffers={"work": Buffer("dtcm", -4)}', "bytes of the buffer work is -4"),
        ("dtcm", 'buffers=["work"]', "expected a mapping of a string to Buffer"),
        ("dtcm", 'caches={"clean": "f"}', "both clean and invalidate"),
        ("dtcm", 'caches={"clean": "f()", "invalidate": "g"}', "the name of a C function"),
        ("dtcm", 'caches={"flush": "f"}', "caches has 'flush'"),
        ("dtcm", 'device={"work": "uses"}', "the device 'uses' work; expected reads"),
        ("dtcm", 'device={"input7": "reads"}', "not a tensor, buffer or constant"),
        ("dtcm", "prepare=3", "prepare is 3"),
    ],
)
def test_errors(tmp_path: Path, memory: str, change: str, words: str) -> None:
    with pytest.raises(MtoolError, match=words) as raised:
        model(tmp_path, memory=memory, change=change)
    assert raised.value.exit_code == 5 and "negation" in str(raised.value)


def test_a_template_without_support_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest: Manifest = model(tmp_path).render_project()[1]
    monkeypatch.setattr(size, "addresses", lambda elf: {"net_dtcm": 0x31000000})
    with pytest.raises(BuildError, match="does not place a backend's buffers in dtcm") as raised:
        size.check(tmp_path, manifest)
    assert ".bss.mt_memory.dtcm" in str(raised.value)
    monkeypatch.setattr(size, "addresses", lambda elf: {"net_dtcm": 0x30000040})
    size.check(tmp_path, manifest)
