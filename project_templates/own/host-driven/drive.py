"""{{ title }}: {{ manifest.model_file }} on {{ board.name }}, driven from here. This file is yours: mtool never touches it again.

`mtool build` (an emulated board, this computer) or `mtool flash` (a board on the desk) comes first.
"""

from pathlib import Path

import numpy as np

import mtool


def main() -> None:
    """Run the model once, and show what came out and how long it took."""
    with mtool.open(Path(__file__).parent / "generated") as device:
        sample = {
{% for tensor in manifest.inputs %}
            {{ tensor.name | tojson }}: np.zeros({{ "(" ~ tensor.shape | join(", ") ~ ("," if tensor.shape | length == 1) ~ ")" }}, np.{{ "bool_" if tensor.dtype == "bool" else tensor.dtype }}),
{% endfor %}
        }
        for name, value in device.run(sample).items():
            print(name, value.dtype, value.shape, "largest at", int(value.argmax()))
        print(device.time(number=10, repeat=3))


if __name__ == "__main__":
    main()
