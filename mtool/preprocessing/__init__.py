"""Front ends in front of a model: what a sensor gives becomes the model's input, in the same ONNX graph."""
