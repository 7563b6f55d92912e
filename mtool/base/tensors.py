"""The types of arrays and of samples, which every room uses."""

from typing import Any

from numpy.typing import NDArray

Array = NDArray[Any]
Sample = dict[str, Array]
"""Arrays of inputs or outputs by tensor name."""
