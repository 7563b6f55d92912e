import io
import re

from mtool.device.transport import ProcessTransport, Recorder


def test_all_that_goes_over_is_written_down() -> None:
    lines = io.StringIO()
    with Recorder(ProcessTransport(["cat"], name="cat"), lines) as transport:
        assert (transport.name, transport.is_lossless) == ("cat", True)
        transport.write(b"\0ab", timeout_s=5)
        assert transport.read(timeout_s=5) == b"\0ab"
        assert transport.read(timeout_s=0) == b""
    assert re.sub(r"(?m)^[\d.]+", "T", lines.getvalue()) == "T > 006162\nT < 006162\n"
