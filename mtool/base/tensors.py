"""The types of arrays and samples, which all packages use."""

from typing import Any

from numpy.typing import NDArray

Array = NDArray[Any]
Sample = dict[str, Array]
"""Arrays of inputs or outputs by tensor name."""
