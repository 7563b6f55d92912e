"""Float32 on a Cortex-M with an FPU: register tiles."""
