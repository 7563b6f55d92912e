"""Convolutions for SIMD32 (Armv7E-M, Armv8-M with DSP)."""

from mtool.compiler.kernels.conv2d.dsp import depthwise, tiles_int8, tiles_int16
from mtool.compiler.kernels.conv2d.dsp.depthwise3x3 import Depthwise3x3
from mtool.compiler.kernels.conv2d.dsp.winograd_int8 import Winograd

SCHEDULES = (
    tiles_int8.Pointwise(),
    tiles_int8.Im2col(),
    Depthwise3x3(),
    depthwise.Depthwise(),
    Winograd(),
    tiles_int16.Pointwise(),
    tiles_int16.Im2col(),
    depthwise.DepthwiseInt16(),
    depthwise.DepthwiseSums(),
)
