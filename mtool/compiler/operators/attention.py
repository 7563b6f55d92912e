"""onnxruntime's attention operators (com.microsoft), as ONNX's Attention 23 and RotaryEmbedding 23."""

from typing import Any

import numpy as np

from mtool.compiler.operators.gemm import integer_product
from mtool.compiler.operators.onnx_node import OnnxNode
from mtool.compiler.operators.operator import LIKE, Case, Draw, Operator, case, normal
from mtool.compiler.operators.problems import MICROSOFT, Unsupported


def _attended(write: OnnxNode, q: str, k: str, v: str, mask: str = "") -> None:
    """Set the output to the attention of [batch, steps, heads * size] tensors."""
    heads = write.attrs["num_heads"]
    causal = int(write.attrs.get("unidirectional", 0))
    scale = write.attrs.get("scale") or None
    masks = [mask] * bool(mask)
    attrs = {"q_num_heads": heads, "kv_num_heads": heads, "is_causal": causal, "scale": scale}
    write.set_output(write("Attention", q, k, v, *masks, **attrs))


def _multi_head(write: OnnxNode) -> None:
    """MultiHeadAttention(query, key, value, bias, key padding, attention bias, past key, past value)."""
    write.refuse(**{"key_padding_mask": write.input(4), "past": write.input(6) + write.input(7)})
    write.refuse(**{"present": "".join(write.outputs[1:])})
    values = [write.input(index) for index in range(3)]
    if not all(values) or any(len(write.kind(value).shape) != 3 for value in values):
        raise Unsupported("its query, key and value are not three tensors [batch, steps, features]")
    if any(write.kind(value).shape[2] % write.attrs["num_heads"] for value in values):
        raise Unsupported(f"its features are not a multiple of its {write.attrs['num_heads']} heads")
    if write.input(3):
        sizes = [write.kind(value).shape[2] for value in values]
        ends = [0, *np.cumsum(sizes).tolist()]
        values = [
            write("Add", value, _part(write, write.input(3), ends[n], ends[n + 1])) for n, value in enumerate(values)
        ]
    q, k, v = values
    _attended(write, q, k, v, write.input(5))


def _part(write: OnnxNode, value: str, start: int, end: int) -> str:
    """Return a part of a tensor's last axis."""
    return write("Slice", value, [start], [end], [-1])


def _split(write: OnnxNode, together: str) -> None:
    """Set the output to the attention of query, key and value side by side along the last axis."""
    size = write.kind(together).shape[-1]
    write.refuse(
        **{"qkv_hidden_sizes": write.attrs.get("qkv_hidden_sizes"), "rotary embedding": write.attrs.get("do_rotary")}
    )
    if size % 3:
        raise Unsupported(f"its {size} columns can't be split into query, key and value")
    q, k, v = (_part(write, together, n * size // 3, (n + 1) * size // 3) for n in range(3))
    _attended(write, q, k, v)


def _attention(write: OnnxNode) -> None:
    """Attention(input, weights, bias, mask index, past, attention bias)."""
    write.refuse(**{"mask_index": write.input(3), "past": write.input(4), "attention_bias": write.input(5)})
    together = write("MatMul", write.input(0), write.input(1))
    _split(write, write("Add", together, write.input(2)) if write.input(2) else together)


def _quantized(write: OnnxNode) -> None:
    """QAttention(input, weight, bias, their scales, mask index, their zero points, past): an integer product first."""
    write.refuse(**{"mask_index": write.input(5), "past": write.input(8)})
    product = integer_product(write, write.input(0), write.input(1), (write.input(6), write.input(7)))
    scale = write("Mul", write.input(3), write.input(4))
    _split(write, write("Add", write("Mul", write("Cast", product, to=1), scale), write.input(2)))


def _rotary(write: OnnxNode) -> None:
    """RotaryEmbedding(input, positions, cosines, sines): ONNX has the positions last."""
    x, positions, cosines, sines = write.inputs
    write.refuse(
        **{"scale": write.attrs.get("scale", 1.0) != 1.0, "packed batching": write.attrs.get("is_packed_batching")}
    )
    if len(write.kind(positions).shape) != 2:
        raise Unsupported("its positions are a single offset; expected one per step, [batch, steps]")
    heads, part = write.attrs.get("num_heads", 0), write.attrs.get("rotary_embedding_dim", 0)
    shape = write.kind(x).shape
    if len(shape) == 3 and not heads:
        size = part or 2 * write.kind(cosines).shape[1]
        heads = shape[2] // size
    attrs = {"interleaved": write.attrs.get("interleaved", 0), "num_heads": heads, "rotary_embedding_dim": part}
    write.set_output(write("RotaryEmbedding", x, cosines, sines, positions, **attrs))


def _of_integers(draw: Draw, op: Operator) -> Case:
    value = draw.pick(np.uint8, 3)
    depth = value.shape[2]
    weights = draw.constant(draw.numbers().integers(-64, 64, (depth, 12)), np.int8)
    scales = [draw.constant(scale, np.float32) for scale in (0.02, 0.01)]
    points = [draw.constant(128, np.uint8), draw.constant(0, np.int8)]
    return Case([value.name, weights, draw.normal((12,)), *scales, "", *points], {"num_heads": 2})


_HALVES: dict[str, Any] = {
    "rank": 3, "fits": lambda shape: shape[2] % 2 == 0, "num_heads": (2,), "unidirectional": (0, 1),
}  # fmt: skip
_TOGETHER = case(
    normal(lambda shape: (shape[2], 12)), normal(lambda shape: (12,)), rank=3, num_heads=(1, 2), unidirectional=(0, 1),
)  # fmt: skip
_ROTATED = case(
    lambda draw, x: draw.constant(draw.numbers().integers(0, x.shape[2], (x.shape[0], x.shape[2])), np.int64),
    normal(lambda shape: (shape[2], shape[3] // 2)), normal(lambda shape: (shape[2], shape[3] // 2)),
    rank=4, fits=lambda shape: shape[3] % 2 == 0, interleaved=(0, 1),
)  # fmt: skip


OPERATORS = (
    Operator("MultiHeadAttention", domain=MICROSOFT, cases=case(LIKE, LIKE, **_HALVES), expand=_multi_head),
    Operator("Attention", domain=MICROSOFT, cases=_TOGETHER, expand=_attention),
    Operator("QAttention", domain=MICROSOFT, cases=_of_integers, expand=_quantized),
    Operator("RotaryEmbedding", domain=MICROSOFT, cases=_ROTATED, expand=_rotary),
)
