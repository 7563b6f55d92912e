"""Convolutions for Helium."""

from mtool.compiler.kernels.conv2d.mve import depthwise, tiles

SCHEDULES = (
    tiles.PointwiseInt8(),
    tiles.Pixels(),
    tiles.Columns(),
    tiles.Im2colInt8(),
    depthwise.Depthwise3x3(),
    depthwise.Squares(),
    depthwise.Depthwise(),
    tiles.PointwiseInt16(),
    tiles.Im2colInt16(),
    depthwise.DepthwiseInt16(),
    tiles.Im2colF32(),
    depthwise.DepthwiseF32(),
)
