"""Malformed modules on the device: refused, or opened within their memory."""

import subprocess
from pathlib import Path

import amount
import pytest
import sanitized
from crt.firmware import STRICT

from mtool.device.rpc.protocol import Status
from mtool.manifest.modules.format import pack
from tests.manifest.modules.test_format import MODULE

CRT = Path(__file__).parents[3] / "crt"
SOURCES = [CRT / "tests" / "mt_test_module.c", *(CRT / "modules" / f"{name}.c" for name in ("mt_module", "mt_sha512"))]


@pytest.mark.slow
def test_changed_modules_stay_within_their_memory(tmp_path: Path) -> None:
    program = sanitized.build(SOURCES, tmp_path / "program", STRICT)
    (tmp_path / "one.mtm").write_bytes(pack(MODULE))
    times = amount.of(100_000, 8_000)
    done = subprocess.run([program, tmp_path / "one.mtm", str(times), "1"], stdout=subprocess.PIPE, text=True)
    assert done.returncode == 0
    found = {Status(int(code)): int(count) for code, count in (line.split() for line in done.stdout.splitlines())}
    assert sum(found.values()) == times
    assert {*found} == {
        Status.MT_OK, Status.MT_BAD_MODULE, Status.MT_OLD_MODULE, Status.MT_WRONG_MACHINE, Status.MT_NO_MEMORY,
        Status.MT_MISSING_IMPORT,
    }  # fmt: skip
    assert min(found.values()) > times // 1000
