"""What LiteRT refuses in a file although it is of no consequence, put right for it.

The axis of a bias' scales: no kernel reads it, converters have written that of the weights, and LiteRT since 2024 wants
it to lie inside the shape. TFLite Micro takes such files, and so does mtool.
"""

import struct
from pathlib import Path

import tflite


def litert_can_read(path: Path) -> str | bytes:
    """Return what LiteRT is to read a model from: the path of its file, or bytes that differ from its."""
    data = bytearray(path.read_bytes())
    offsets = _axes_outside(bytes(data))
    for offset in offsets:
        struct.pack_into("<i", data, offset, 0)
    return bytes(data) if offsets else str(path.absolute())


def _axes_outside(data: bytes) -> list[int]:
    """Return where in a file, which has been read before, the axes of vectors stand that have no such axis."""
    model, found = tflite.Model.GetRootAs(data, 0), []
    graphs = [model.Subgraphs(number) for number in range(model.SubgraphsLength())]
    for tensor in (graph.Tensors(number) for graph in graphs for number in range(graph.TensorsLength())):
        quantisation = tensor.Quantization()
        if quantisation is not None and tensor.ShapeLength() == 1 and quantisation.QuantizedDimension():
            table = quantisation._tab
            found.append(table.Pos + table.Offset(_SLOT))
    return found


_SLOT = 16  # of QuantizationParameters.quantized_dimension in its table
