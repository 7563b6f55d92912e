"""Convolutions for cores without SIMD."""

from mtool.compiler.kernels.conv2d.integer.depthwise_int8 import Depthwise
from mtool.compiler.kernels.conv2d.integer.im2col import Im2col, Pairs
from mtool.compiler.kernels.conv2d.integer.winograd_int8 import Winograd

SCHEDULES = (Im2col(), Depthwise(), Pairs(), Winograd())
