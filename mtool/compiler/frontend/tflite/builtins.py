"""The table of TFLite's operators, and the translation of each in each arithmetic."""

import math
from collections.abc import Callable, Sequence

import numpy as np

from mtool.base.frozen import frozen
from mtool.compiler.frontend.tflite import (
    control,
    custom,
    elementwise,
    images,
    movement,
    products,
    recurrent,
    reductions,
    signal,
)
from mtool.compiler.frontend.tflite.elementwise import by_table, composed, interpolated, plain, single
from mtool.compiler.frontend.tflite.products import Exact, Hybrid, Real
from mtool.compiler.frontend.tflite.rescaling import checked
from mtool.compiler.frontend.tflite.rewriting import COPY, ROW
from mtool.compiler.frontend.tflite.schema import Operator, Tensor
from mtool.compiler.frontend.tflite.translation import Translate, Translation
from mtool.compiler.operators import operators
from mtool.compiler.operators.problems import Unsupported


@frozen
class Builtin:
    """An operator's translations.

    real: the translation to real numbers; quantized operands are dequantized.
    exact: the translation to the integer arithmetic of LiteRT's reference kernels; None: it only moves integers.
    wide: the same for int16 with zero point 0, where it differs.
    hybrid: the translation for float activations and int8 weights, to integer products as in LiteRT.
    is_move: it only moves elements, also complex ones.
    is_coarse: all of LiteRT's kernels compute it coarsely for int16: by tables, and with fractions of 10 bits.
    is_integer: LiteRT has one integer arithmetic for it, whatever the rounding.
    has_outputs: whether it has outputs.
    """

    real: Translate
    exact: Translate | None = None
    wide: Translate | None = None
    hybrid: Translate | None = None
    is_move: bool = False
    is_coarse: bool = False
    is_integer: bool = False
    has_outputs: bool = True

    def translate_exactly(self, t: Translation) -> None:
        """Append the operator in integer arithmetic.

        Raises:
            Unsupported: it has none, and does more than move integers.
        """
        exact = self.wide if self.wide is not None and elementwise.is_wide(t) else self.exact
        if exact is not None:
            exact(t)
            return
        start = len(t.nodes)
        self.real(t)
        if any(node.op_type == "QuantizeLinear" for node in t.nodes[start:]):
            raise Unsupported("it is not supported with --rounding tflite")


def _moves(*kinds: str, real: Translate) -> dict[str, Builtin]:
    return dict.fromkeys(kinds, Builtin(real, is_move=True))


def _of_floats(real: Translate, function: elementwise.Function) -> Builtin:
    """A function of real numbers as a table: for 8 bits with all results, for int16 interpolated linearly."""
    return Builtin(real, by_table(single(function)), interpolated(function), is_coarse=True)


def _clip(real: Translate, least: float, most: float, *, wide: bool = False) -> Builtin:
    """A clamp to two numbers; `wide`: LiteRT has it for int16, too."""
    exact = elementwise.linear(least, most)
    return Builtin(real, by_table(exact), elementwise.wide_linear(least, most) if wide else None)


def _products(
    translate: Callable[[type[Real]], Translate], operands: tuple[int, ...], hybrid: type[Hybrid] | None = None
) -> Builtin:
    """Sums of products, whose translator takes an arithmetic."""
    exact = checked(translate(Exact), *operands)
    return Builtin(translate(Real), exact, hybrid=None if hybrid is None else translate(hybrid))


def _recurrent(real: Translate) -> Builtin:
    return Builtin(real, is_integer=True)


