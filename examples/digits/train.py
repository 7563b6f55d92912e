"""Train the digits example and quantize it: writes digits_int8.onnx and test_data.npz beside this file.

    python3 -m venv venv && venv/bin/pip install torch onnx onnxruntime scikit-learn
    venv/bin/python train.py

Takes about twenty seconds. The run is seeded; another PyTorch or another processor may
still round differently, so the committed files are the reference, not the script's output.
"""

import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

HERE = Path(__file__).parent
SEED = 7
EPOCHS = 150
BATCH = 32
OPSET = 17


class Net(nn.Module):
    """Three convolutions and a dense layer: 14 k parameters, 231 k multiply-accumulates."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.conv3 = nn.Conv2d(32, 32, 3, padding=1)
        self.dense = nn.Linear(32, 10)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.conv1(pixels / 16))
        x = torch.max_pool2d(x, 2)
        x = torch.relu(self.conv2(x))
        x = torch.relu(self.conv3(x))
        return self.dense(x.mean(dim=(2, 3)))


def load_data() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return train and held-out images, int8[n, 1, 8, 8] with pixels 0 to 16, and their labels."""
    digits = load_digits()
    images = digits.images.astype(np.int8)[:, np.newaxis]
    x_train, x_test, y_train, y_test = train_test_split(
        images, digits.target.astype(np.uint8), test_size=0.25, random_state=SEED, stratify=digits.target
    )
    return x_train, y_train, x_test, y_test


def shifted(images: torch.Tensor) -> torch.Tensor:
    """Return the images moved by up to one pixel in each direction, as augmentation."""
    padded = nn.functional.pad(images, (1, 1, 1, 1))
    moves = torch.randint(0, 3, (len(images), 2))
    return torch.stack([image[:, y : y + 8, x : x + 8] for image, (y, x) in zip(padded, moves.tolist(), strict=True)])


def train(images: np.ndarray, labels: np.ndarray, make: type[nn.Module] = Net, epochs: int = EPOCHS) -> nn.Module:
    """Train a network, with a cosine schedule."""
    torch.manual_seed(SEED)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    x, y = torch.from_numpy(images).float(), torch.from_numpy(labels).long()
    net = make()
    optimizer = torch.optim.AdamW(net.parameters(), lr=5e-3, weight_decay=1e-3)
    steps = epochs * (len(x) // BATCH)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(epochs):
        order = torch.randperm(len(x))
        for start in range(0, len(x) - BATCH + 1, BATCH):
            batch = order[start : start + BATCH]
            loss = nn.functional.cross_entropy(net(shifted(x[batch])), y[batch], label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return net.eval()


def to_onnx(net: nn.Module) -> onnx.ModelProto:
    """Return the network as a float32 ONNX model; the division of the pixels by 16 goes into conv1's weights."""
    weights = {name: value.detach().numpy() for name, value in net.named_parameters()}
    weights["conv1.weight"] = weights["conv1.weight"] / np.float32(16)
    same = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [1, 1]}
    nodes = [
        helper.make_node("Conv", ["image", "conv1.weight", "conv1.bias"], ["conv1"], "conv1", **same),
        helper.make_node("Relu", ["conv1"], ["relu1"], "relu1"),
        helper.make_node("MaxPool", ["relu1"], ["pool"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["pool", "conv2.weight", "conv2.bias"], ["conv2"], "conv2", **same),
        helper.make_node("Relu", ["conv2"], ["relu2"], "relu2"),
        helper.make_node("Conv", ["relu2", "conv3.weight", "conv3.bias"], ["conv3"], "conv3", **same),
        helper.make_node("Relu", ["conv3"], ["relu3"], "relu3"),
        helper.make_node("GlobalAveragePool", ["relu3"], ["mean"], "mean"),
        helper.make_node("Flatten", ["mean"], ["flat"], "flatten"),
        helper.make_node("Gemm", ["flat", "dense.weight", "dense.bias"], ["scores"], "dense", transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 1, 8, 8])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, [1, 10])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
    onnx.checker.check_model(model)
    return model


class Images(CalibrationDataReader):
    """Feeds images to onnxruntime's calibration, one at a time."""

    def __init__(self, images: np.ndarray) -> None:
        self.feeds = iter([{"image": image[np.newaxis].astype(np.float32)} for image in images])

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self.feeds, None)


def quantize(model: onnx.ModelProto, images: np.ndarray) -> onnx.ModelProto:
    """Quantize to int8 QDQ, weights per channel; the input's scale is 1, so that a pixel goes in as it is."""
    input_scale = {"scale": np.array(1, np.float32), "zero_point": np.array(0, np.int8)}
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "float.onnx"), Path(folder, "int8.onnx")
        onnx.save(onnx.shape_inference.infer_shapes(model), source)
        quantize_static(
            source,
            target,
            Images(images),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QInt8,
            weight_type=QuantType.QInt8,
            extra_options={"TensorQuantOverrides": {"image": [input_scale]}},
        )
        return integer_ends(onnx.load(target))


def integer_ends(model: onnx.ModelProto) -> onnx.ModelProto:
    """Drop the first QuantizeLinear and the last DequantizeLinear: int8 in, int8 out."""
    graph = model.graph
    first = next(node for node in graph.node if "image" in node.input)
    last = next(node for node in graph.node if "scores" in node.output)
    assert (first.op_type, last.op_type) == ("QuantizeLinear", "DequantizeLinear")
    renamed = {first.output[0]: "image", last.input[0]: "scores"}
    graph.node.remove(first)
    graph.node.remove(last)
    for node in graph.node:
        node.input[:] = [renamed.get(name, name) for name in node.input]
        node.output[:] = [renamed.get(name, name) for name in node.output]
    graph.input[0].type.tensor_type.elem_type = TensorProto.INT8
    graph.output[0].type.tensor_type.elem_type = TensorProto.INT8
    kept = {name for node in graph.node for name in node.input}
    initializers = [tensor for tensor in graph.initializer if tensor.name in kept]
    del graph.initializer[:]
    graph.initializer.extend(initializers)
    del graph.value_info[:]
    model.producer_name, model.producer_version = "mtool examples/digits", ""
    onnx.checker.check_model(model, full_check=True)
    return model


def accuracy(model: onnx.ModelProto, images: np.ndarray, labels: np.ndarray) -> float:
    """Return the share of the images whose highest score is their label, by onnxruntime."""
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    dtype = np.float32 if session.get_inputs()[0].type == "tensor(float)" else np.int8
    scores = [session.run(None, {"image": image[np.newaxis].astype(dtype)})[0] for image in images]
    return float(np.mean(np.concatenate(scores).argmax(axis=1) == labels))


def main() -> None:
    x_train, y_train, x_test, y_test = load_data()
    float_model = to_onnx(train(x_train, y_train))
    int8_model = quantize(float_model, x_train[:256])
    print(f"held-out images  {len(x_test)}")
    print(f"float32          {accuracy(float_model, x_test, y_test):.2%}")
    print(f"int8             {accuracy(int8_model, x_test, y_test):.2%}")
    onnx.save(int8_model, HERE / "digits_int8.onnx")
    np.savez_compressed(HERE / "test_data.npz", x=x_test, y=y_test)


if __name__ == "__main__":
    main()
