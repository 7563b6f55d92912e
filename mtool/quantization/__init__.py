"""Post-training quantization: calibration data, schemes, and the loss of accuracy."""
