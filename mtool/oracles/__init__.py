"""What runs a model on the host to compare with: onnxruntime, LiteRT. Their native code runs in a process of its own.

`process.call` runs a function of `server.FUNCTIONS` there. Nothing here imports the compile half, so that the process
starts fast.
"""

from typing import Any

from numpy.typing import NDArray

Array = NDArray[Any]
Sample = dict[str, Array]
