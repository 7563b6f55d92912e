"""Train the digits example with weights of 2 bits in Brevitas: writes digits_2bit.onnx (QONNX) beside this file.

python3 -m venv venv && venv/bin/pip install brevitas onnx onnxoptimizer onnxruntime scikit-learn
venv/bin/python train_few_bits.py
"""

import brevitas.nn as qnn
import numpy as np
import torch
from brevitas.export import export_qonnx
from brevitas.quant import Int8ActPerTensorFloat, Int8WeightPerChannelFloat, Uint8ActPerTensorFloat
from torch import nn
from train import HERE, load_data, train

EPOCHS = 30


class Net(nn.Module):
    """The network of train.py; the convolutions have weights of 2 bits but for the first, which has 4."""

    def __init__(self) -> None:
        super().__init__()
        self.image = qnn.QuantIdentity(act_quant=Int8ActPerTensorFloat, return_quant_tensor=True)
        self.conv1, self.relu1 = self.layer(1, 16, 4)
        self.conv2, self.relu2 = self.layer(16, 32, 2)
        self.conv3, self.relu3 = self.layer(32, 32, 2)
        self.dense = qnn.QuantLinear(32, 10, bias=True, weight_quant=Int8WeightPerChannelFloat, weight_bit_width=4)

    @staticmethod
    def layer(inputs: int, outputs: int, bits: int) -> tuple[nn.Module, nn.Module]:
        """Return a convolution and its ReLU, whose results have 8 bits."""
        weights = {"weight_quant": Int8WeightPerChannelFloat, "weight_bit_width": bits}
        relu = qnn.QuantReLU(act_quant=Uint8ActPerTensorFloat, return_quant_tensor=True)
        return qnn.QuantConv2d(inputs, outputs, 3, padding=1, bias=True, **weights), relu

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        x = self.relu1(self.conv1(self.image(pixels)))
        x = torch.max_pool2d(x, 2)
        x = self.relu2(self.conv2(x))
        x = self.relu3(self.conv3(x))
        return self.dense(torch.max_pool2d(x, 4).flatten(1))


def main() -> None:
    x_train, y_train, x_test, y_test = load_data()
    net = train(x_train, y_train, Net, EPOCHS)
    with torch.no_grad():
        classes = net(torch.from_numpy(x_test).float()).argmax(dim=1).numpy()
    print(f"held-out images  {len(x_test)}")
    print(f"2 bits           {np.mean(classes == y_test):.2%}")
    names = {"input_names": ["image"], "output_names": ["scores"]}
    export_qonnx(net, torch.zeros(1, 1, 8, 8), str(HERE / "digits_2bit.onnx"), **names, dynamo=False, opset_version=17)


if __name__ == "__main__":
    main()
