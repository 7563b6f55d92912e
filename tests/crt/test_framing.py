import subprocess

from tests.crt import firmware


def test_framing_in_c() -> None:
    program = firmware.build("mt_test_framing.c")
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
