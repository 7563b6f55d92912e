"""Convolutions for SIMD32 (Armv7E-M, Armv8-M with DSP)."""

from mtool.compiler.kernels.conv2d.dsp import depthwise, tiles

SCHEDULES = (
    tiles.PointwiseInt8(),
    tiles.Im2colInt8(),
    depthwise.Depthwise3x3(),
    depthwise.Depthwise(),
    tiles.PointwiseInt16(),
    tiles.Im2colInt16(),
    depthwise.DepthwiseInt16(),
    depthwise.DepthwiseSums(),
)