BUILTINS: dict[str, Builtin] = {
    **{
        builtin.name: Builtin(plain(operator.name, builtin.inputs, is_stored=builtin.is_stored))
        for operator in operators().values()
        for builtin in operator.tflite
    },
    # Sums of products.
    **dict.fromkeys(("CONV_2D", "DEPTHWISE_CONV_2D"), _products(products.conv, (0,), Hybrid)),
    "CONV_3D": Builtin(products.conv(Real)),
    "TRANSPOSE_CONV": Builtin(products.transpose_conv, checked(products.exact_transpose_conv, 2)),
    "FULLY_CONNECTED": _products(products.fully_connected, (0,), Hybrid),
    "BATCH_MATMUL": _products(products.batch_matmul, (0, 1)),
    # Images.
    "AVERAGE_POOL_2D": Builtin(images.average_pool, images.exact_average_pool),
    "MAX_POOL_2D": Builtin(images.max_pool, images.exact_max_pool),
    "L2_POOL_2D": Builtin(images.l2_pool),
    "RESIZE_BILINEAR": Builtin(images.resize("linear"), images.exact_resize_bilinear, is_coarse=True),
    "RESIZE_NEAREST_NEIGHBOR": Builtin(images.resize("nearest")),
    "SPACE_TO_DEPTH": Builtin(images.blocks("SpaceToDepth")),
    "DEPTH_TO_SPACE": Builtin(images.blocks("DepthToSpace", mode="DCR")),
    "SPACE_TO_BATCH_ND": Builtin(images.space_to_batch),
    "BATCH_TO_SPACE_ND": Builtin(images.batch_to_space),
    # Single elements: two operands.
    "ADD": Builtin(plain("Add", 2), elementwise.exact_sum("Add")),
    "SUB": Builtin(plain("Sub", 2), elementwise.exact_sum("Sub")),
    "MUL": Builtin(plain("Mul", 2), elementwise.exact_product),
    "DIV": Builtin(plain("Div", 2), elementwise.exact_quotient),
    "MAXIMUM": Builtin(plain("Max", 2), elementwise.exact_extreme("Max")),
    "MINIMUM": Builtin(plain("Min", 2), elementwise.exact_extreme("Min")),
    "PRELU": Builtin(composed(elementwise.prelu, 2), elementwise.exact_prelu),
    "SQUARED_DIFFERENCE": Builtin(
        composed(lambda t, a, b: t("Mul", *[t("Sub", a, b)] * 2), 2), elementwise.exact_squared_difference
    ),
    "FLOOR_DIV": Builtin(elementwise.floor_div),
    "FLOOR_MOD": Builtin(composed(elementwise.floor_mod, 2)),
    "ADD_N": Builtin(elementwise.add_n),
    "ATAN2": Builtin(composed(elementwise.atan2, 2)),
    "NOT_EQUAL": Builtin(composed(lambda t, a, b: t("Not", t("Equal", a, b)), 2)),
    "RIGHT_SHIFT": Builtin(elementwise.right_shift),
    "STABLEHLO_AND": Builtin(elementwise.stablehlo_and),
    "SELECT": Builtin(elementwise.select),
    "SELECT_V2": Builtin(elementwise.select),
    # Single elements: one operand.
    "RELU": _clip(plain("Relu"), 0.0, math.inf, wide=True),
    "RELU6": _clip(composed(lambda t, x: t("Clip", x, 0.0, 6.0)), 0.0, 6.0, wide=True),
    "RELU_N1_TO_1": _clip(composed(lambda t, x: t("Clip", x, -1.0, 1.0)), -1.0, 1.0),
    "RELU_0_TO_1": _clip(composed(lambda t, x: t("Clip", x, 0.0, 1.0)), 0.0, 1.0),
    "LEAKY_RELU": Builtin(
        composed(lambda t, x: t("LeakyRelu", x, alpha=float(t.op.option("Alpha", 0.0)))),
        by_table(elementwise.exact_leaky_relu),
        elementwise.wide_leaky_relu,
    ),
    "HARD_SWISH": Builtin(plain("HardSwish"), by_table(elementwise.exact_hard_swish)),
    "LOGISTIC": Builtin(plain("Sigmoid"), by_table(single(elementwise.sigmoid)), elementwise.wide_logistic),
    "TANH": Builtin(plain("Tanh"), by_table(single(lambda _, x: np.tanh(x))), elementwise.wide_tanh),
    "ELU": Builtin(plain("Elu"), by_table(single(lambda _, x: np.where(x < 0, np.expm1(np.minimum(x, 0)), x)))),
    "GELU": _of_floats(
        composed(lambda t, x: t("Gelu", x, approximate="tanh" if t.op.option("Approximate", False) else "none")),
        elementwise.gaussian,
    ),
    "EXP": _of_floats(plain("Exp"), lambda _, x: np.exp(np.minimum(x, 88.0))),
    "LOG": _of_floats(plain("Log"), elementwise.logarithm),
    "ABS": Builtin(plain("Abs"), by_table(elementwise.absolute), elementwise.wide_absolute),
    "NEG": Builtin(plain("Neg"), by_table(elementwise.negative)),
    "SQUARE": Builtin(composed(lambda t, x: t("Mul", x, x))),
    "SQRT": Builtin(plain("Sqrt"), by_table(elementwise.root), elementwise.wide_root),
    "RSQRT": Builtin(
        composed(lambda t, x: t("Reciprocal", t("Sqrt", x))),
        by_table(elementwise.exact_inverse_root),
        interpolated(elementwise.inverse_root_or_most),
        is_coarse=True,
    ),
    "CAST": Builtin(lambda t: t.put(t.cast(t.stored(0), t.result().dtype))),
    "QUANTIZE": Builtin(elementwise.requantize, elementwise.exact_quantize),
    "DEQUANTIZE": Builtin(elementwise.requantize),
    "FAKE_QUANT": Builtin(composed(elementwise.fake_quant)),
    # Along axes.
    "SOFTMAX": Builtin(composed(reductions.softmax), reductions.exact_softmax, reductions.wide_softmax, is_coarse=True),
    "LOG_SOFTMAX": Builtin(composed(lambda t, x: t("LogSoftmax", x, axis=-1)), reductions.exact_log_softmax),
    "L2_NORMALIZATION": Builtin(composed(reductions.l2_normalization), reductions.exact_l2_normalization),
    "MEAN": Builtin(reductions.reduce("ReduceMean"), reductions.exact_mean),
    "SUM": Builtin(reductions.reduce("ReduceSum"), reductions.exact_sum),
    "REDUCE_MAX": Builtin(reductions.reduce("ReduceMax")),
    "REDUCE_MIN": Builtin(reductions.reduce("ReduceMin")),
    "REDUCE_PROD": Builtin(reductions.reduce("ReduceProd"), reductions.exact_product),
    "REDUCE_ANY": Builtin(reductions.reduce("ReduceMax")),
    "REDUCE_ALL": Builtin(reductions.reduce("ReduceMin")),
    "ARG_MAX": Builtin(reductions.arg("ArgMax")),
    "ARG_MIN": Builtin(reductions.arg("ArgMin")),
    "CUMSUM": Builtin(composed(reductions.cumsum)),
    # Moves, also of complex numbers.
    **_moves("RESHAPE", "SQUEEZE", "EXPAND_DIMS", real=movement.view),
    **_moves("TRANSPOSE", real=movement.transpose),
    **_moves("PAD", "PADV2", real=movement.pad),
    **_moves("MIRROR_PAD", real=movement.mirror_pad),
    "CONCATENATION": Builtin(movement.concatenation, movement.exact_concatenation, is_move=True),
    **_moves("PACK", real=movement.pack),
    **_moves("UNPACK", real=movement.unpack),
    **_moves("SPLIT", real=movement.split_equal),
    **_moves("SPLIT_V", real=movement.split_sizes),
    **_moves("SLICE", real=movement.cut),
    **_moves("STRIDED_SLICE", real=movement.strided_slice),
    **_moves("GATHER_ND", real=movement.gather_nd),
    **_moves("TILE", real=movement.move("Tile", "the multiples")),
    **_moves("BROADCAST_TO", real=movement.move("Expand", "the shape")),
    **_moves("FILL", real=movement.move("Expand", "the shape", 1)),
    **_moves("REVERSE_V2", real=movement.reverse),
    **_moves("SHAPE", real=movement.shape_of),
    **_moves("RANK", real=movement.rank_of),
    **_moves("BROADCAST_ARGS", real=movement.broadcast_args),
    **_moves("ZEROS_LIKE", real=movement.zeros_like),
    **_moves(COPY, real=lambda t: t.put(t.stored(0))),
    # By numbers of elements.
    "UNIQUE": Builtin(movement.unique),
    "WHERE": Builtin(lambda t: t.put(t("Transpose", t("NonZero", t.stored(0)), perm=[1, 0]))),
    "TOPK_V2": Builtin(movement.topk),
    "ONE_HOT": Builtin(movement.one_hot),
    "SCATTER_ND": Builtin(movement.scatter_nd),
    "SPARSE_TO_DENSE": Builtin(movement.sparse_to_dense),
    "REVERSE_SEQUENCE": Builtin(movement.reverse_sequence),
    "MATRIX_DIAG": Builtin(movement.matrix_diag),
    "MATRIX_SET_DIAG": Builtin(movement.matrix_set_diag),
    **dict.fromkeys(("SEGMENT_SUM", "UNSORTED_SEGMENT_SUM"), Builtin(movement.segments("add"))),
    "UNSORTED_SEGMENT_PROD": Builtin(movement.segments("mul")),
    "UNSORTED_SEGMENT_MAX": Builtin(movement.segments("max")),
    "UNSORTED_SEGMENT_MIN": Builtin(movement.segments("min")),
    "EMBEDDING_LOOKUP": Builtin(movement.embedding_lookup),
    "DYNAMIC_UPDATE_SLICE": Builtin(movement.dynamic_update_slice),
    "GATHER": Builtin(movement.gather),
    "BUCKETIZE": Builtin(movement.bucketize),
    ROW: Builtin(movement.replaced_row),
    # Control flow and variables.
    "IF": Builtin(control.branch),
    "WHILE": Builtin(control.loop),
    "CALL_ONCE": Builtin(control.call_once, has_outputs=False),
    "VAR_HANDLE": Builtin(control.var_handle),
    "READ_VARIABLE": Builtin(control.read_variable),
    "ASSIGN_VARIABLE": Builtin(control.assign_variable, has_outputs=False),
    # Recurrent ones.
    "LSTM": _recurrent(recurrent.lstm),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": _recurrent(recurrent.lstm),
    "BIDIRECTIONAL_SEQUENCE_LSTM": _recurrent(recurrent.bidirectional_lstm),
    "RNN": _recurrent(recurrent.rnn),
    "UNIDIRECTIONAL_SEQUENCE_RNN": _recurrent(recurrent.rnn),
    "BIDIRECTIONAL_SEQUENCE_RNN": _recurrent(recurrent.bidirectional_rnn),
    "SVDF": _recurrent(recurrent.svdf),
    # Complex numbers, and TensorFlow Lite Micro's Signal library.
    "RFFT2D": Builtin(signal.rfft2d),
    **dict.fromkeys(("COMPLEX_ABS", "REAL", "IMAG"), Builtin(signal.no_complex)),
    "CUSTOM SignalWindow": Builtin(signal.window),
    "CUSTOM SignalFftAutoScale": Builtin(signal.auto_scale),
    "CUSTOM SignalRfft": Builtin(signal.transform(False)),
    "CUSTOM SignalIrfft": Builtin(signal.transform(True)),
    "CUSTOM SignalEnergy": Builtin(signal.energy),
    "CUSTOM SignalFilterBank": Builtin(signal.filter_bank),
    "CUSTOM SignalFilterBankSquareRoot": Builtin(signal.square_root),
    "CUSTOM SignalFilterBankSpectralSubtraction": Builtin(signal.spectral_subtraction),
    "CUSTOM SignalPCAN": Builtin(signal.pcan),
    "CUSTOM SignalFilterBankLog": Builtin(signal.log),
    "CUSTOM SignalFramer": Builtin(signal.framer),
    "CUSTOM SignalStacker": Builtin(signal.stacker),
    "CUSTOM SignalDelay": Builtin(signal.delay),
    "CUSTOM SignalOverlapAdd": Builtin(signal.overlap_add),
    # Other custom operators.
    "CUSTOM TFLite_Detection_PostProcess": Builtin(custom.detection_postprocess),
    "CUSTOM PosenetDecoderOp": Builtin(custom.posenet_decoder),
    "CUSTOM MaxPoolingWithArgmax2D": Builtin(custom.max_pooling),
    "CUSTOM MaxUnpooling2D": Builtin(custom.max_unpooling),
    "CUSTOM Convolution2DTransposeBias": Builtin(custom.transpose_conv_bias),
    custom.KIND: Builtin(custom.ethos_u),
}
"""TFLite's operators by name, and those that rewriting.py inserts."""


def is_hybrid(operator: Operator, tensors: Sequence[Tensor]) -> bool:
    """Whether an operator is a hybrid one: it has int8 weights without zero point, and LiteRT quantizes its input."""
    builtin = BUILTINS.get(operator.kind)
    return builtin is not None and builtin.hybrid is not None and products.has_int8_weights(operator, tensors)


def is_without_form(operator: Operator, tensors: Sequence[Tensor]) -> bool:
    """Whether LiteRT quantizes the activations of an operator, but mtool has no such translation."""
    return operator.kind == "BATCH_MATMUL" and products.has_int8_weights(operator, tensors)
