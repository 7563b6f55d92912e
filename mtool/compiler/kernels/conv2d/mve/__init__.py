"""Convolutions for Helium."""

from mtool.compiler.kernels.conv2d.mve import depthwise, f32, tiles_int8, tiles_int16
from mtool.compiler.kernels.conv2d.mve.depthwise3x3_int8 import Depthwise3x3
from mtool.compiler.kernels.conv2d.mve.depthwise3x3_squares_int8 import Squares
from mtool.compiler.kernels.conv2d.mve.pixels import Columns, Pixels

SCHEDULES = (
    tiles_int8.Pointwise(),
    Pixels(),
    Columns(),
    tiles_int8.Im2col(),
    Depthwise3x3(),
    Squares(),
    depthwise.Depthwise(),
    tiles_int16.Pointwise(),
    tiles_int16.Im2col(),
    depthwise.DepthwiseInt16(),
    f32.Im2col(),
    f32.Depthwise(),
)
