"""Records of tuning logs for tests."""

from typing import Any

from mtool.compiler.tuned.record import (
    Measurement,
    Setup,
    Target,
    TaskRecord,
    WholePlan,
    digest,
    measurement_key,
    new_id,
)

TARGET = Target(cpu="cortex-m4", features=("dsp", "fpu"), compiler="arm-none-eabi-gcc 12.2.1", flags=("-mthumb",))
SETUP = Setup(board="b", template="baremetal", clock_hz=120_000_000, memories={"code": "flash"}, unit="ns")
TASK = TaskRecord(
    key=digest("a task"), op="dense", label="dense", reads=("int8[1,4]",), writes=("int8[1,2]",), attributes={},
    expression="",
)  # fmt: skip


def measurement(candidate: str = "c99_rows", *times: float, **given: Any) -> Measurement:
    values: dict[str, Any] = {
        "id": new_id(),
        "when": "2026-01-01T00:00:00Z",
        "mtool": "0.1.0",
        "target": TARGET,
        "setup": SETUP,
        "task": TASK,
        "candidate": candidate,
        "estimate": 100.0,
        "status": "ok" if times else "fault",
        "times": times,
        **given,
    }
    key = measurement_key(values["target"], values["setup"], values["task"].key, candidate)
    return Measurement(**{"key": key, **values})


def whole(choices: dict[str, str], **given: Any) -> WholePlan:
    values: dict[str, Any] = {
        "id": new_id(),
        "key": digest("a plan"),
        "when": "2026-01-01T00:00:00Z",
        "mtool": "0.1.0",
        "target": TARGET,
        "setup": SETUP,
        "model": "m.onnx",
        "model_hash": "0" * 64,
        "choices": choices,
        "arena_bytes": 8,
        "default_arena_bytes": 8,
        "times": (1.0,),
        "default_times": (2.0,),
        **given,
    }
    return WholePlan(**values)
