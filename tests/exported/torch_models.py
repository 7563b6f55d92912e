"""Small PyTorch networks with random weights, exported through torch.onnx, one function each.

The tests read them from the folder pytorch/, as exporting takes as long as all the rest; this module updates it
(python tests/exported/torch_models.py), with what pyproject.toml has as `exported`.
"""

import io
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import onnx
import torch
from torch import Tensor, nn

Shape = Sequence[int]


def export(
    network: nn.Module, *shapes: Shape, outputs: Sequence[str] | None = None, dynamo: bool = True
) -> onnx.ModelProto:
    """Export a network for inputs of these shapes, by torch.onnx's present exporter or (dynamo=False) its older."""
    network.eval()
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d | nn.BatchNorm1d):  # as if it had been trained
            nn.init.uniform_(module.running_mean, -0.5, 0.5)
            nn.init.uniform_(module.running_var, 0.5, 2)
    inputs = tuple(torch.zeros(*shape) for shape in shapes)
    names = [f"x{number}" for number in range(len(shapes))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's own insides
        if not dynamo:
            buffer = io.BytesIO()
            torch.onnx.export(
                network, inputs, buffer, input_names=names, output_names=outputs, opset_version=17, dynamo=False
            )
            return onnx.load_from_string(buffer.getvalue())
        program = torch.onnx.export(
            network, inputs, input_names=names, output_names=outputs, dynamo=True, verbose=False
        )
    assert program is not None
    proto: onnx.ModelProto = program.model_proto
    return proto


class Residual(nn.Module):
    """A ResNet block whose shortcut is a 1x1 convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(4, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.second = nn.Sequential(nn.Conv2d(8, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8))
        self.shortcut = nn.Conv2d(4, 8, 1, 2)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.second(self.first(x)) + self.shortcut(x))


class UNet(nn.Module):
    """One step down and up again, the two sides joined."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(1, 6, 3, padding=1), nn.ReLU())
        self.bottom = nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(6, 12, 3, padding=1), nn.ReLU())
        self.up = nn.ConvTranspose2d(12, 6, 2, stride=2)
        self.smooth = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False)
        self.out = nn.Conv2d(24, 2, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        side = self.down(x)
        bottom = self.bottom(side)
        return torch.sigmoid(self.out(torch.cat([side, self.up(bottom), self.smooth(bottom)], dim=1)))


class Recurrent(nn.Module):
    """A recurrent layer and a classifier of its last step."""

    def __init__(self, kind: Callable[..., nn.Module], **arguments: Any) -> None:
        super().__init__()
        self.layer = kind(5, 8, batch_first=True, **arguments)
        self.head = nn.Linear(16 if arguments.get("bidirectional") else 8, 3)

    def forward(self, x: Tensor) -> Tensor:
        sequence, _ = self.layer(x)
        return torch.softmax(self.head(sequence[:, -1]), dim=1)


class Step(nn.Module):
    """An LSTM whose state is an input and an output."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = nn.LSTM(8, 16, batch_first=True), nn.Linear(16, 4)

    def forward(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y, (h, c) = self.cell(x, (h, c))
        return self.head(y[:, -1]), h, c


def small_cnn() -> onnx.ModelProto:
    layers = (
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 12, 3), nn.GELU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 5), nn.LogSoftmax(1),
    )  # fmt: skip
    return export(nn.Sequential(*layers), (1, 3, 16, 16))


def small_cnn_by_the_older_exporter() -> onnx.ModelProto:
    layers = (
        nn.Conv2d(3, 8, 5, stride=2), nn.BatchNorm2d(8), nn.LeakyReLU(0.1), nn.AvgPool2d(2), nn.Flatten(),
        nn.Dropout(), nn.Linear(72, 5), nn.Softmax(1),
    )  # fmt: skip
    return export(nn.Sequential(*layers), (1, 3, 16, 16), dynamo=False)


def mobile_block() -> onnx.ModelProto:
    layers = (
        nn.Conv2d(4, 16, 1, bias=False), nn.BatchNorm2d(16), nn.Hardswish(), nn.Conv2d(16, 16, 3, 2, 1, groups=16),
        nn.ReLU6(), nn.Conv2d(16, 6, 1), nn.Hardsigmoid(),
    )  # fmt: skip
    return export(nn.Sequential(*layers), (1, 4, 12, 12))


def residual_block() -> onnx.ModelProto:
    return export(Residual(), (1, 4, 10, 10))


def u_net() -> onnx.ModelProto:
    return export(UNet(), (1, 1, 16, 16))


def lstm() -> onnx.ModelProto:
    return export(Recurrent(nn.LSTM), (1, 7, 5))


def bidirectional_lstm_by_the_older_exporter() -> onnx.ModelProto:
    return export(Recurrent(nn.LSTM, num_layers=2, bidirectional=True), (1, 7, 5), dynamo=False)


def lstm_of_one_step() -> onnx.ModelProto:
    return export(Step(), (1, 1, 8), (1, 1, 16), (1, 1, 16), outputs=["y", "hn", "cn"], dynamo=False)


def gru() -> onnx.ModelProto:
    return export(Recurrent(nn.GRU), (1, 7, 5))


def transformer() -> onnx.ModelProto:
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
    return export(layer, (1, 6, 16))


def transformer_norm_first() -> onnx.ModelProto:
    layer = nn.TransformerEncoderLayer(16, 2, 24, batch_first=True, activation="gelu", norm_first=True)
    return export(layer, (1, 6, 16))


def cnn_1d() -> onnx.ModelProto:
    layers = (
        nn.Conv1d(2, 8, 5, padding=4, dilation=2), nn.BatchNorm1d(8), nn.ELU(), nn.MaxPool1d(2), nn.Conv1d(8, 6, 3),
        nn.Tanh(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(6, 2),
    )  # fmt: skip
    return export(nn.Sequential(*layers), (1, 2, 40))


def autoencoder() -> onnx.ModelProto:
    layers = (nn.Linear(20, 12), nn.ReLU(), nn.Linear(12, 3), nn.Mish(), nn.Linear(3, 12), nn.SiLU(), nn.Linear(12, 20))
    return export(nn.Sequential(*layers), (1, 20))


MODELS: tuple[Callable[[], onnx.ModelProto], ...] = (
    small_cnn, small_cnn_by_the_older_exporter, mobile_block, residual_block, u_net, lstm,
    bidirectional_lstm_by_the_older_exporter, lstm_of_one_step, gru, transformer, transformer_norm_first, cnn_1d,
    autoencoder,
)  # fmt: skip


def made(function: Callable[[], onnx.ModelProto]) -> onnx.ModelProto:
    """Return a model whose weights are drawn from a seed, without what tells of the exporter's insides."""
    torch.manual_seed(0)
    proto = function()
    graph = proto.graph
    for part in (proto, graph, *graph.node, *graph.value_info, *graph.input, *graph.output, *graph.initializer):
        part.ClearField("metadata_props")
    return proto


if __name__ == "__main__":
    folder = Path(__file__).with_name("pytorch")
    folder.mkdir(exist_ok=True)
    for one in MODELS:
        (folder / f"{one.__name__}.onnx").write_bytes(made(one).SerializeToString(deterministic=True))
