"""Post-training quantization: calibration data, schemes, and what the result loses."""
