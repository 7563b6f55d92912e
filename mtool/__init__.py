"""mtool puts a machine-learning model (ONNX) on a microcontroller."""

__version__ = "0.1.0"
