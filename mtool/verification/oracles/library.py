"""onnxruntime, as it is imported everywhere."""

import os
from typing import Any


def onnxruntime() -> Any:
    """Import onnxruntime without its telemetry, which sends reports and leaves a file `.ses` in the temporary folder.

    Raises:
        ImportError: it is not installed.
    """
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # read when it is imported
    import onnxruntime

    return onnxruntime
