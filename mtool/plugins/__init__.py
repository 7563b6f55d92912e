"""Interfaces to other tools: ONNX's backend interface, a pytest plugin, the host of MLPerf Tiny."""
