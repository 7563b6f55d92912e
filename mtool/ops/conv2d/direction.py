"""The direction in which a depthwise schedule walks over a channel's plane: a knob of each of them."""

DIRECTIONS = ("straight", "turned")
DIRECTION_MEANING = "inner loop along rows, or along columns of a turned plane; auto: with the fewer instructions"
