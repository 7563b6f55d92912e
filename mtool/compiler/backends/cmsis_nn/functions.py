"""Which function of CMSIS-NN computes an operation."""

from mtool.compiler.backends.cmsis_nn import arithmetic
from mtool.compiler.backends.operation import Operation
from mtool.compiler.operators.sliding_window import Pool
from mtool.compiler.operators.window import CONV, Convolution

_ELEMENTS = {"Softmax": "softmax", "Add": "elementwise_add", "Mul": "elementwise_mul"}


def function_of(operation: Operation) -> str:
    """Return the function's name; the operation is one that a pattern matches."""
    bits = "s16" if arithmetic.is_wide(operation) else "s8"
    if operation.kind == CONV:
        return f"arm_{'depthwise_conv' if is_depthwise(operation) else 'convolve'}_wrapper_{bits}"
    if isinstance(operation.attrs, Pool):
        return f"arm_{'avgpool' if operation.attrs.kind == 'average' else 'max_pool'}_{bits}"
    if operation.kind in ("Gemm", "MatMul"):
        if not operation.operand(1).is_constant:
            return f"arm_batch_matmul_{bits}"
        return f"arm_fully_connected_{bits if operation.operand(1).is_per_tensor else f'per_channel_{bits}'}"
    if operation.kind == "IntegerLstm":
        return "arm_lstm_unidirectional_s8"
    if operation.kind == "IntegerSvdf":
        return "arm_svdf_state_s16_s8" if operation.operand(1).dtype.label == "int16" else "arm_svdf_s8"
    return f"arm_{_ELEMENTS[operation.kind]}_{bits}"


def is_depthwise(operation: Operation) -> bool:
    """Whether each channel of a Conv is by itself."""
    attrs = operation.attrs
    assert isinstance(attrs, Convolution)
    return attrs.group == operation.operand(0).shape[-1] > 1
