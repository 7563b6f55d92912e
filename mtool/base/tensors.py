"""The types of arrays and samples, which all packages use."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]
else:
    Array = type("ndarray", (), {})  # for annotations that are read at run time: importing NumPy takes long
Sample = dict[str, Array]
"""Arrays of inputs or outputs by tensor name."""
