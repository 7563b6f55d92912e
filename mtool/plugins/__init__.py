"""What other programs load: ONNX's backend interface, pytest's plugin, the host of MLPerf Tiny."""
