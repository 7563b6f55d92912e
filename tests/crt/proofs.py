"""Frama-C's Eva on the runtime: no byte from outside makes it access memory wrongly, or do what C leaves undefined."""

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from mtool.base import resources

CRT = resources.path("crt")
TOOL = "frama-c"
ALARM = re.compile(r"^\[eva:alarm\] (\S+?):(\d+): Warning: *(.*(?:\n  .*)*)", re.MULTILINE)


@dataclass(frozen=True)
class Proof:
    """The sources that crt/tests/mt_prove_NAME.c is about, and where the analysis keeps states apart.

    states: the most states that it keeps apart in a function. by_result: functions whose results are kept apart by
    whether they are 0. macros: how the C is built; quick: those for a proof over fewer sizes, too. main: NAME, if it
    is not the proof's. machine: Frama-C's name of the data model.
    """

    sources: Sequence[str]
    states: Mapping[str, int] = field(default_factory=dict)
    by_result: Sequence[str] = ()
    macros: Sequence[str] = ()
    quick: Sequence[str] = ()
    main: str = ""
    machine: str = "gcc_x86_32"


BYTECODE = (
    *("copy", "map", "add_int8", "conv2d_int8", "depthwise_int8", "dense_int8", "pool_int8", "softmax_int8"),
    *("conv2d_f32", "pool_f32", "softmax_f32"),
)
PROOFS = {
    "link": Proof(
        ("src/mt_link.c", "src/mt_cobs.c", "src/mt_crc32.c"),
        states={"mt_link_poll": 1000, "fill": 100, "mt_port_read": 100},
    ),
    "server": Proof(
        ("src/mt_requests.c", "src/mt_functions.c", "src/mt_work.c", "src/mt_model.c", "src/mt_stack.c"),
        states={
            **{"mt_model_find": 20, "find_bytes": 20, "on_write": 30, "on_read": 30, "feed": 50, "put_sizes": 50},
            **{"read_tensor": 50, "read_arguments": 200, "mt_functions_invoke": 100, "mt_functions_find": 50},
            "on_invoke": 20,
        },
        by_result=("read_arguments", "read_tensor", "mt_model_find", "find_bytes"),
    ),
    "json": Proof(
        ("src/mt_json.c",),
        states={
            **{"peek": 50, "mt_json_take": 20, "mt_json_expect": 20, "mt_json_skip": 10},
            **{"mt_json_read_text": 20, "mt_json_read_number": 20},
        },
        by_result=("peek",),
        quick=("MOST=8u",),
    ),
    "slots": Proof(
        ("src/mt_crc32.c",),
        states={"main": 20, "put": 20, "mt_slots_write": 20, "load": 20},
        by_result=("record_at", "mt_slots_loaded"),
    ),
    "module": Proof(
        ("modules/mt_module.c",),
        states={
            **{"main": 200, "is_name": 40, "mt_module_find": 20, "kind_of": 4, "look": 20, "mt_module_open": 20},
            **{"mt_module_check_head": 20, "check": 20, "call": 4},
        },
        by_result=("read_head", "mt_module_check_head", "look", "mt_module_open", "kind_of", "check", "call"),
    ),
    "bytecode": Proof(
        ("bytecode/mt_bytecode.c", *(f"bytecode/mt_bytecode_{kernel}.c" for kernel in BYTECODE)),
        states={
            **{"check_files": 200, "check_plain": 100, "check_no_sizes": 100, "check_dense": 1000},
            **{"check_conv2d": 1000, "check_depthwise": 1000, "fits": 200, "mt_bytecode_are_sizes": 20},
            **{"mt_bytecode_reads": 10, "mt_bytecode_are_constants": 10, "is_step": 20, "are_words": 20},
        },
        by_result=(
            *("mt_bytecode_reads", "mt_bytecode_writes", "mt_bytecode_are_constants", "mt_bytecode_is_scratch"),
            *("mt_bytecode_are_sizes", "mt_bytecode_is_size", "mt_bytecode_is_pad", "is_step", "are_words", "meets"),
        ),
    ),
    "delta": Proof(
        ("src/mt_crc32.c",),
        states={"step": 100, "end_number": 50, "next_bit": 50, "put": 50, "begin_with": 50, "main": 500},
    ),
}

# The same with a link key.
for _name in ("link", "server", "slots"):
    _plain = PROOFS[_name]
    _sources = (*_plain.sources, "src/mt_siphash.c")
    PROOFS[f"{_name}_key"] = replace(_plain, sources=_sources, macros=("MT_LINK_KEY={0}",), main=_name)


@dataclass(frozen=True)
class Result:
    """The alarms of a proof, each as "file:line: what"."""

    alarms: tuple[str, ...]
    seconds: float


def command(name: str, *, quick: bool = False) -> list[str]:
    """Return the command of a proof."""
    proof = PROOFS[name]
    macros = [f"-D{macro}" for macro in (*proof.macros, *(proof.quick if quick else ()))]
    flags = " ".join([f"-I {CRT / 'include'}", f"-I {CRT / 'tests'}", *macros])
    apart = [f"{function}:{count}" for function, count in proof.states.items()]
    results = [f"{function}:0" for function in proof.by_result]
    return [
        *(TOOL, "-machdep", proof.machine, f"-cpp-extra-args={flags}", "-eva", "-eva-slevel", "0"),
        *("-eva-auto-loop-unroll", "300", "-eva-msg-key=-initial-state,-final-states"),
        *(["-eva-slevel-function", ",".join(apart)] if apart else []),
        *(["-eva-split-return-function", ",".join(results)] if results else []),
        str(CRT / "tests" / f"mt_prove_{proof.main or name}.c"),
        *(str(CRT / source) for source in proof.sources),
    ]


def prove(name: str, *, quick: bool = False) -> Result:
    """Run a proof; `quick`: over fewer sizes."""
    return analyzed(command(name, quick=quick), str(CRT))


def analyzed(argv: Sequence[str], folder: str) -> Result:
    """Run Frama-C; files of the alarms are relative to `folder`."""
    start = os.times()
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    seconds = os.times().children_user - start.children_user
    summary = done.stdout.rpartition("ANALYSIS SUMMARY")[2]
    assert done.returncode == 0 and "alarm" in summary, done.stdout[-3000:] + done.stderr[-1000:]
    found = {
        f"{file.removeprefix(f'{folder}/')}:{line}: {' '.join(what.split())}"
        for file, line, what in ALARM.findall(done.stdout)
    }
    if "NON TERMINATING" in done.stdout:
        found.add("an execution never ends, or all are wrong")
    return Result(tuple(sorted(found)), seconds)
