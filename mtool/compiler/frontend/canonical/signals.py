"""Canonical forms of operators over time: recurrent layers, Fourier transforms, n-grams."""

import onnx

from mtool.compiler.frontend.canonical.forms import Attrs, Canonical, attributes_of, computed
from mtool.compiler.frontend.importer import Importer
from mtool.compiler.frontend.problems import Unsupported
from mtool.compiler.ir import TensorType
from mtool.compiler.operators.fourier import DFT, STFT
from mtool.compiler.operators.recurrent import Recurrent
from mtool.compiler.operators.scatter import TfIdf


def recurrent(state: Importer, proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
    """RNN, GRU, LSTM: an activation is its name, alpha and beta."""
    gates = {"RNN": 1, "GRU": 2, "LSTM": 3}[proto.op_type]
    default = ("Tanh",) if gates == 1 else ("Sigmoid", "Tanh", "Tanh")[:gates]
    directions = state.types[proto.input[1]].shape[0]
    names = [name.decode() for name in attrs.get("activations") or ()] or list(default) * directions
    if len(names) != len(default) * directions:
        raise Unsupported(f"it has {len(names)} activations; expected {len(default) * directions}")
    alphas, betas = list(attrs.get("activation_alpha") or ()), list(attrs.get("activation_beta") or ())
    functions = []
    for name in names:
        alpha, beta = ACTIVATIONS.get(name.lower(), (None, None))
        alpha = alphas.pop(0) if alpha is not None and alphas else alpha
        beta = betas.pop(0) if beta is not None and betas else beta
        functions.append((name.lower(), alpha, beta))
    made = Recurrent(
        functions=tuple(functions), clip=attrs.get("clip"), batch_first=bool(attrs.get("layout")),
        direction=attrs.get("direction", "forward"), input_forget=bool(attrs.get("input_forget")),
        linear_before_reset=bool(attrs.get("linear_before_reset")),
        weights=attrs.get("weights", {}), dynamic_state=attrs.get("dynamic_state", False),  # of DynamicQuantizeLSTM
    )  # fmt: skip
    state.emit(proto.op_type, origin, list(proto.input), list(proto.output), made)


ACTIVATIONS: dict[str, tuple[float | None, float | None]] = {
    "affine": (1.0, 0.0), "leakyrelu": (0.01, None), "thresholdedrelu": (1.0, None), "scaledtanh": (1.0, 1.0),
    "hardsigmoid": (0.2, 0.5), "elu": (1.0, None),
}  # fmt: skip
"""Default alpha and beta of the activations that have them."""


def _dft(state: Importer, proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
    shape = state.types[proto.input[0]].shape
    inverse, onesided = bool(attrs.get("inverse")), bool(attrs.get("onesided"))
    axis = attrs.get("axis", 1 if version < 20 else -2)
    if len(proto.input) > 2 and proto.input[2]:
        axis = int(state.value_of(proto.input[2], "axis").item())
    axis %= len(shape)
    if len(shape) < 2 or shape[-1] not in (1, 2):
        raise Unsupported(f"its input is {state.types[proto.input[0]]}; expected a last dimension of 1 or 2")
    length = 2 * (shape[axis] - 1) if inverse and onesided else shape[axis]
    if len(proto.input) > 1 and proto.input[1]:
        length = int(state.value_of(proto.input[1], "dft_length").item())
    made = DFT(axis=axis, length=length, inverse=inverse, onesided=onesided)
    state.emit("DFT", origin, [proto.input[0]], [proto.output[0]], made)


def _stft(state: Importer, proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
    signal, step, window, length = [*proto.input, "", ""][:4]
    size = int(state.value_of(length, "frame_length").item()) if length else state.types[window].shape[0]
    made = STFT(step=int(state.value_of(step, "frame_step").item()), length=size)
    kind = state.types[proto.output[0]]
    bins = size // 2 + 1 if attrs.get("onesided", 1) else size
    state.types[proto.output[0]] = TensorType(kind.dtype, (*kind.shape[:2], bins, 2))
    state.emit("STFT", origin, [signal, window], [proto.output[0]], made)


def _tf_idf(state: Importer, proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
    if "pool_strings" in attrs:
        raise Unsupported("strings are not supported")
    state.emit("TfIdfVectorizer", origin, list(proto.input), list(proto.output), attributes_of(TfIdf, attrs))


SIGNALS: dict[str, Canonical] = {
    **dict.fromkeys(["RNN", "GRU", "LSTM"], recurrent),
    "TfIdfVectorizer": _tf_idf,
    "DFT": _dft,
    "STFT": _stft,
    "MelWeightMatrix": computed("num_mel_bins", "dft_length", "sample_rate", "lower_edge_hertz", "upper_edge_hertz"),
}
